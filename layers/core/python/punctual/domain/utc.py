"""The epoch, and durations to calculate with. The authorizer imports this without msgspec."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)  # the smallest difference of two datetimes
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)


def to_milliseconds(duration: timedelta | None) -> float | None:
    """Return a duration as the API shows it.

    >>> to_milliseconds(timedelta(seconds=1.5))
    1500.0
    """
    return None if duration is None else duration / MILLISECOND
