"""A schedule in one plain English line."""

from collections.abc import Callable
from datetime import timedelta

from punctual.domain.cron import At, Calendar, Rate, parse_cron
from punctual.domain.schedule_values import Every, Once, Schedule
from punctual.domain.zones import EPOCH

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
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


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
    hours, minutes = _members(calendar.hours), _members(calendar.minutes)
    seconds = _members(calendar.seconds)
    if len(hours) * len(minutes) * len(seconds) <= 6:
        show = "{:02}:{:02}" if seconds == [0] else "{:02}:{:02}:{:02}"
        return "At " + _list(
            [show.format(h, m, s) for h in hours for m in minutes for s in seconds]
        )
    parts = []
    if seconds != [0]:
        parts.append(_rhythm(seconds, 60, "second", "of the minute"))
    if not (len(minutes) == 60 and seconds != [0]):
        parts.append(_minutes(minutes, seconds == [0], len(hours) == 24))
    if len(hours) < 24:
        parts.append(_hours(hours, minutes))
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


def _minutes(minutes: list[int], alone: bool, all_day: bool) -> str:
    if minutes == [0] and alone:
        return "every hour" if all_day else "on the hour"
    return _rhythm(minutes, 60, "minute", "past the hour")


def _hours(hours: list[int], minutes: list[int]) -> str:
    if len(hours) > 1 and hours == list(range(hours[0], hours[-1] + 1)):
        return f"from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
    step = _step(hours, 24)
    if step:
        start = f", from {hours[0]:02}:00" if hours[0] else ""
        return f"every {_count(step, 'hour')}{start}"
    return "in the hours " + _list([f"{hour:02}" for hour in hours])


def _rhythm(values: list[int], cycle: int, unit: str, where: str) -> str:
    step = _step(values, cycle)
    if step:
        start = f" from {unit} {values[0]}" if values[0] else ""
        return f"every {_count(step, unit)}{start}"
    if len(values) == 1 and unit == "minute":
        return f"{_count(values[0], unit, always=True)} {where}" if values[0] else "on the hour"
    runs = _list(_said(_runs(values), str))
    return f"at {unit}{'' if len(values) == 1 else 's'} {runs} {where}"


def _step(values: list[int], cycle: int) -> int:
    """The step with which the values fill their cycle, or 0 if they do not."""
    if len(values) < 2:
        return 0
    step = values[1] - values[0]
    return step if values == list(range(values[0], cycle, step)) and values[0] < step else 0


def _date(calendar: Calendar) -> list[str]:
    by_date, by_weekday = _month_days(calendar), _week_days(calendar)
    parts = []
    if by_date and by_weekday:
        both = calendar.month_days.is_set and calendar.week_days.is_set
        dates, weekdays = _list(by_date, "or"), _list(by_weekday, "or")
        parts.append(f"on {dates} {'or' if both else 'if it is'} {weekdays}")
    elif by_date:
        parts.append(f"on {_list(by_date)}")
    elif by_weekday:
        by_rule = by_weekday[-1].startswith("the ")
        parts.append(f"{'on ' if by_rule else ''}{_list(by_weekday)}")
    months = _members(calendar.months)
    if len(months) < 12:
        parts.append("in " + _list(_said(_runs(months), _month)))
    years = _members(calendar.years)
    if 0 < len(years) < 230:
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
    # Weeks are told from Monday, and what runs over Sunday into Monday as one.
    first = next((day for day in range(1, 8) if week.days >> (day - 1) % 7 & 1 == 0), 1)
    turned = sorted((day - first) % 7 for day in days)
    runs = _runs(turned)
    runs.sort(key=lambda run: (run[0] + first - 1) % 7)
    said = _said(runs, lambda day: _DAYS[(day + first) % 7])
    said.extend(f"the last {_DAYS[day]} of the month" for day in _members(week.last))
    said.extend(f"the {_ORDINALS[n - 1]} {_DAYS[day]} of the month" for day, n in week.nth)
    return said


def _month(number: int) -> str:
    return _MONTHS[number - 1]


def _members(bits: int) -> list[int]:
    return [n for n in range(bits.bit_length()) if bits >> n & 1]


def _runs(values: list[int]) -> list[list[int]]:
    """The values in stretches without a hole."""
    runs: list[list[int]] = []
    for value in values:
        if runs and runs[-1][-1] == value - 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return runs


def _said(runs: list[list[int]], show: Callable[[int], str]) -> list[str]:
    """Stretches of three and more by their ends, the others one by one."""
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
