"""Parse a schedule's description as a person reads it, independent of the code that wrote it.

"Every 45 minutes" means that 45 minutes lie between any two times, also across the hour.
"""

import calendar
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property

DAY = 86_400
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
COUNTS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "last": -1}
HOURS = tuple(f"{hour:02}" for hour in range(24))
LENGTHS = {"second": 1, "minute": 60, "hour": 3_600}
_NUMBERS = r"\d+(?: to \d+)?(?:(?:, | and )\d+(?: to \d+)?)*"
_CLOCK = r"\d\d:\d\d(?::\d\d)?"
_SPAN = rf"from {_CLOCK} to {_CLOCK}"
_AND = r"(?:, | and )"
_TIMES = (
    ("at", re.compile(rf"at ({_CLOCK}(?:{_AND}{_CLOCK})*)")),
    (
        "every",
        re.compile(
            r"every (?:(\d+) )?(second|minute|hour)s?"
            r"(?: from (?:second|minute) (\d+))?(?:, from (\d\d):00(?! to))?"
        ),
    ),
    ("hour", re.compile("on the hour")),
    ("past", re.compile(r"(\d+) minutes? past the hour")),
    ("minutes", re.compile(rf"at minutes ({_NUMBERS}) past the hour")),
    ("seconds", re.compile(rf"at seconds? ({_NUMBERS}) of the minute")),
    ("in minutes", re.compile(rf"in minutes? ({_NUMBERS}) of the hour")),
    ("spans", re.compile(rf"({_SPAN}(?:{_AND}{_SPAN})*)")),
    ("in hours", re.compile(rf"in the hours ({_NUMBERS})")),
)
_WEEKDAY = "|".join(WEEKDAYS)
_DATES = (
    ("nearest", re.compile(r"the weekday nearest day (\d+) of the month")),
    ("days", re.compile(rf"days? ({_NUMBERS}) of the month")),
    ("before last", re.compile(r"the last day of the month(?: minus (\d+) days?)?")),
    ("last workday", re.compile(r"the last weekday of the month")),
    ("nth", re.compile(rf"the ({'|'.join(COUNTS)}) ({_WEEKDAY}) of the month")),
    ("weekdays", re.compile(rf"({_WEEKDAY})(?: to ({_WEEKDAY}))?")),
)
_MONTH = "|".join(calendar.month_name[1:])
_SOME_MONTHS = rf"(?:{_MONTH})(?: to (?:{_MONTH}))?"
_MONTHS = re.compile(rf"in ({_SOME_MONTHS}(?:{_AND}{_SOME_MONTHS})*)(?:, in |$)")
_YEARS = re.compile(r"in (\d{4}.*)$")

Dates = Callable[[date], bool]
Times = Callable[[int], bool]  # of seconds since 1970


@dataclass
class Reading:
    """A parsed description. `minute` and `second` are tests of one time.

    `ends` are the ends of ranges, as minutes of a day. Without a test of the second, it is the
    first one.
    """

    day: Dates = lambda _: True
    minute: list[Times] = field(default_factory=list)
    second: list[Times] = field(default_factory=list)
    rhythms: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)

    def times(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """Yield each time after `after`, up to and including `until`, that the text names."""
        start, end = int(after.timestamp()) + 1, int(until.timestamp())
        is_daily = all(DAY % rhythm == 0 for rhythm in self.rhythms)
        for day in range(start // DAY, end // DAY + 1):
            today, before = (self.day(_date_of(day - back)) for back in (0, 1))
            if not today and not before:
                continue
            for minute in self.minutes if is_daily else self.minutes_of(day):
                if not (before if self.is_of_yesterday(minute) else today):
                    continue
                at = day * DAY + minute * 60
                for second in range(at, at + 60) if self.second else (at,):
                    if start <= second <= end and all(holds(second) for holds in self.second):
                        yield datetime.fromtimestamp(second, UTC)

    def is_of_yesterday(self, minute: int) -> bool:
        """Return True if the minute ends a range that began on the day before."""
        return any(low > high >= minute for low, high in self.ends)

    @cached_property
    def minutes(self) -> list[int]:
        return self.minutes_of(0)

    def minutes_of(self, day: int) -> list[int]:
        return [
            minute
            for minute in range(1_440)
            if all(holds(day * DAY + minute * 60) for holds in self.minute)
        ]


def _date_of(day: int) -> date:
    return date.fromordinal(date(1970, 1, 1).toordinal() + day)


def read(text: str) -> Reading:
    """Parse a description of a cron expression in UTC, or raise ValueError for an unknown part."""
    body, ending, rest = text.rpartition(", in UTC")
    if not ending or rest:
        raise ValueError(f"no zone: {text}")
    reading = Reading()
    date_position = _read_times(body[0].lower() + body[1:], reading)
    reading.day = _read_dates(body[date_position:].removeprefix(", "))
    return reading


def _read_times(text: str, reading: Reading) -> int:
    """Parse the parts with the time of day, and return the position of the date."""
    part = _part(text, 0)
    if part is None:
        raise ValueError(f"no time: {text}")
    first = True
    while part is not None:
        kind, match = part
        _take(kind, match, first, reading)
        first = False
        part = _part(text, match.end() + 2) if text.startswith(", ", match.end()) else None
    return match.end()


def _part(text: str, position: int) -> tuple[str, re.Match[str]] | None:
    for kind, pattern in _TIMES:
        if match := pattern.match(text, position):
            return kind, match
    return None


def _take(kind: str, match: re.Match[str], first: bool, reading: Reading) -> None:
    if kind == "every":
        _take_rhythm(match, first, reading)
        return
    if kind == "seconds":
        seconds = _numbers(match[1])
        reading.second.append(lambda t: t % 60 in seconds)
        return
    if kind == "at":
        clocks = {_seconds(clock_text) for clock_text in re.findall(_CLOCK, match[1])}
        reading.minute.append(lambda t: any(t % DAY <= clock < t % DAY + 60 for clock in clocks))
        if any(clock % 60 for clock in clocks):
            reading.second.append(lambda t: t % DAY in clocks)
        return
    if kind in ("past", "minutes", "hour") and not first:
        raise ValueError(f"follows a finer part: {match[0]}")
    reading.minute.append(_restriction(kind, match, reading))


def _take_rhythm(match: re.Match[str], first: bool, reading: Reading) -> None:
    unit_seconds = LENGTHS[match[2]]
    rhythm = int(match[1] or 1) * unit_seconds
    start = int(match[3] or 0) * unit_seconds + int(match[4] or 0) * 3_600
    reading.rhythms.append(rhythm)
    if unit_seconds == 1:
        reading.second.append(lambda t: (t - start) % rhythm == 0)
        return
    reading.minute.append(lambda t: (t - start) // unit_seconds * unit_seconds % rhythm == 0)
    if first:  # nothing finer follows, so it is the start of the hour
        reading.minute.append(lambda t: t % unit_seconds < 60)


def _restriction(kind: str, match: re.Match[str], reading: Reading) -> Times:
    if kind == "hour":
        return lambda t: t // 60 % 60 == 0
    if kind in ("past", "minutes", "in minutes"):
        minutes = _numbers(match[1])
        return lambda t: t // 60 % 60 in minutes
    if kind == "in hours":
        hours = _around(match[1], HOURS)
        return lambda t: t // 3_600 % 24 in hours
    clocks = [_seconds(clock_text) // 60 for clock_text in re.findall(_CLOCK, match[1])]
    spans = list(zip(clocks[::2], clocks[1::2], strict=True))
    reading.ends.extend(spans)
    return lambda t: any(_within(t % DAY // 60, *span) for span in spans)


def _within(minute: int, low: int, high: int) -> bool:
    return low <= minute <= high if low <= high else minute >= low or minute <= high


def _seconds(clock: str) -> int:
    hour, minute, *second = map(int, clock.split(":"))
    return hour * 3_600 + minute * 60 + (second[0] if second else 0)


def _numbers(text: str) -> set[int]:
    numbers: set[int] = set()
    for item in re.split(r", | and ", text):
        low, _, high = item.partition(" to ")
        numbers |= set(range(int(low), int(high or low) + 1))
    return numbers


def _read_dates(text: str) -> Dates:
    holds: list[Dates] = []
    if match := _YEARS.search(text):
        years = _numbers(match[1])
        holds.append(lambda day: day.year in years)
        text = text[: match.start()].removesuffix(", ")
    if match := _MONTHS.search(text):
        months = _around(match[1], tuple(calendar.month_name[1:]))
        holds.append(lambda day: day.month - 1 in months)
        text = text[: match.start()].removesuffix(", ")
    for side in text.split(" if it is ") if text else []:
        holds.append(_read_days(side))
    return lambda day: all(hold(day) for hold in holds)


def _around(text: str, names: tuple[str, ...]) -> set[int]:
    """Return the indexes of names and of their ranges, which may wrap around."""
    indexes: set[int] = set()
    for item in re.split(r", | and | or ", text):
        low, _, high = item.partition(" to ")
        first, last = names.index(low), names.index(high or low)
        indexes |= {n % len(names) for n in range(first, first + (last - first) % len(names) + 1)}
    return indexes


def _read_days(text: str) -> Dates:
    """Return a test that accepts any day the text names. Every word must be known."""
    holds: list[Dates] = []
    for kind, pattern in _DATES:
        holds.extend(_day(kind, match) for match in pattern.finditer(text))
        text = pattern.sub("", text)
    if not holds or re.sub(r"\b(on|and|or)\b|[, ]", "", text):
        raise ValueError(f"not understood: {text}")
    return lambda day: any(hold(day) for hold in holds)


def _day(kind: str, match: re.Match[str]) -> Dates:
    if kind == "days":
        numbers = _numbers(match[1])
        return lambda day: day.day in numbers
    if kind == "nearest":
        return lambda day: day.day == _nearest(day, int(match[1]))
    if kind == "before last":
        return lambda day: day.day == _length(day) - int(match[1] or 0)
    if kind == "last workday":
        return lambda day: day.day == _nearest(day, _length(day))
    if kind == "nth":
        count, weekday = COUNTS[match[1]], WEEKDAYS.index(match[2])
        return lambda day: day.weekday() == weekday and count in _which(day)
    weekdays = _around(match[0], WEEKDAYS)
    return lambda day: day.weekday() in weekdays


def _length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def _nearest(day: date, wanted: int) -> int:
    """Return the workday of the month nearest a day, or 0 if the month lacks that day."""
    if wanted > _length(day):
        return 0
    workdays = [n for n in range(1, _length(day) + 1) if day.replace(day=n).weekday() < 5]
    return min(workdays, key=lambda n: abs(n - wanted))


def _which(day: date) -> set[int]:
    is_last = (day + timedelta(days=7)).month != day.month
    return {(day.day + 6) // 7} | ({-1} if is_last else set())
