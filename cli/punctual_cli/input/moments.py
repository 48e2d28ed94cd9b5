"""Parse and format times in the user's zone, with their distance from now."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

_DURATION_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_DURATION = re.compile(r"(?:\d+[smhdw])+")
_PART = re.compile(r"(\d+)([smhdw])")
_DATE_FORM = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_TIMESTAMP_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?"
)
_DAY_WORDS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_SHOWN_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_LONG_AGO = timedelta(days=60)

FORMS = "2026-12-01T10:00:00Z, '2026-12-01 10:00', 10:00, tomorrow, -2h or +30m"


def duration(text: str) -> timedelta:
    """Return the duration that a text means. A bare number counts seconds.

    >>> duration("1h30m"), duration("90")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=90))
    """
    if text.isdecimal():
        text += "s"
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration: write 90, 30s, 5m, 1h30m, 2d or 1w")
    try:
        parts = (int(number) * _DURATION_UNITS[unit] for number, unit in _PART.findall(text))
        return sum(parts, timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is longer than there is time") from None


def moment(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the time that a text means, in UTC.

    A time without an offset is in `zone`. None stands for the zone of this machine.

    >>> moment("2026-12-01 10:00", datetime(2026, 11, 1, tzinfo=UTC), UTC).isoformat()
    '2026-12-01T10:00:00+00:00'
    """
    at = local_or_utc(text, now, zone)
    try:
        return at if at.tzinfo else _local(at, zone)
    except (ValueError, OverflowError):
        raise _no_time(text) from None


def local_or_utc(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the time that a text means, in UTC, or without a zone if the text names none.

    >>> local_or_utc("09:30", datetime(2026, 11, 1, tzinfo=UTC), UTC).isoformat()
    '2026-11-01T09:30:00'
    """
    text = text.strip()
    word = text.lower()
    local = now.astimezone(zone)
    try:
        if word == "now":
            return now
        if word in _DAY_WORDS:
            return datetime.combine(local.date() + timedelta(days=_DAY_WORDS[word]), time())
        if text[:1] in ("+", "-") and len(text) > 1:
            distance = duration(text[1:])
            return now + distance if text[0] == "+" else now - distance
        if _TIME.fullmatch(text):
            hour, minute, second = (int(part or 0) for part in _TIME.fullmatch(text).groups())  # type: ignore[union-attr]
            return datetime.combine(local.date(), time(hour, minute, second))
        if _DATE_FORM.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time())
        if _TIMESTAMP_FORM.fullmatch(text):
            at = datetime.fromisoformat(text.upper())
            return at.astimezone(UTC) if at.tzinfo else at
    except (ValueError, OverflowError):
        pass
    raise _no_time(text)


def _no_time(text: str) -> ValueError:
    return ValueError(f"{text.strip()!r} is no time: write {FORMS}")


def _local(at: datetime, zone: tzinfo | None) -> datetime:
    return (at.astimezone() if zone is None else at.replace(tzinfo=zone)).astimezone(UTC)


def wire(at: datetime) -> str:
    """Return a time as the API takes it.

    >>> wire(datetime(2026, 12, 1, 10, tzinfo=UTC))
    '2026-12-01T10:00:00.000Z'
    """
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def far(distance: timedelta) -> str:
    """Return a distance in its largest unit, and in two units below ten.

    >>> far(timedelta(seconds=272)), far(timedelta(hours=30)), far(timedelta(days=12.9))
    ('4 min 32 s', '1 d 6 h', '12 d')
    """
    seconds = abs(distance) / timedelta(seconds=1)
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms" if seconds else "0 s"
    rest = int(seconds)
    for index, (size, unit) in enumerate(_SHOWN_UNITS):
        number, beyond = divmod(rest, size)
        if number:
            lesser = _SHOWN_UNITS[index + 1] if index + 1 < len(_SHOWN_UNITS) else None
            if lesser is None or number >= 10 or beyond < lesser[0]:
                return f"{number} {unit}"
            return f"{number} {unit} {beyond // lesser[0]} {lesser[1]}"
    raise AssertionError(seconds)


def lasted(distance: timedelta) -> str:
    """Return a duration as text. Durations under 10 s have one decimal.

    >>> lasted(timedelta(seconds=1.27)), lasted(timedelta(milliseconds=84))
    ('1.3 s', '84 ms')
    """
    seconds = abs(distance) / timedelta(seconds=1)
    return f"{seconds:.1f} s" if 1 <= seconds < 10 else far(distance)


def hint(at: datetime, now: datetime) -> str:
    """Return the distance of a time from now as text.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> hint(noon, noon - timedelta(minutes=5)), hint(noon, noon + timedelta(hours=2, minutes=7))
    ('in 5 min', '2 h ago')
    """
    distance = at - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    text = _largest(distance)
    return f"in {text}" if distance > timedelta() else f"{text} ago"


def _largest(distance: timedelta) -> str:
    seconds = int(abs(distance) / timedelta(seconds=1))
    for size, unit in _SHOWN_UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"


def short(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Return a time in its shortest form, for a table.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> short(noon, noon - timedelta(minutes=5), UTC)
    '12:00 (in 5 min)'
    >>> short(noon, noon - timedelta(days=5), UTC), short(noon, noon - timedelta(days=400), UTC)
    ('Dec 1 12:00 (in 5 d)', '2026-12-01 12:00')
    """
    local, today = at.astimezone(zone), now.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    if local.date() == today.date():
        return f"{clock} ({hint(at, now)})"
    if abs(at - now) > _LONG_AGO:
        return f"{local:%Y-%m-%d %H:%M}"
    return f"{local:%b} {local.day} {local:%H:%M} ({hint(at, now)})"


def long(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Return a time in full, with its zone and its distance from now.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> long(noon, noon - timedelta(minutes=5), UTC)
    '2026-12-01 12:00:00 UTC (in 5 min)'
    """
    local = at.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {_offset(local)} ({hint(at, now)})"


def _offset(local: datetime) -> str:
    name = local.tzname() or ""
    return name if name.isalpha() else f"{local:%z}"
