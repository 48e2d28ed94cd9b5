"""The days of a month that a cron expression means.

A month has one of 28 shapes: its first weekday and its length. An expression means the same days
in all months of one shape, so the days are computed once for each shape.
"""

import re
from typing import NamedTuple

from punctual.domain.schedules.cron.fields import DAY_OF_MONTH_FIELD, Field, number, numbers

MONTH_SHAPES = tuple((first, length) for first in range(7) for length in range(28, 32))
_ALL_WEEKDAYS = 0b1111111
# The 1st, 8th, 15th, 22nd and 29th.
_WEEKLY_DAYS = 1 << 1 | 1 << 8 | 1 << 15 | 1 << 22 | 1 << 29
_LAST_DAY_PATTERN = re.compile(r"L(?:-(\d+))?\Z")
_NEAREST_WEEKDAY_PATTERN = re.compile(r"(\d+)W\Z")


class MonthDays(NamedTuple):
    """The day-of-month field."""

    is_set: bool
    days: int
    before_last: tuple[int, ...]
    nearest: tuple[int, ...]
    last_workday: bool


class WeekDays(NamedTuple):
    """The day-of-week field. 0 is Sunday."""

    is_set: bool
    days: int
    last_weekdays: int
    nth_weekdays: tuple[tuple[int, int], ...]


def month_days(text: str) -> MonthDays:
    if text == "?":
        text = "*"
    before_last, nearest, plain_items = [], [], []
    last_workday = False
    for item in text.upper().split(","):
        if item == "LW":
            last_workday = True
        elif match := _LAST_DAY_PATTERN.match(item):
            before_last.append(_days_before_last(match[1] or "0"))
        elif match := _NEAREST_WEEKDAY_PATTERN.match(item):
            nearest.append(number(match[1], DAY_OF_MONTH_FIELD))
        else:
            plain_items.append(_check_month_day(item))
    days = numbers(",".join(plain_items), DAY_OF_MONTH_FIELD) if plain_items else 0
    return MonthDays(text[:1] != "*", days, tuple(before_last), tuple(nearest), last_workday)


def week_days(text: str, field: Field) -> WeekDays:
    if text == "?":
        text = "*"
    plain_items, nth_weekdays, last_weekdays = [], [], 0
    for item in text.upper().split(","):
        day, separator, ordinal = item.partition("#")
        if separator:
            nth_weekdays.append((_weekday(day, field), _count(ordinal, item)))
        elif item == "L" and field.low == 1:
            plain_items.append("7")
        elif item[:1] == "L":
            raise ValueError(
                f"{item} in the day-of-week field is not understood: "
                f"write 5L (or FRIL) for the last Friday of the month, 6 for every Saturday"
            )
        elif item[-1:] == "L":
            last_weekdays |= 1 << _weekday(item[:-1], field)
        else:
            plain_items.append(item)
    bits = numbers(",".join(plain_items), field) if plain_items else 0
    return WeekDays(text[:1] != "*", _from_sunday(bits, field), last_weekdays, tuple(nth_weekdays))


def days_by_shape(month: MonthDays, week: WeekDays) -> tuple[int, ...]:
    """Return the days of each shape of month, in the order of `MONTH_SHAPES`.

    Bit 1 stands for the first day.
    """
    return tuple(
        _days(month, week, first_weekday, length) for first_weekday, length in MONTH_SHAPES
    )


def _days(month: MonthDays, week: WeekDays, first_weekday: int, length: int) -> int:
    by_date = _by_date(month, first_weekday, length)
    by_weekday = _by_weekday(week, first_weekday, length)
    is_either_enough = month.is_set and week.is_set
    return by_date | by_weekday if is_either_enough else by_date & by_weekday


def _by_date(month: MonthDays, first_weekday: int, length: int) -> int:
    days = month.days & (2 << length) - 1
    for days_before in month.before_last:
        if days_before < length:
            days |= 1 << length - days_before
    for day in month.nearest:
        if day <= length:
            days |= 1 << _nearest_workday(day, first_weekday, length)
    if month.last_workday:
        days |= 1 << _nearest_workday(length, first_weekday, length)
    return days


def _by_weekday(week: WeekDays, first_weekday: int, length: int) -> int:
    all_days = (2 << length) - 2
    if week.days == _ALL_WEEKDAYS:
        return all_days
    days = 0
    for weekday in range(7):
        same_weekday_days = _WEEKLY_DAYS << (weekday - first_weekday) % 7 & all_days
        if week.days >> weekday & 1:
            days |= same_weekday_days
        if week.last_weekdays >> weekday & 1:
            days |= 1 << same_weekday_days.bit_length() - 1
    for weekday, ordinal in week.nth_weekdays:
        days |= 1 << (weekday - first_weekday) % 7 + 7 * ordinal - 6 & all_days
    return days


def _nearest_workday(day: int, first_weekday: int, length: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == 6:
        return day - 1 if day > 1 else day + 2
    if weekday == 0:
        return day + 1 if day < length else day - 2
    return day


def _check_month_day(item: str) -> str:
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
