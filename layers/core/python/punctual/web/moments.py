"""Times as the API writes and reads them: RFC 3339."""

import re
from datetime import UTC, datetime, timedelta

from punctual.domain.zones import EPOCH, HORIZON

_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:([Zz])|([+-]\d\d:\d\d))",
    re.ASCII,
)
_HINT = "must be an RFC 3339 time with an offset, such as 2026-12-01T10:00:00Z"
_MILLISECOND = timedelta(milliseconds=1)


def shown(at: datetime) -> str:
    """In UTC, with milliseconds.

    >>> shown(datetime(2026, 12, 1, 10, 0, 0, 5999, tzinfo=UTC))
    '2026-12-01T10:00:00.005Z'
    """
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    return utc.isoformat(timespec="milliseconds")[:-6] + "Z"


def shown_or_none(at: datetime | None) -> str | None:
    return None if at is None else shown(at)


def parsed(text: str) -> datetime:
    """The moment in UTC, what is finer than a microsecond rounded up; ValueError says why not.

    >>> parsed("2026-12-01t11:00:00.5+01:00")
    datetime.datetime(2026, 12, 1, 10, 0, 0, 500000, tzinfo=datetime.timezone.utc)
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(_HINT)
    day, time, fraction, zulu, offset = match.groups()
    try:
        at = datetime.fromisoformat(f"{day}T{time}{'+00:00' if zulu else offset}")
        nanoseconds = int((fraction or "0").ljust(9, "0"))
        at = (at + timedelta(microseconds=-(-nanoseconds // 1_000))).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(_HINT) from error
    if not EPOCH <= at < HORIZON:
        raise ValueError("must lie between the years 1970 and 2200")
    return at


def normal(text: str) -> str:
    """The same moment as the API shows it, rounded up: what is scheduled never comes early.

    >>> normal("2026-12-01T10:00:00.0001Z")
    '2026-12-01T10:00:00.001Z'
    """
    at = parsed(text)
    beyond = at.microsecond % 1_000
    return shown(at + _MILLISECOND - timedelta(microseconds=beyond) if beyond else at)
