"""Count the times of a schedule in a range and find the nth, without a walk over them."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from punctual.domain.schedules.cron.count import count_instants
from punctual.domain.schedules.cron.expression import EPOCH_ORDINAL, Calendar, Rate, parse_cron
from punctual.domain.schedules.schedule import first_step, next_after
from punctual.domain.schedules.timezones import HORIZON, local_spans, transitions
from punctual.domain.schedules.values import Cron, Every, Once, Schedule
from punctual.domain.utc import EPOCH, MICROSECOND, SECOND


def count_times(schedule: Schedule, after: datetime, until: datetime) -> int:
    """Return the number of times after `after`, up to and including `until`.

    An `Every` that counts from completion is not supported.
    """
    if isinstance(schedule, Once):
        return int(after < schedule.at <= until)
    if schedule.start_at is not None:
        after = max(after, schedule.start_at - MICROSECOND)
    until = min(until, (schedule.end_at or HORIZON) - MICROSECOND, HORIZON - MICROSECOND)
    count = _count(schedule, after, until)
    for first_day, last_day in _day_ranges(schedule.exclude):
        for start_at, end_at in local_spans(schedule.timezone, first_day, last_day + 1):
            count -= _count(
                schedule, max(after, start_at - MICROSECOND), min(until, end_at - MICROSECOND)
            )
    return count


def nth_time(schedule: Schedule, after: datetime, number: int) -> datetime | None:
    """Return the `number`-th time after `after`, from 1, or None if 2200 comes before it."""
    low_at, high_at = after, HORIZON
    if number < 1 or count_times(schedule, after, high_at) < number:
        return None
    while high_at - low_at > SECOND:
        middle_at = low_at + (high_at - low_at) / 2
        if count_times(schedule, after, middle_at) < number:
            low_at = middle_at
        else:
            high_at = middle_at
    return next_after(schedule, low_at)  # two times are at least a second apart


def _count(schedule: Every | Cron, after: datetime, until: datetime) -> int:
    """Return the count without regard to `exclude`."""
    if after >= until:
        return 0
    if isinstance(schedule, Every):
        return _count_steps(first_step(schedule, schedule.seconds), schedule.seconds, after, until)
    parsed = parse_cron(schedule.expression)
    if isinstance(parsed, Calendar):
        first_second, end_second = (after - EPOCH) // SECOND + 1, (until - EPOCH) // SECOND + 1
        offset_changes = transitions(schedule.timezone)
        return count_instants(
            parsed, offset_changes, schedule.gap, schedule.fold, first_second, end_second
        )
    if isinstance(parsed, Rate):
        return _count_steps(first_step(schedule, parsed.seconds), parsed.seconds, after, until)
    at = next_after(schedule, after)
    return int(at is not None and at <= until)


def _count_steps(first_at: datetime, seconds: int, after: datetime, until: datetime) -> int:
    step = timedelta(seconds=seconds)
    return max(0, (until - first_at) // step + 1) - max(0, (after - first_at) // step + 1)


def _day_ranges(exclude: tuple[date, ...]) -> Iterator[tuple[int, int]]:
    """Yield the first and last day of each stretch of dates, in days since 1970."""
    days = [day.toordinal() - EPOCH_ORDINAL for day in exclude]
    first_index = 0
    for index, day in enumerate(days):
        if index + 1 == len(days) or days[index + 1] > day + 1:
            yield days[first_index], day
            first_index = index + 1
