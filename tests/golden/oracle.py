"""The meaning of a cron expression, computed slowly by walking and without product code.

It visits every minute (or second), reads the local time of the zone, and tests whether it matches.
"""

import calendar
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
Local = datetime


@cache
def pinned_zone(name: str) -> ZoneInfo:
    path = resources.files("tzdata.zoneinfo").joinpath(*name.split("/"))
    with path.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


class Oracle:
    """One expression: five fields, six with seconds first, or cron(…) of EventBridge."""

    def __init__(self, expression: str) -> None:
        self.aws = expression.startswith("cron(")
        parts = expression.removeprefix("cron(").removesuffix(")").split()
        self.years = _values(parts.pop(), 1970, 2199) if self.aws else None
        second = parts.pop(0) if len(parts) == 6 else "0"
        minute, hour, self.day, month, self.weekday = (part.upper() for part in parts)
        self.has_seconds = second != "0"
        self.seconds = _values(second, 0, 59)
        self.minutes = _values(minute, 0, 59)
        self.hours = _values(hour, 0, 23)
        self.months = _values(month, 1, 12, MONTHS)
        self.fixed = not minute.startswith("*") and not hour.startswith("*")
        self._days: dict[date, bool] = {}

    def matches(self, local: Local) -> bool:
        return (
            local.second in self.seconds
            and local.minute in self.minutes
            and local.hour in self.hours
            and self.matches_day(local.date())
        )

    def matches_day(self, day: date) -> bool:
        if day not in self._days:
            self._days[day] = (
                day.month in self.months
                and (self.years is None or day.year in self.years)
                and self._day_fields(day)
            )
        return self._days[day]

    def _day_fields(self, day: date) -> bool:
        by_day = any(_day_item(item, day) for item in self.day.split(","))
        by_weekday = any(_weekday_item(item, day, self.aws) for item in self.weekday.split(","))
        if self.day[0] in "*?" or self.weekday[0] in "*?":
            return by_day and by_weekday
        return by_day or by_weekday


def firings(
    oracle: Oracle,
    zone: str,
    start: datetime,
    end: datetime,
    gap: str = "NEXT",
    fold: str = "FIRST",
) -> list[datetime]:
    """Return every instant from `start` to before `end` at which the expression fires."""
    step = timedelta(seconds=1 if oracle.has_seconds else 60)
    clock = walk(zone, start, end, step)
    if not oracle.fixed:
        return [instant for instant, local in clock if oracle.matches(local)]
    return fixed_firings(oracle, clock, step, gap, fold)


def walk(
    zone: str, start: datetime, end: datetime, step: timedelta
) -> list[tuple[datetime, Local]]:
    """Return each instant with its local time."""
    info = pinned_zone(zone)
    readings = []
    while start < end:
        readings.append((start, start.astimezone(info).replace(tzinfo=None, fold=0)))
        start += step
    return readings


def fixed_firings(
    oracle: Oracle, clock: list[tuple[datetime, Local]], step: timedelta, gap: str, fold: str
) -> list[datetime]:
    """Return the times of an expression with fixed hours. `fold` selects repeated local times."""
    fired: set[datetime] = set()
    instants: dict[Local, list[datetime]] = {}
    for index, (instant, local) in enumerate(clock):
        if oracle.matches(local):
            instants.setdefault(local, []).append(instant)
        if index:
            fired.update(_jumped(oracle, clock[index - 1], (instant, local), step, gap))
    choose: Callable[[list[datetime]], list[datetime]] = {
        "FIRST": lambda copies: copies[:1],
        "SECOND": lambda copies: copies[-1:],
        "BOTH": lambda copies: copies,
    }[fold]
    for copies in instants.values():
        fired.update(choose(copies))
    return sorted(at for at in fired if clock[0][0] <= at <= clock[-1][0])


def _jumped(
    oracle: Oracle,
    before: tuple[datetime, Local],
    after: tuple[datetime, Local],
    step: timedelta,
    gap: str,
) -> Iterator[datetime]:
    missing = before[1] + step
    while missing < after[1]:
        if oracle.matches(missing):
            if gap == "NEXT":
                yield after[0]
            elif gap == "SHIFT":
                yield before[0] + (missing - before[1])
        missing += step


def _values(text: str, low: int, high: int, names: list[str] | None = None) -> set[int]:
    values_found: set[int] = set()
    for item in text.split(","):
        span, slash, step = item.partition("/")
        if span == "*":
            values = list(range(low, high + 1))
        elif "-" in span:
            first, last = (_value(end, low, names) for end in span.split("-"))
            values = _around(first, last, low, high)
        else:
            first = _value(span, low, names)
            values = list(range(first, high + 1)) if slash else [first]
        values_found.update(values[:: int(step or 1)])
    return values_found


def _around(first: int, last: int, low: int, high: int) -> list[int]:
    values = [first]
    while values[-1] != last:
        values.append(values[-1] + 1 if values[-1] < high else low)
    return values


def _value(text: str, low: int, names: list[str] | None) -> int:
    return names.index(text) + low if names and text in names else int(text)


def _day_item(item: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if item == "?":
        return True
    if item == "LW":
        return day.day == max(_workdays(day, last))
    if item == "L":
        return day.day == last
    if item.startswith("L-"):
        return last - day.day == int(item[2:])
    if item.endswith("W"):
        target = int(item[:-1])
        nearest = min(_workdays(day, last), key=lambda other: abs(other - target))
        return target <= last and day.day == nearest
    return day.day in _values(item, 1, 31)


def _workdays(day: date, last: int) -> list[int]:
    return [n for n in range(1, last + 1) if day.replace(day=n).weekday() < 5]


def _weekday_item(item: str, day: date, aws: bool) -> bool:
    sunday_is_0 = day.isoweekday() % 7
    shift = 1 if aws else 0
    if item == "?":
        return True
    if aws and item == "L":
        return sunday_is_0 == 6
    if "#" in item:
        number, count = item.split("#")
        in_month = -(-day.day // 7)
        return _weekday(number, shift) == sunday_is_0 and in_month == int(count)
    if item.endswith("L"):
        is_last = (day + timedelta(days=7)).month != day.month
        return is_last and _weekday(item[:-1], shift) == sunday_is_0
    return sunday_is_0 in _weekdays(item, shift)


def _weekday(text: str, shift: int) -> int:
    return WEEKDAYS.index(text) if text in WEEKDAYS else (int(text) - shift) % 7


def _weekdays(item: str, shift: int) -> set[int]:
    span, _, step = item.partition("/")
    first, dash, last = span.partition("-")
    if dash and _value(first, shift, WEEKDAYS) > _value(last, shift, WEEKDAYS):
        days = _around(_weekday(first, shift), _weekday(last, shift), 0, 6)
        return set(days[:: int(step or 1)])
    return {(n - shift) % 7 for n in _values(item, shift, 7, WEEKDAYS)}


def utc(*parts: int) -> datetime:
    year, month, day, *time_parts = parts
    return datetime(year, month, day, tzinfo=UTC) + timedelta(
        **dict(zip(("hours", "minutes", "seconds"), time_parts, strict=False))
    )
