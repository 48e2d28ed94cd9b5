"""The type of aware datetimes in stored values, and their text in the API."""

from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta
from msgspec.json import Encoder

# Decoding rejects a naive datetime, which would fail in a later comparison.
Moment = Annotated[datetime, Meta(tz=True)]

_encode = Encoder().encode


def format_time(at: datetime) -> str:
    """Return the time as the API shows it: in RFC 3339, in UTC, with milliseconds.

    >>> format_time(datetime(2026, 12, 1, 10, 0, 0, 5999, tzinfo=UTC))
    '2026-12-01T10:00:00.005Z'
    """
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    text = _encode(utc)  # ten times as fast as isoformat
    return f"{text[1:24].decode()}Z" if utc.microsecond else f"{text[1:20].decode()}.000Z"
