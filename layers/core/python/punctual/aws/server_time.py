"""The time of DynamoDB, from the Date header of its answers."""

from collections.abc import MutableMapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from punctual.engine.quotas.store_clock import StoreClock

_CALLED_AT_KEY = "punctual_called_at"


class ServerTime:
    """Reports each answer to a clock: its Date header, and when the call started and ended."""

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock

    def attach_to(self, client: Any) -> None:
        events = client.meta.events
        events.register("before-call.dynamodb", self._note_call)
        events.register("after-call.dynamodb", self._note_answer)

    def _note_call(self, context: MutableMapping[str, Any], **_: Any) -> None:
        context[_CALLED_AT_KEY] = self._clock.uncorrected()

    def _note_answer(self, http_response: Any, context: MutableMapping[str, Any], **_: Any) -> None:
        answered_second = parse_date_header(getattr(http_response, "headers", {}).get("Date") or "")
        called_at = context.get(_CALLED_AT_KEY)
        if answered_second is not None and called_at is not None:
            self._clock.correct(answered_second, called_at, self._clock.uncorrected())


def parse_date_header(text: str) -> datetime | None:
    """Return the time of a Date header, or None if it is invalid.

    >>> parse_date_header("Tue, 01 Dec 2026 12:00:07 GMT")
    datetime.datetime(2026, 12, 1, 12, 0, 7, tzinfo=datetime.timezone.utc)
    >>> parse_date_header(""), parse_date_header("Tue, 41 Dec 2026 12:00:07 GMT")
    (None, None)
    >>> parse_date_header("Tue, 01 Dec 99999999999999999999 12:00:07 GMT")
    """
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
