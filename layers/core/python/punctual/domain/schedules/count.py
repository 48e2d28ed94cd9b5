"""Count the times of a schedule in a range and find the nth, without a walk over them."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta

from punctual.domain.schedules.cron.count import count_instants
from punctual.domain.schedules.cron.expression import EPOCH_ORDINAL, Calendar, Rate, parse_cron
from punctual.domain.schedules.schedule import first_step, next_after
from punctual.domain.schedules.timezones import EPOCH, HORIZON, SECOND, local_spans, transitions
from punctual.domain.schedules.values import Cron, Every, Once, Schedule

_TICK = timedelta(microseconds=1)


def count_times(schedule: Schedule, after: datetime, until: datetime) -> int:
    """Return the number of times after `after`, up to and including `until`.

    An `Every` that counts from completion is not supported.
    """
    if isinstance(schedule, Once):
        return int(after < schedule.at <= until)
    if schedule.start_at is not None:
        after = max(after, schedule.start_at - _TICK)
    until = min(until, (schedule.end_at or HORIZON) - _TICK, HORIZON - _TICK)
    count = _count(schedule, after, until)
    for first, last in _rows(schedule.exclude):
        for low, end in local_spans(schedule.timezone, first, last + 1):
            count -= _count(schedule, max(after, low - _TICK), min(until, end - _TICK))
    return count


def nth_time(schedule: Schedule, after: datetime, number: int) -> datetime | None:
    """Return the `number`-th time after `after`, from 1, or None if 2200 comes before it."""
    low, high = after, HORIZON
    if number < 1 or count_times(schedule, after, high) < number:
        return None
    while high - low > SECOND:
        middle = low + (high - low) / 2
        if count_times(schedule, after, middle) < number:
            low = middle
        else:
            high = middle
    return next_after(schedule, low)  # two times are at least a second apart


def _count(schedule: Every | Cron, after: datetime, until: datetime) -> int:
    """Return the count without regard to `exclude`."""
    if after >= until:
        return 0
    if isinstance(schedule, Every):
        return _count_steps(first_step(schedule, schedule.seconds), schedule.seconds, after, until)
    meaning = parse_cron(schedule.expression)
    if isinstance(meaning, Calendar):
        first, end = (after - EPOCH) // SECOND + 1, (until - EPOCH) // SECOND + 1
        table = transitions(schedule.timezone)
        return count_instants(meaning, table, schedule.gap, schedule.fold, first, end)
    if isinstance(meaning, Rate):
        return _count_steps(first_step(schedule, meaning.seconds), meaning.seconds, after, until)
    at = next_after(schedule, after)
    return int(at is not None and at <= until)


def _count_steps(base: datetime, seconds: int, after: datetime, until: datetime) -> int:
    step = timedelta(seconds=seconds)
    return max(0, (until - base) // step + 1) - max(0, (after - base) // step + 1)


def _rows(exclude: tuple[date, ...]) -> Iterator[tuple[int, int]]:
    """Yield the first and last day of each row of dates without a gap, in days since 1970."""
    days = [day.toordinal() - EPOCH_ORDINAL for day in exclude]
    first = 0
    for index, day in enumerate(days):
        if index + 1 == len(days) or days[index + 1] > day + 1:
            yield days[first], day
            first = index + 1
