"""The epoch, and durations to calculate with. The authorizer imports this without msgspec."""

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)  # the smallest difference of two datetimes
MILLISECOND = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)
