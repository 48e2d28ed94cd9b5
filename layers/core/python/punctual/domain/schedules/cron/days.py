"""The days of a month that a cron expression means.

A month has one of 28 shapes: its first weekday and its length. An expression means the same days
in all months of one shape, so the days are computed once for each shape.
"""

import re
from typing import NamedTuple

from punctual.domain.schedules.cron.fields import DAY, Field, number, numbers

SHAPES = tuple((first, length) for first in range(7) for length in range(28, 32))
_ALL_WEEKDAYS = 0b1111111
# The 1st, 8th, 15th, 22nd and 29th.
_EACH_WEEK = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29
_LAST = re.compile(r"L(?:-(\d+))?\Z")
_NEAREST = re.compile(r"(\d+)W\Z")


class MonthDays(NamedTuple):
    """The day-of-month field."""

    is_set: bool
    days: int
    from_last: tuple[int, ...]
    nearest: tuple[int, ...]
    last_workday: bool


class WeekDays(NamedTuple):
    """The day-of-week field. 0 is Sunday."""

    is_set: bool
    days: int
    last: int
    nth: tuple[tuple[int, int], ...]


def month_days(text: str) -> MonthDays:
    if text == "?":
        text = "*"
    from_last, nearest, plain = [], [], []
    last_workday = False
    for item in text.upper().split(","):
        if item == "LW":
            last_workday = True
        elif match := _LAST.match(item):
            from_last.append(_days_before_last(match[1] or "0"))
        elif match := _NEAREST.match(item):
            nearest.append(number(match[1], DAY))
        else:
            plain.append(_known_month_day(item))
    days = numbers(",".join(plain), DAY) if plain else 0
    return MonthDays(text[:1] != "*", days, tuple(from_last), tuple(nearest), last_workday)


def week_days(text: str, field: Field) -> WeekDays:
    if text == "?":
        text = "*"
    plain, nth, last = [], [], 0
    for item in text.upper().split(","):
        day, hash_, count = item.partition("#")
        if hash_:
            nth.append((_weekday(day, field), _count(count, item)))
        elif item == "L" and field.low == 1:
            plain.append("7")
        elif item[:1] == "L":
            raise ValueError(
                f"{item} in the day-of-week field is not understood: "
                f"write 5L (or FRIL) for the last Friday of the month, 6 for every Saturday"
            )
        elif item[-1:] == "L":
            last |= 1 << _weekday(item[:-1], field)
        else:
            plain.append(item)
    bits = numbers(",".join(plain), field) if plain else 0
    return WeekDays(text[:1] != "*", _from_sunday(bits, field), last, tuple(nth))


def shapes(month: MonthDays, week: WeekDays) -> tuple[int, ...]:
    """Return the days of each shape of month, in the order of SHAPES. Bit 1 is the first day."""
    return tuple(_days(month, week, first, length) for first, length in SHAPES)


def _days(month: MonthDays, week: WeekDays, first: int, length: int) -> int:
    by_date = _by_date(month, first, length)
    by_weekday = _by_weekday(week, first, length)
    either = month.is_set and week.is_set
    return by_date | by_weekday if either else by_date & by_weekday


def _by_date(month: MonthDays, first: int, length: int) -> int:
    days = month.days & (2 << length) - 1
    for before in month.from_last:
        if before < length:
            days |= 1 << length - before
    for day in month.nearest:
        if day <= length:
            days |= 1 << _nearest_workday(day, first, length)
    if month.last_workday:
        days |= 1 << _nearest_workday(length, first, length)
    return days


def _by_weekday(week: WeekDays, first: int, length: int) -> int:
    all_days = (2 << length) - 2
    if week.days == _ALL_WEEKDAYS:
        return all_days
    days = 0
    for weekday in range(7):
        same = _EACH_WEEK << (weekday - first) % 7 & all_days
        if week.days >> weekday & 1:
            days |= same
        if week.last >> weekday & 1:
            days |= 1 << same.bit_length() - 1
    for weekday, count in week.nth:
        days |= 1 << (weekday - first) % 7 + 7 * count - 6 & all_days
    return days


def _nearest_workday(day: int, first: int, length: int) -> int:
    weekday = (first + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _known_month_day(item: str) -> str:
    if "W" in item or item[:1] == "L":
        raise ValueError(
            f"{item} in the day-of-month field is not understood: write L for the last day, "
            f"L-3 for three days before it, LW for the last weekday, "
            f"15W for the weekday nearest the 15th"
        )
    return item


def _days_before_last(text: str) -> int:
    days = int(text)
    if days > 30:
        raise ValueError(f"L-{text[:20]} is out of range in the day-of-month field: L-0 to L-30")
    return days


def _weekday(text: str, field: Field) -> int:
    return (number(text, field) - field.low) % 7


def _count(text: str, item: str) -> int:
    if text not in ("1", "2", "3", "4", "5"):
        raise ValueError(
            f"{item} in the day-of-week field is not understood: "
            f"after # comes 1 to 5, as in FRI#2 for the second Friday of the month"
        )
    return int(text)


def _from_sunday(bits: int, field: Field) -> int:
    return bits >> field.low
