"""Describe a schedule in one line of plain English."""

from collections.abc import Callable
from datetime import timedelta

from punctual.domain.schedules.cron.expression import At, Calendar, Rate, parse_cron
from punctual.domain.schedules.values import Every, Once, Schedule
from punctual.domain.utc import EPOCH

_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_WEEKDAY_NAMES = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTH_NAMES = (
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
_DURATION_UNIT_SECONDS = ((3_600, "hour"), (60, "minute"), (1, "second"))
_MAX_LISTED_TIMES = 6  # times of day that are listed one by one


def describe(schedule: Schedule) -> str:
    if isinstance(schedule, Once):
        return f"Once, at {schedule.at:%Y-%m-%d %H:%M:%S} UTC"
    if isinstance(schedule, Every):
        suffix = " after the last run has ended" if schedule.from_completion else ""
        return f"Every {_duration(schedule.seconds)}{suffix}"
    parsed = parse_cron(schedule.expression)
    if isinstance(parsed, Rate):
        return f"Every {_duration(parsed.seconds)}"
    if isinstance(parsed, At):
        local = EPOCH + timedelta(seconds=parsed.local)
        return f"Once, at {local:%Y-%m-%d %H:%M:%S}, in {schedule.timezone}"
    parts = [_describe_time(parsed), *_describe_date(parsed), f"in {schedule.timezone}"]
    return ", ".join(parts)


def _describe_time(calendar: Calendar) -> str:
    """Return the time of day, with at most one rhythm.

    A range over midnight stays a range unless the date is restricted. "From 22:00 to 02:00,
    Monday" would mean two hours of Tuesday, but the expression means two hours of Monday.
    """
    hours, minutes = _members(calendar.hours), _members(calendar.minutes)
    seconds = _members(calendar.seconds)
    hour_stretches = _stretches(hours) if _describe_date(calendar) else _cyclic_stretches(hours, 24)
    over_midnight = (
        len(hour_stretches) == 1
        and len(hour_stretches[0]) > 2
        and hour_stretches[0][0] > hour_stretches[0][-1]
    )
    if len(hours) * len(minutes) * len(seconds) <= _MAX_LISTED_TIMES and not over_midnight:
        pattern = "{:02}:{:02}" if seconds == [0] else "{:02}:{:02}:{:02}"
        times = [
            pattern.format(hour, minute, second)
            for hour in hours
            for minute in minutes
            for second in seconds
        ]
        return "At " + _join_items(times)
    parts = [] if seconds == [0] else [_describe_seconds(seconds)]
    if parts and len(minutes) < 60:
        parts.append(_describe_minutes_of_seconds(minutes, rhythm=not _is_rhythm(parts)))
    elif not parts:
        parts.append(_describe_minutes(minutes, all_day=len(hours) == 24))
    if len(hours) < 24:
        parts.append(_describe_hours(hour_stretches, hours, minutes, rhythm=not _is_rhythm(parts)))
    text = ", ".join(parts)
    return text[0].upper() + text[1:]


def _is_rhythm(parts: list[str]) -> bool:
    return any(part.startswith("every ") for part in parts)


def _describe_seconds(seconds: list[int]) -> str:
    plural = "s" if len(seconds) > 1 else ""
    return (
        _describe_rhythm(seconds, 60, "second")
        or f"at second{plural} {_describe_ranges(seconds)} of the minute"
    )


def _describe_minutes_of_seconds(minutes: list[int], rhythm: bool) -> str:
    plural = "s" if len(minutes) > 1 else ""
    text = f"in minute{plural} {_describe_ranges(minutes)} of the hour"
    return (_describe_rhythm(minutes, 60, "minute") if rhythm else "") or text


def _describe_minutes(minutes: list[int], all_day: bool) -> str:
    if minutes == [0]:
        return "every hour" if all_day else "on the hour"
    if len(minutes) == 1:
        return f"{_count(minutes[0], 'minute', always=True)} past the hour"
    return (
        _describe_rhythm(minutes, 60, "minute")
        or f"at minutes {_describe_ranges(minutes)} past the hour"
    )


def _describe_hours(
    stretches: list[list[int]], hours: list[int], minutes: list[int], rhythm: bool
) -> str:
    step = _even_step(hours, 24)
    if rhythm and step:
        start = f", from {hours[0]:02}:00" if hours[0] else ""
        return f"every {_count(step, 'hour')}{start}"
    if len(stretches) == 1 or all(len(stretch) > 1 for stretch in stretches):
        first, last = minutes[0], minutes[-1]
        return _join_items(
            [
                f"from {stretch[0]:02}:{first:02} to {stretch[-1]:02}:{last:02}"
                for stretch in stretches
            ]
        )
    return "in the hours " + _join_items(_describe_stretches(stretches, "{:02}".format))


def _describe_rhythm(values: list[int], cycle: int, unit: str) -> str:
    """Return the rhythm of the values, or an empty text if they have none."""
    step = _even_step(values, cycle)
    if not step:
        return ""
    start = f" from {unit} {values[0]}" if values[0] else ""
    return f"every {_count(step, unit)}{start}"


def _even_step(values: list[int], cycle: int) -> int:
    """Return the equal distance of all neighbors, also from last to first, or 0."""
    if len(values) < 2:
        return 0
    step = values[1] - values[0]
    is_even = values == list(range(values[0], cycle, step)) and len(values) * step == cycle
    return step if is_even else 0


def _describe_ranges(values: list[int]) -> str:
    return _join_items(_describe_stretches(_stretches(values), str))


def _describe_date(calendar: Calendar) -> list[str]:
    by_date, by_weekday = _describe_month_days(calendar), _describe_week_days(calendar)
    are_both_set = calendar.month_days.is_set and calendar.week_days.is_set
    parts = []
    if by_date and by_weekday:
        dates, weekdays = _join_items(by_date, "or"), _join_items(by_weekday, "or")
        parts.append(f"on {dates} {'or' if are_both_set else 'if it is'} {weekdays}")
    elif by_date and not are_both_set:
        parts.append(f"on {_join_items(by_date)}")
    elif by_weekday and not are_both_set:
        by_rule = by_weekday[-1].startswith("the ")
        parts.append(f"{'on ' if by_rule else ''}{_join_items(by_weekday)}")
    months, years = _members(calendar.months), _members(calendar.years)
    some_years = 0 < len(years) < 230
    if len(months) < 12:
        stretches = _stretches(months) if some_years else _cyclic_stretches(months, 12)
        parts.append("in " + _join_items(_describe_stretches(stretches, _month_name)))
    if some_years:
        parts.append("in " + _join_items(_describe_stretches(_stretches(years), str)))
    return parts


def _describe_month_days(calendar: Calendar) -> list[str]:
    month = calendar.month_days
    texts = []
    days = _members(month.days)
    if len(days) == 31:
        return []
    if days:
        is_plural = len(days) > 1
        day_list = _join_items(_describe_stretches(_stretches(days), str))
        texts.append(f"day{'s' if is_plural else ''} {day_list} of the month")
    texts.extend(f"the weekday nearest day {day} of the month" for day in month.nearest)
    for days_before in month.before_last:
        end = "the last day of the month"
        texts.append(
            f"{end} minus {_count(days_before, 'day', always=True)}" if days_before else end
        )
    if month.last_workday:
        texts.append("the last weekday of the month")
    return texts


def _describe_week_days(calendar: Calendar) -> list[str]:
    week = calendar.week_days
    days = _members(week.days)
    if len(days) == 7:
        return []
    stretches = _cyclic_stretches(days, 7)
    stretches.sort(key=lambda stretch: (stretch[0] - 1) % 7)  # a week begins on Monday
    texts = _describe_stretches(stretches, lambda day: _WEEKDAY_NAMES[day])
    texts.extend(
        f"the last {_WEEKDAY_NAMES[day]} of the month" for day in _members(week.last_weekdays)
    )
    texts.extend(
        f"the {_ORDINALS[ordinal - 1]} {_WEEKDAY_NAMES[day]} of the month"
        for day, ordinal in week.nth_weekdays
    )
    return texts


def _month_name(number: int) -> str:
    return _MONTH_NAMES[number - 1]


def _members(bits: int) -> list[int]:
    return [index for index in range(bits.bit_length()) if bits >> index & 1]


def _stretches(values: list[int]) -> list[list[int]]:
    """Return the values in stretches without a gap."""
    stretches: list[list[int]] = []
    for value in values:
        if stretches and stretches[-1][-1] == value - 1:
            stretches[-1].append(value)
        else:
            stretches.append([value])
    return stretches


def _cyclic_stretches(values: list[int], cycle: int) -> list[list[int]]:
    """Return the stretches of a cycle, so that its first value follows its last: 22, 23, 0, 1."""
    stretches = _stretches(values)
    low = values[0] if values else 0
    if len(stretches) > 1 and low in (0, 1) and stretches[-1][-1] == low + cycle - 1:
        stretches[0] = stretches.pop() + stretches[0]
    return stretches


def _describe_stretches(stretches: list[list[int]], show: Callable[[int], str]) -> list[str]:
    """Return stretches of three or more values by their ends, other values one by one."""
    texts: list[str] = []
    for stretch in stretches:
        if len(stretch) > 2:
            texts.append(f"{show(stretch[0])} to {show(stretch[-1])}")
        else:
            texts.extend(show(value) for value in stretch)
    return texts


def _join_items(items: list[str], conjunction: str = "and") -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} {conjunction} {items[-1]}"


def _count(number: int, unit: str, always: bool = False) -> str:
    if number == 1:
        return f"1 {unit}" if always else unit
    return f"{number} {unit}s"


def _duration(seconds: int) -> str:
    parts = []
    for size, unit in _DURATION_UNIT_SECONDS:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append((number, unit))
    is_single = len(parts) == 1
    return _join_items([_count(number, unit, always=not is_single) for number, unit in parts])
