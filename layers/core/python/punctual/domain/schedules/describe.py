"""Describe a schedule in one line of plain English."""

from collections.abc import Callable
from datetime import timedelta

from punctual.domain.schedules.cron.expression import At, Calendar, Rate, parse_cron
from punctual.domain.schedules.timezones import EPOCH
from punctual.domain.schedules.values import Every, Once, Schedule

_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
# Without days: an interval of 86,400 s keeps 24 hours, but a day can have 23 or 25.
_UNITS = ((3_600, "hour"), (60, "minute"), (1, "second"))
_MOST_LISTED = 6  # times of day that are listed one by one


def describe(schedule: Schedule) -> str:
    if isinstance(schedule, Once):
        return f"Once, at {schedule.at:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(schedule, Every):
        after = " after the last run has ended" if schedule.from_completion else ""
        return f"Every {_duration(schedule.seconds)}{after}"
    meaning = parse_cron(schedule.expression)
    if isinstance(meaning, Rate):
        return f"Every {_duration(meaning.seconds)}"
    if isinstance(meaning, At):
        local = EPOCH + timedelta(seconds=meaning.local)
        return f"Once, at {local:%Y-%m-%d %H:%M:%S}, in {schedule.timezone}"
    parts = [_time(meaning), *_date(meaning), f"in {schedule.timezone}"]
    return ", ".join(parts)


def _time(calendar: Calendar) -> str:
    """Return the time of day, with at most one rhythm.

    A range over midnight stays a range unless the date is restricted. "From 22:00 to 02:00,
    Monday" would mean two hours of Tuesday, but the expression means two hours of Monday.
    """
    hours, minutes = _members(calendar.hours), _members(calendar.minutes)
    seconds = _members(calendar.seconds)
    runs = _runs(hours) if _date(calendar) else _runs_around(hours, 24)
    over_midnight = len(runs) == 1 and len(runs[0]) > 2 and runs[0][0] > runs[0][-1]
    if len(hours) * len(minutes) * len(seconds) <= _MOST_LISTED and not over_midnight:
        show = "{:02}:{:02}" if seconds == [0] else "{:02}:{:02}:{:02}"
        times = [show.format(h, m, s) for h in hours for m in minutes for s in seconds]
        return "At " + _list(times)
    parts = [] if seconds == [0] else [_seconds(seconds)]
    if parts and len(minutes) < 60:
        parts.append(_minutes_of_seconds(minutes, rhythm=not _is_rhythm(parts)))
    elif not parts:
        parts.append(_minutes(minutes, all_day=len(hours) == 24))
    if len(hours) < 24:
        parts.append(_hours(runs, hours, minutes, rhythm=not _is_rhythm(parts)))
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


def _is_rhythm(parts: list[str]) -> bool:
    return any(part.startswith("every ") for part in parts)


def _seconds(seconds: list[int]) -> str:
    many = "s" if len(seconds) > 1 else ""
    return _every(seconds, 60, "second") or f"at second{many} {_ranges(seconds)} of the minute"


def _minutes_of_seconds(minutes: list[int], rhythm: bool) -> str:
    many = "s" if len(minutes) > 1 else ""
    said = f"in minute{many} {_ranges(minutes)} of the hour"
    return (_every(minutes, 60, "minute") if rhythm else "") or said


def _minutes(minutes: list[int], all_day: bool) -> str:
    if minutes == [0]:
        return "every hour" if all_day else "on the hour"
    if len(minutes) == 1:
        return f"{_count(minutes[0], 'minute', always=True)} past the hour"
    return _every(minutes, 60, "minute") or f"at minutes {_ranges(minutes)} past the hour"


def _hours(runs: list[list[int]], hours: list[int], minutes: list[int], rhythm: bool) -> str:
    step = _step(hours, 24)
    if rhythm and step:
        start = f", from {hours[0]:02}:00" if hours[0] else ""
        return f"every {_count(step, 'hour')}{start}"
    if len(runs) == 1 or all(len(run) > 1 for run in runs):
        first, last = minutes[0], minutes[-1]
        return _list([f"from {run[0]:02}:{first:02} to {run[-1]:02}:{last:02}" for run in runs])
    return "in the hours " + _list(_said(runs, "{:02}".format))


def _every(values: list[int], cycle: int, unit: str) -> str:
    """Return the rhythm of the values, or an empty text if they have none."""
    step = _step(values, cycle)
    if not step:
        return ""
    start = f" from {unit} {values[0]}" if values[0] else ""
    return f"every {_count(step, unit)}{start}"


def _step(values: list[int], cycle: int) -> int:
    """Return the equal distance of all neighbors, also from last to first, or 0."""
    if len(values) < 2:
        return 0
    step = values[1] - values[0]
    even = values == list(range(values[0], cycle, step)) and len(values) * step == cycle
    return step if even else 0


def _ranges(values: list[int]) -> str:
    return _list(_said(_runs(values), str))


def _date(calendar: Calendar) -> list[str]:
    by_date, by_weekday = _month_days(calendar), _week_days(calendar)
    both = calendar.month_days.is_set and calendar.week_days.is_set
    parts = []
    if by_date and by_weekday:
        dates, weekdays = _list(by_date, "or"), _list(by_weekday, "or")
        parts.append(f"on {dates} {'or' if both else 'if it is'} {weekdays}")
    elif by_date and not both:
        parts.append(f"on {_list(by_date)}")
    elif by_weekday and not both:
        by_rule = by_weekday[-1].startswith("the ")
        parts.append(f"{'on ' if by_rule else ''}{_list(by_weekday)}")
    months, years = _members(calendar.months), _members(calendar.years)
    some_years = 0 < len(years) < 230
    if len(months) < 12:
        runs = _runs(months) if some_years else _runs_around(months, 12)
        parts.append("in " + _list(_said(runs, _month)))
    if some_years:
        parts.append("in " + _list(_said(_runs(years), str)))
    return parts


def _month_days(calendar: Calendar) -> list[str]:
    month = calendar.month_days
    said = []
    days = _members(month.days)
    if len(days) == 31:
        return []
    if days:
        many = len(days) > 1
        said.append(f"day{'s' if many else ''} {_list(_said(_runs(days), str))} of the month")
    said.extend(f"the weekday nearest day {day} of the month" for day in month.nearest)
    for before in month.from_last:
        end = "the last day of the month"
        said.append(f"{end} minus {_count(before, 'day', always=True)}" if before else end)
    if month.last_workday:
        said.append("the last weekday of the month")
    return said


def _week_days(calendar: Calendar) -> list[str]:
    week = calendar.week_days
    days = _members(week.days)
    if len(days) == 7:
        return []
    runs = _runs_around(days, 7)
    runs.sort(key=lambda run: (run[0] - 1) % 7)  # a week begins on Monday
    said = _said(runs, lambda day: _DAYS[day])
    said.extend(f"the last {_DAYS[day]} of the month" for day in _members(week.last))
    said.extend(f"the {_ORDINALS[n - 1]} {_DAYS[day]} of the month" for day, n in week.nth)
    return said


def _month(number: int) -> str:
    return _MONTHS[number - 1]


def _members(bits: int) -> list[int]:
    return [n for n in range(bits.bit_length()) if bits >> n & 1]


def _runs(values: list[int]) -> list[list[int]]:
    """Return the values in stretches without a gap."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def _runs_around(values: list[int], cycle: int) -> list[list[int]]:
    """Return the stretches of a cycle, so that its first value follows its last: 22, 23, 0, 1."""
    runs = _runs(values)
    low = values[0] if values else 0
    if len(runs) > 1 and low in (0, 1) and runs[-1][-1] == low + cycle - 1:
        runs[0] = runs.pop() + runs[0]
    return runs


def _said(runs: list[list[int]], show: Callable[[int], str]) -> list[str]:
    """Return stretches of three or more values by their ends, other values one by one."""
    said: list[str] = []
    for run in runs:
        if len(run) > 2:
            said.append(f"{show(run[0])} to {show(run[-1])}")
        else:
            said.extend(show(value) for value in run)
    return said


def _list(items: list[str], last: str = "and") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def _count(number: int, unit: str, always: bool = False) -> str:
    if number == 1:
        return f"1 {unit}" if always else unit
    return f"{number} {unit}s"


def _duration(seconds: int) -> str:
    parts = []
    for size, unit in _UNITS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append((number, unit))
    alone = len(parts) == 1
    return _list([_count(number, unit, always=not alone) for number, unit in parts])
