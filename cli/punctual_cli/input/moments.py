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
_DURATION_FORM = re.compile(r"(?:\d+[smhdw])+")
_DURATION_PART_FORM = re.compile(r"(\d+)([smhdw])")
_DATE_FORM = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK_TIME_FORM = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?")
_TIMESTAMP_FORM = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:[Zz]|[+-]\d\d:\d\d)?"
)
_DAY_WORDS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_SHOWN_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_MAX_HINT_DISTANCE = timedelta(days=60)

TIME_FORMS = "2026-12-01T10:00:00Z, '2026-12-01 10:00', 10:00, tomorrow, -2h or +30m"


def parse_duration(text: str) -> timedelta:
    """Return the duration that a text means. A bare number counts seconds.

    >>> parse_duration("1h30m"), parse_duration("90")
    (datetime.timedelta(seconds=5400), datetime.timedelta(seconds=90))
    """
    if text.isdecimal():
        text += "s"
    if not _DURATION_FORM.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; use 90, 30s, 5m, 1h30m, 2d or 1w")
    try:
        parts = (
            int(number) * _DURATION_UNITS[unit]
            for number, unit in _DURATION_PART_FORM.findall(text)
        )
        return sum(parts, timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is too long") from None


def parse_time(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the time that a text means, in UTC.

    A time without an offset is in `zone`. None stands for the zone of this machine.

    >>> parse_time("2026-12-01 10:00", datetime(2026, 11, 1, tzinfo=UTC), UTC).isoformat()
    '2026-12-01T10:00:00+00:00'
    """
    at = parse_local_or_utc(text, now, zone)
    try:
        return at if at.tzinfo else _local_to_utc(at, zone)
    except (ValueError, OverflowError):
        raise _time_error(text) from None


def parse_local_or_utc(text: str, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the time that a text means, in UTC, or without a zone if the text names none.

    >>> parse_local_or_utc("09:30", datetime(2026, 11, 1, tzinfo=UTC), UTC).isoformat()
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
            distance = parse_duration(text[1:])
            return now + distance if text[0] == "+" else now - distance
        if clock_time := _CLOCK_TIME_FORM.fullmatch(text):
            hour, minute, second = (int(part or 0) for part in clock_time.groups())
            return datetime.combine(local.date(), time(hour, minute, second))
        if _DATE_FORM.fullmatch(text):
            return datetime.combine(date.fromisoformat(text), time())
        if _TIMESTAMP_FORM.fullmatch(text):
            at = datetime.fromisoformat(text.upper())
            return at.astimezone(UTC) if at.tzinfo else at
    except (ValueError, OverflowError):
        pass
    raise _time_error(text)


def _time_error(text: str) -> ValueError:
    return ValueError(f"{text.strip()!r} is not a time; use {TIME_FORMS}")


def _local_to_utc(at: datetime, zone: tzinfo | None) -> datetime:
    return (at.astimezone() if zone is None else at.replace(tzinfo=zone)).astimezone(UTC)


def format_rfc3339(at: datetime) -> str:
    """Return a time as the API takes it.

    >>> format_rfc3339(datetime(2026, 12, 1, 10, tzinfo=UTC))
    '2026-12-01T10:00:00.000Z'
    """
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def format_distance(distance: timedelta) -> str:
    """Return a distance in its largest unit, and in two units below ten.

    >>> format_distance(timedelta(seconds=272)), format_distance(timedelta(hours=30))
    ('4 min 32 s', '1 d 6 h')
    >>> format_distance(timedelta(days=12.9))
    '12 d'
    """
    seconds = abs(distance) / timedelta(seconds=1)
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms" if seconds else "0 s"
    remaining_seconds = int(seconds)
    for index, (size, unit) in enumerate(_SHOWN_UNITS):
        number, remainder = divmod(remaining_seconds, size)
        if number:
            smaller_unit = _SHOWN_UNITS[index + 1] if index + 1 < len(_SHOWN_UNITS) else None
            if smaller_unit is None or number >= 10 or remainder < smaller_unit[0]:
                return f"{number} {unit}"
            return f"{number} {unit} {remainder // smaller_unit[0]} {smaller_unit[1]}"
    raise AssertionError(seconds)


def format_duration(distance: timedelta) -> str:
    """Return a duration as text. Durations under 10 s have one decimal.

    >>> format_duration(timedelta(seconds=1.27)), format_duration(timedelta(milliseconds=84))
    ('1.3 s', '84 ms')
    """
    seconds = abs(distance) / timedelta(seconds=1)
    return f"{seconds:.1f} s" if 1 <= seconds < 10 else format_distance(distance)


def format_relative(at: datetime, now: datetime) -> str:
    """Return the distance of a time from now as text.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> format_relative(noon, noon - timedelta(minutes=5))
    'in 5 min'
    >>> format_relative(noon, noon + timedelta(hours=2, minutes=7))
    '2 h ago'
    """
    distance = at - now
    if abs(distance) < timedelta(seconds=1):
        return "now"
    text = _format_largest_unit(distance)
    return f"in {text}" if distance > timedelta() else f"{text} ago"


def _format_largest_unit(distance: timedelta) -> str:
    seconds = int(abs(distance) / timedelta(seconds=1))
    for size, unit in _SHOWN_UNITS:
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return "0 s"


def format_short(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Return a time in its shortest form, for a table.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> format_short(noon, noon - timedelta(minutes=5), UTC)
    '12:00 (in 5 min)'
    >>> format_short(noon, noon - timedelta(days=5), UTC)
    'Dec 1 12:00 (in 5 d)'
    >>> format_short(noon, noon - timedelta(days=400), UTC)
    '2026-12-01 12:00'
    """
    local, today = at.astimezone(zone), now.astimezone(zone)
    clock_text = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    if local.date() == today.date():
        return f"{clock_text} ({format_relative(at, now)})"
    if abs(at - now) > _MAX_HINT_DISTANCE:
        return f"{local:%Y-%m-%d %H:%M}"
    return f"{local:%b} {local.day} {local:%H:%M} ({format_relative(at, now)})"


def format_long(at: datetime, now: datetime, zone: tzinfo | None) -> str:
    """Return a time in full, with its zone and its distance from now.

    >>> noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    >>> format_long(noon, noon - timedelta(minutes=5), UTC)
    '2026-12-01 12:00:00 UTC (in 5 min)'
    """
    local = at.astimezone(zone)
    return f"{local:%Y-%m-%d %H:%M:%S} {_zone_text(local)} ({format_relative(at, now)})"


def _zone_text(local: datetime) -> str:
    zone_name = local.tzname() or ""
    return zone_name if zone_name.isalpha() else f"{local:%z}"
