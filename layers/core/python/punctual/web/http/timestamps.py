"""Times as the API writes and reads them: RFC 3339."""

import re
from datetime import UTC, datetime, timedelta

import msgspec

from punctual.domain.schedules.timezones import EPOCH, HORIZON

_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?(?:[Zz]|([+-]\d\d:\d\d))",
    re.ASCII,
)
_encode = msgspec.json.Encoder().encode
_MICROSECOND = timedelta(microseconds=1)
_WHOLE, _FINE = len("2026-12-01T10:00:00Z"), len("2026-12-01T10:00:00.000000Z")
_MAX_FRACTION_DIGITS = 6  # digits of a second's fraction that a moment keeps
_FORMAT_MESSAGE = "must be an RFC 3339 time with an offset, such as 2026-12-01T10:00:00Z"
_RANGE_MESSAGE = "must lie between the years 1970 and 2200"
_LOCAL = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?", re.ASCII)
_MAX_UTC_OFFSET = timedelta(days=1)  # no zone is further from UTC


def format_time(at: datetime) -> str:
    """In UTC, with milliseconds.

    >>> format_time(datetime(2026, 12, 1, 10, 0, 0, 5999, tzinfo=UTC))
    '2026-12-01T10:00:00.005Z'
    """
    utc = at if at.tzinfo is UTC else at.astimezone(UTC)
    text = _encode(utc)  # b'"2026-12-01T10:00:00.005999Z"', at a tenth of what isoformat costs
    return f"{text[1:24].decode()}Z" if utc.microsecond else f"{text[1:20].decode()}.000Z"


def format_optional_time(at: datetime | None) -> str | None:
    return None if at is None else format_time(at)


def parse_time(text: str) -> datetime:
    """The moment in UTC, what is finer than a microsecond rounded up; ValueError says why not.

    >>> parse_time("2026-12-01t11:00:00.5+01:00")
    datetime.datetime(2026, 12, 1, 10, 0, 0, 500000, tzinfo=datetime.timezone.utc)
    """
    at = _parse_usual_form(text)
    if at is None:
        at = _parse_any_form(text)
    if not EPOCH <= at < HORIZON:
        raise ValueError(_RANGE_MESSAGE)
    return at


def parse_time_or_local(text: str) -> datetime:
    """Return the moment in UTC, or a time without a zone where the text has no offset.

    >>> parse_time_or_local("2026-12-01T10:00:00")
    datetime.datetime(2026, 12, 1, 10, 0)
    """
    match = _LOCAL.fullmatch(text)
    if match is None:
        return parse_time(text)
    day, time, fraction = match.groups()
    try:
        local = datetime.fromisoformat(f"{day}T{time}.{(fraction or '0')[:_MAX_FRACTION_DIGITS]}")
    except ValueError as error:
        raise ValueError(_FORMAT_MESSAGE) from error
    if not EPOCH + _MAX_UTC_OFFSET <= local.replace(tzinfo=UTC) < HORIZON - _MAX_UTC_OFFSET:
        raise ValueError(_RANGE_MESSAGE)
    return local


def _parse_usual_form(text: str) -> datetime | None:
    """In UTC and in the one form that most send: what the form leaves open is for `_any`."""
    if text[-1:] != "Z" or text[10:11] != "T" or text[7:8] != "-" or text[16:17] != ":":
        return None
    if len(text) != _WHOLE and (not _WHOLE + 1 < len(text) <= _FINE or text[19] != "."):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _parse_any_form(text: str) -> datetime:
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(_FORMAT_MESSAGE)
    day, time, fraction, offset = match.groups()
    try:
        kept = "0" if fraction is None else fraction[:_MAX_FRACTION_DIGITS]
        at = datetime.fromisoformat(f"{day}T{time}.{kept}{offset or 'Z'}").astimezone(UTC)
        if fraction is not None and fraction[_MAX_FRACTION_DIGITS:].strip("0"):
            at += _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise ValueError(_FORMAT_MESSAGE) from error
    return at


def normalize_time(at: datetime) -> str:
    """As the API shows it, rounded up: what is scheduled never comes early.

    >>> normalize_time(parse_time("2026-12-01T10:00:00.0001Z"))
    '2026-12-01T10:00:00.001Z'
    """
    beyond = at.microsecond % 1_000
    return format_time(at + timedelta(microseconds=1_000 - beyond) if beyond else at)
