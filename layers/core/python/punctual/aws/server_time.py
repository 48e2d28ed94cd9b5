"""The time of DynamoDB, from the Date header of its answers."""

from collections.abc import MutableMapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from punctual.engine.quotas.store_clock import StoreClock

_CALLED = "punctual_called_at"


class ServerTime:
    """Reports each answer to a clock: its Date header, and when the call started and ended."""

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock

    def watch(self, client: Any) -> None:
        events = client.meta.events
        events.register("before-call.dynamodb", self._call)
        events.register("after-call.dynamodb", self._answer)

    def _call(self, context: MutableMapping[str, Any], **_: Any) -> None:
        context[_CALLED] = self._clock.own()

    def _answer(self, http_response: Any, context: MutableMapping[str, Any], **_: Any) -> None:
        made = second_of(getattr(http_response, "headers", {}).get("Date") or "")
        called = context.get(_CALLED)
        if made is not None and called is not None:
            self._clock.hear(made, called, self._clock.own())


def second_of(text: str) -> datetime | None:
    """Return the time of a Date header, or None if it is invalid.

    >>> second_of("Tue, 01 Dec 2026 12:00:07 GMT")
    datetime.datetime(2026, 12, 1, 12, 0, 7, tzinfo=datetime.timezone.utc)
    >>> second_of(""), second_of("Tue, 41 Dec 2026 12:00:07 GMT")
    (None, None)
    >>> second_of("Tue, 01 Dec 99999999999999999999 12:00:07 GMT")
    """
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
