"""The time of DynamoDB, from the Date header of its answers, and a clock that follows it.

All instances then measure shared rows on one clock, even if their own clocks differ.
"""

from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from punctual.domain.utc import SECOND

_CALLED_AT_KEY = "punctual_called_at"


class StoreClock:
    """The clock of this machine, corrected by the times in a store's answers.

    It is correct to about a second from the first answer on, and better with later ones.

    An answer names the second in which it was made. So at some moment between the call and the
    answer, the store's clock was within that second. A clock outside it moves by the difference. A
    correct clock never moves, and a clock that is set moves again.
    """

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._offset = timedelta()

    def __call__(self) -> datetime:
        return self._clock() + self._offset

    def read_uncorrected(self) -> datetime:
        return self._clock()

    def correct(self, second: datetime, called_at: datetime, answered_at: datetime) -> None:
        """Correct the clock by an answer of that second. The other times are uncorrected."""
        if called_at <= answered_at:  # otherwise the clock was set back in between
            self._offset = max(second - answered_at, min(second + SECOND - called_at, self._offset))


class ServerTime:
    """Reports each answer to a clock: its Date header, and when the call started and ended."""

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock

    def attach_to(self, client: Any) -> None:
        events = client.meta.events
        events.register("before-call.dynamodb", self._note_call)
        events.register("after-call.dynamodb", self._note_answer)

    def _note_call(self, context: MutableMapping[str, Any], **_: Any) -> None:
        context[_CALLED_AT_KEY] = self._clock.read_uncorrected()

    def _note_answer(self, http_response: Any, context: MutableMapping[str, Any], **_: Any) -> None:
        answered_second = parse_date_header(getattr(http_response, "headers", {}).get("Date") or "")
        called_at = context.get(_CALLED_AT_KEY)
        if answered_second is not None and called_at is not None:
            self._clock.correct(answered_second, called_at, self._clock.read_uncorrected())


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
