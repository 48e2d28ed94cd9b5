"""The meaning of a cron expression in local time, without regard to clock changes."""

import re
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache

from punctual.domain.schedules.cron import fields
from punctual.domain.schedules.cron.days import (
    MonthDays,
    WeekDays,
    days_by_shape,
    month_days,
    week_days,
)

MAX_CRON_CHARACTERS = 256
LAST_SCHEDULED_YEAR = 2199
SECONDS_PER_DAY = 86_400
EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
# In local seconds since 1970, later than any local time before 2200.
NEVER_LOCAL_SECOND = (date(2200, 1, 10).toordinal() - EPOCH_ORDINAL) * SECONDS_PER_DAY
# A search for instants ends here, before every local time that stands for "never".
LAST_SEARCHED_SECOND = NEVER_LOCAL_SECOND - 5 * SECONDS_PER_DAY
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVENTBRIDGE_PATTERN = re.compile(r"(cron|rate|at)\((.*)\)\Z", re.IGNORECASE)
_AT_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\Z")
_RATE_UNIT_SECONDS = {"minute": 60, "hour": 3_600, "day": SECONDS_PER_DAY}


@dataclass(frozen=True, slots=True)
class Rate:
    """EventBridge's rate(…): an interval."""

    seconds: int


@dataclass(frozen=True, slots=True)
class At:
    """EventBridge's at(…): one local time, in seconds since 1970 as if it were UTC."""

    local: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """The times of a cron expression. Sets are bits of an integer, and `years` 0 is any year.

    With `is_fixed`, the expression names times of day and follows the rules for clock changes.
    Otherwise it names a rhythm. The seconds field does not matter for this. So `*/10 30 2 * * *`
    is fixed, at 02:30.
    """

    seconds: int
    minutes: int
    hours: int
    month_days: MonthDays
    months: int
    week_days: WeekDays
    years: int
    is_fixed: bool
    days_by_shape: tuple[int, ...]
    first_second_of_day: int

    def next_local(self, local: int) -> int:
        """Return the first matching local time not before `local`, or NEVER_LOCAL_SECOND."""
        day, second = divmod(local, SECONDS_PER_DAY)
        ordinal = day + EPOCH_ORDINAL
        today = date.fromordinal(ordinal)
        year, month, day_of_month = today.year, today.month, today.day
        if self.months >> month & 1 and self.has_year(year):
            days = self.days_by_shape[
                (ordinal - day_of_month + 1) % 7 * 4 + month_length(year, month) - 28
            ]
            if days >> day_of_month & 1:
                match_second = self._next_second_of_day(second)
                if match_second >= 0:
                    return local - second + match_second
            later_days = days >> day_of_month + 1
            if later_days:
                return (
                    day + (later_days & -later_days).bit_length()
                ) * SECONDS_PER_DAY + self.first_second_of_day
        return self._next_after_month(year, month)

    def _next_second_of_day(self, second_of_day: int) -> int:
        hour, second_of_hour = divmod(second_of_day, 3_600)
        if self.hours >> hour & 1:
            minute, second = divmod(second_of_hour, 60)
            if self.minutes >> minute & 1:
                later_bits = self.seconds >> second
                if later_bits:
                    return second_of_day + (later_bits & -later_bits).bit_length() - 1
            later_bits = self.minutes >> minute + 1
            if later_bits:
                minute += (later_bits & -later_bits).bit_length()
                return hour * 3_600 + minute * 60 + self.first_second_of_day % 60
        later_bits = self.hours >> hour + 1
        if later_bits:
            return (
                hour + (later_bits & -later_bits).bit_length()
            ) * 3_600 + self.first_second_of_day % 3_600
        return -1

    def _next_after_month(self, year: int, month: int) -> int:
        later_months = self.months >> month + 1 << month + 1
        while year <= LAST_SCHEDULED_YEAR:
            if self.has_year(year):
                while later_months:
                    month = (later_months & -later_months).bit_length() - 1
                    later_months &= later_months - 1
                    first_ordinal = date(year, month, 1).toordinal()
                    days = self.days_by_shape[
                        first_ordinal % 7 * 4 + month_length(year, month) - 28
                    ]
                    if days:
                        day = (days & -days).bit_length() - 2
                        return (
                            first_ordinal + day - EPOCH_ORDINAL
                        ) * SECONDS_PER_DAY + self.first_second_of_day
            year += 1
            later_months = self.months
        return NEVER_LOCAL_SECOND

    def has_year(self, year: int) -> bool:
        if self.years:
            return self.years >> year & 1 == 1
        return year <= LAST_SCHEDULED_YEAR


@lru_cache(maxsize=4_096)
def parse_cron(expression: str) -> Calendar | Rate | At:
    """Return the meaning of an expression. ValueError names its error in one sentence."""
    if len(expression) > MAX_CRON_CHARACTERS:
        raise ValueError(f"the expression is longer than {MAX_CRON_CHARACTERS} characters")
    if not expression.isascii():
        raise ValueError("the expression holds characters that are not ASCII")
    text = expression.strip()
    if match := _EVENTBRIDGE_PATTERN.match(text):
        kind, inner = match[1].lower(), match[2].strip()
        if kind == "rate":
            return _rate(inner)
        return _eventbridge(inner) if kind == "cron" else _at(inner)
    return _standard(_NICKNAMES.get(text.lower(), text))


def _standard(text: str) -> Calendar:
    if text[:1] == "@":
        raise ValueError(_nickname_error(text))
    if "=" in text:
        raise ValueError("a zone inside the expression is not understood: use the field timezone")
    parts = text.split()
    if len(parts) not in (5, 6):
        raise ValueError(_field_count_error(len(parts)))
    second, minute, hour, day, month, weekday = ["0", *parts][-6:]
    return _calendar(
        second, minute, hour, month_days(day), month, week_days(weekday, fields.WEEKDAY_FIELD)
    )


def _eventbridge(text: str) -> Calendar:
    parts = text.split()
    if len(parts) != 6:
        raise ValueError(
            f"cron(…) takes six fields (minute hour day-of-month month day-of-week year), "
            f"not {len(parts)}"
        )
    minute, hour, day, month, weekday, year = parts
    if (day == "?") == (weekday == "?"):
        raise ValueError(
            "in cron(…) exactly one of the day-of-month and day-of-week fields must be ?"
        )
    if "#" in weekday and "," in weekday:
        raise ValueError("in cron(…) a day-of-week field with # holds nothing else")
    return _calendar(
        "0",
        minute,
        hour,
        month_days(day),
        month,
        week_days(weekday, fields.EVENTBRIDGE_WEEKDAY_FIELD),
        year,
    )


def _calendar(
    second: str,
    minute: str,
    hour: str,
    month_days: MonthDays,
    month: str,
    week_days: WeekDays,
    year: str | None = None,
) -> Calendar:
    seconds = fields.numbers(second, fields.SECOND_FIELD)
    minutes = fields.numbers(minute, fields.MINUTE_FIELD)
    hours = fields.numbers(hour, fields.HOUR_FIELD)
    calendar = Calendar(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        month_days=month_days,
        months=fields.numbers(month, fields.MONTH_FIELD),
        week_days=week_days,
        years=0 if year is None else fields.numbers(year, fields.YEAR_FIELD),
        is_fixed=minute[0] != "*" and hour[0] != "*",
        days_by_shape=days_by_shape(month_days, week_days),
        first_second_of_day=_lowest(hours) * 3_600 + _lowest(minutes) * 60 + _lowest(seconds),
    )
    if calendar.next_local(0) == NEVER_LOCAL_SECOND:
        raise ValueError(
            f"it can never fire: no date from 1970 to {LAST_SCHEDULED_YEAR} matches its day, month "
            f"and year fields"
        )
    return calendar


def _rate(text: str) -> Rate:
    parts = text.split()
    if len(parts) != 2 or not parts[0].isdecimal():
        raise ValueError("rate(…) takes a whole number and a unit, such as rate(5 minutes)")
    value, unit = int(parts[0]), parts[1].lower()
    if value == 0:
        raise ValueError("rate(0 …) would never move on: use 1 or more")
    seconds = _RATE_UNIT_SECONDS.get(unit.removesuffix("s"))
    if seconds is None:
        raise ValueError(f"rate(…) knows minutes, hours and days, not {parts[1]!r}")
    if (value == 1) == unit.endswith("s"):
        unit_text = unit.removesuffix("s") + ("" if value == 1 else "s")
        raise ValueError(f"EventBridge wants rate({parts[0][:20]} {unit_text}) here")
    if value * seconds > 366 * SECONDS_PER_DAY:
        raise ValueError("rate(…) takes at most 366 days: use cron(…) with a year field")
    return Rate(value * seconds)


def _at(text: str) -> At:
    if not _AT_PATTERN.match(text):
        raise ValueError("at(…) takes a local time as in at(2026-11-20T13:00:00)")
    try:
        local = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"at({text}) is not a date and time: {error}") from error
    if not 1970 <= local.year <= LAST_SCHEDULED_YEAR:
        raise ValueError(f"at({text}) is out of range: years go from 1970 to {LAST_SCHEDULED_YEAR}")
    second = local.hour * 3_600 + local.minute * 60 + local.second
    return At((local.toordinal() - EPOCH_ORDINAL) * SECONDS_PER_DAY + second)


def _nickname_error(text: str) -> str:
    name, *trailing = text.split()
    name = name[:32]
    if name.lower() in _NICKNAMES and trailing:
        return (
            f"{name} is a whole expression; nothing may follow it: the task says what the job runs"
        )
    if name.lower() == "@reboot":
        return "@reboot has no time: use a schedule_type of IMMEDIATE, or run the job with runNow"
    if name.lower() == "@every":
        return "@every is an interval: use schedule_type INTERVAL with interval_seconds"
    return f"{name} is not known: there are {', '.join(_NICKNAMES)}"


def _field_count_error(count: int) -> str:
    if count == 7:
        return (
            "seven fields: a year is only in EventBridge's form, "
            "cron(minute hour day-of-month month day-of-week year)"
        )
    return (
        f"a cron expression takes five fields (minute hour day-of-month month day-of-week), "
        f"or six with seconds first, not {count}"
    )


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31
