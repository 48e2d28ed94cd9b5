"""Count by minute when the occurrences of many schedules start.

Intervals are counted without a walk over their times. Jobs with the same cron expression share one
walk.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime, timedelta
from math import gcd
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.schedules.count import count_times, nth_time
from punctual.domain.schedules.cron.expression import EPOCH_ORDINAL, Calendar, Rate, parse_cron
from punctual.domain.schedules.schedule import after_completion, occurrences
from punctual.domain.schedules.timezones import local_day, local_spans
from punctual.domain.schedules.values import Cron, Every, Schedule, counts_from_completion
from punctual.domain.utc import MICROSECOND, SECOND

MINUTE = timedelta(minutes=1)
MINUTE_MICROS = MINUTE // MICROSECOND
MAX_PERIODS = 256  # each has a count for every minute
MAX_SHARED_TIMES = 200_000  # times of cron expressions that are kept for other jobs
MAX_WALKED_TIMES = 20_000  # of one expression; times of a denser one are counted for each minute
_TIMES_PER_STEP = 500
MAX_JITTER = timedelta(hours=1)
MAX_RANGE_SECONDS = 30 * 86_400  # longer than any range


class PlannedStarts(NamedTuple):
    """The starts of one job from `first_at` on, which is an occurrence.

    `jitter` comes on top of each time. `max_times` limits their number.
    """

    schedule: Schedule
    first_at: datetime
    jitter: timedelta = timedelta()
    max_times: int | None = None


class _CronRange(NamedTuple):
    """Times of an expression, by their index. Each start is `delay` microseconds later."""

    expression: Cron
    first_index: int
    end_index: int
    delay: int


class _DenseCron(NamedTuple):
    """The times of an expression from `first_at` to before `end`."""

    expression: Cron
    first_at: datetime
    end: datetime
    jitter: timedelta


class StartCounts:
    """The number of starts in each minute from `start` on, which is a full minute.

    `add` is cheap for most jobs. `finish` adds the times of cron expressions and of intervals.
    """

    def __init__(self, start: datetime, minutes: int) -> None:
        self._start = start
        self._end = start + minutes * MINUTE
        self._minutes = [0] * minutes
        # By period in minutes: changes of the number of starts that repeat with this period.
        self._periods: dict[int, list[int]] = {}
        self._times: dict[Cron, Sequence[datetime]] = {}
        self._full_minutes: set[Cron] = set()  # the keys of `_times` without seconds
        self._time_count = 0  # of all lists in `_times`
        self._cron_ranges: Counter[_CronRange] = Counter()
        self._dense_crons: Counter[_DenseCron] = Counter()

    def add_start(self, at: datetime, number: int = 1) -> None:
        if self._start <= at < self._end:
            self._minutes[(at - self._start) // MINUTE] += number

    def add(self, planned: PlannedStarts) -> Iterator[None]:
        """Add the starts of one job that lie in the range. Each step takes at most milliseconds."""
        schedule = planned.schedule
        if planned.first_at + planned.jitter >= self._end or planned.max_times == 0:
            return
        if isinstance(schedule, Cron):
            parsed = parse_cron(schedule.expression)
            if isinstance(parsed, Calendar):
                yield from self._add_cron(planned, schedule)
            elif isinstance(parsed, Rate):
                self._add_fixed_rate(planned, schedule, parsed.seconds)
            else:
                self.add_start(planned.first_at + planned.jitter)
        elif not isinstance(schedule, Every):
            self.add_start(planned.first_at + planned.jitter)
        elif counts_from_completion(schedule):
            yield from self._add_from_completion(planned, schedule)
        else:
            self._add_fixed_rate(planned, schedule, schedule.seconds)

    def finish(self) -> Iterator[None]:
        """Add what jobs share. `minutes` is complete then."""
        yield from self._finish_crons()
        yield from self._finish_dense_crons()
        for period, changes in self._periods.items():
            for minute, change in enumerate(changes):
                if minute >= period:
                    change += changes[minute - period]
                    changes[minute] = change
                self._minutes[minute] += change
            yield

    @property
    def minutes(self) -> Sequence[int]:
        return self._minutes

    def _end_of(self, planned: PlannedStarts, end_at: datetime | None) -> datetime:
        """Return the end of the nominal times, by the range, `end_time` and `max_runs`."""
        end = self._end - planned.jitter
        return end if end_at is None else min(end, end_at)

    def _add_fixed_rate(self, planned: PlannedStarts, schedule: Every | Cron, seconds: int) -> None:
        """Add the times, and subtract those of excluded dates."""
        step = seconds * SECOND
        end = self._end_of(planned, schedule.end_at)
        if not schedule.exclude:
            end = _limited_end(planned, step, end)
        elif planned.max_times is not None:
            last_at = _nth_time(schedule, planned.first_at, planned.max_times)
            end = end if last_at is None else min(end, last_at + MICROSECOND)
        self._add_steps(planned.first_at, step, end, planned.jitter, 1)
        for day in _excluded_days(schedule, planned.first_at, end):
            for span_start, span_end in local_spans(schedule.timezone, day, day + 1):
                steps_before = max(0, -((planned.first_at - span_start) // step))
                first_at = planned.first_at + steps_before * step
                self._add_steps(first_at, step, min(end, span_end), planned.jitter, -1)

    def _add_from_completion(self, planned: PlannedStarts, schedule: Every) -> Iterator[None]:
        """Add the times as if each run took no time."""
        step = schedule.seconds * SECOND + planned.jitter
        end = self._end_of(planned, schedule.end_at)
        if not schedule.exclude:
            end = _limited_end(planned, step, end)
            self._add_steps(planned.first_at, step, end, planned.jitter, 1)
            return
        at: datetime | None = planned.first_at
        count = 0
        while at is not None and at < end and count != planned.max_times:
            self.add_start(at + planned.jitter)
            at = after_completion(schedule, at + planned.jitter)
            count += 1
            if count % _TIMES_PER_STEP == 0:
                yield

    def _add_steps(
        self, first_at: datetime, step: timedelta, end: datetime, jitter: timedelta, change: int
    ) -> None:
        """Change the counts of the times `first_at`, `first_at + step`, … before `end`.

        The minutes of the times repeat after the common multiple of the step and a minute. So a few
        entries stand for all times. An entry with the opposite sign ends them.
        """
        first, stop = (first_at + jitter - self._start), (end + jitter - self._start)
        at, end_micros, step_micros = first // MICROSECOND, stop // MICROSECOND, step // MICROSECOND
        if at >= end_micros:
            return
        count = (end_micros - at - 1) // step_micros + 1
        steps_in_period = MINUTE_MICROS // gcd(step_micros, MINUTE_MICROS)
        period = steps_in_period * step_micros // MINUTE_MICROS
        changes = self._changes_of(period) if count > steps_in_period else None
        if changes is None:
            for time in range(at, end_micros, step_micros):
                self._minutes[time // MINUTE_MICROS] += change
            return
        period_micros = period * MINUTE_MICROS
        for time in range(at, at + steps_in_period * step_micros, step_micros):
            changes[time // MINUTE_MICROS] += change
            stop_time = time - (time - end_micros) // period_micros * period_micros
            if stop_time // MINUTE_MICROS < len(changes):
                changes[stop_time // MINUTE_MICROS] -= change

    def _changes_of(self, period: int) -> list[int] | None:
        changes = self._periods.get(period)
        if changes is None and len(self._periods) < MAX_PERIODS:
            changes = self._periods[period] = [0] * len(self._minutes)
        return changes

    def _add_cron(self, planned: PlannedStarts, schedule: Cron) -> Iterator[None]:
        end = self._end_of(planned, schedule.end_at)
        expression = replace(schedule, start_at=None, end_at=None, anchor_at=None)
        times = self._times.get(expression)
        if times is None:
            times = yield from self._load_times(expression)
        if times is None:
            if planned.max_times is not None:
                last_at = _nth_time(schedule, planned.first_at, planned.max_times)
                end = end if last_at is None else min(end, last_at + MICROSECOND)
            self._dense_crons[_DenseCron(expression, planned.first_at, end, planned.jitter)] += 1
            return
        first_index, end_index = bisect_left(times, planned.first_at), bisect_left(times, end)
        if planned.max_times is not None:
            end_index = min(end_index, first_index + planned.max_times)
        if first_index < end_index:
            delay = planned.jitter // MICROSECOND
            if expression in self._full_minutes:
                delay -= delay % MINUTE_MICROS  # the rest never reaches the next minute
            self._cron_ranges[_CronRange(expression, first_index, end_index, delay)] += 1

    def _load_times(self, expression: Cron) -> Generator[None, None, Sequence[datetime] | None]:
        """Return and keep the times of the range, or None if they are too many to walk over."""
        after, until = self._start - MAX_JITTER - MICROSECOND, self._end - MICROSECOND
        count = count_times(expression, after, until)
        if count > MAX_WALKED_TIMES:
            return None
        if self._time_count + count > MAX_SHARED_TIMES:
            yield from self._finish_crons()
        times: list[datetime] = []
        for at in occurrences(expression, after, until):
            times.append(at)
            if len(times) % _TIMES_PER_STEP == 0:
                yield
        self._time_count += count
        self._times[expression] = times
        if not any(at.second or at.microsecond for at in times):
            self._full_minutes.add(expression)
        return times

    def _finish_crons(self) -> Iterator[None]:
        """Add the times of all expressions so far, each with the number of its jobs."""
        for cron_range, job_count in self._cron_ranges.items():
            times = self._times[cron_range.expression]
            for index in range(cron_range.first_index, cron_range.end_index):
                micros = (times[index] - self._start) // MICROSECOND + cron_range.delay
                self._minutes[micros // MINUTE_MICROS] += job_count
                if index % _TIMES_PER_STEP == 0:
                    yield
            yield
        self._cron_ranges.clear()
        self._times.clear()
        self._full_minutes.clear()
        self._time_count = 0

    def _finish_dense_crons(self) -> Iterator[None]:
        for (expression, first_at, end, jitter), job_count in self._dense_crons.items():
            for minute in range(len(self._minutes)):
                low_at = self._start + minute * MINUTE - jitter
                low, high = max(low_at, first_at), min(low_at + MINUTE, end)
                if low < high:
                    count = count_times(expression, low - MICROSECOND, high - MICROSECOND)
                    self._minutes[minute] += count * job_count
                if minute % _TIMES_PER_STEP == 0:
                    yield


def _limited_end(planned: PlannedStarts, step: timedelta, end: datetime) -> datetime:
    """Return the end of `max_times` steps, or `end` if it is earlier."""
    if planned.max_times is None or planned.max_times * (step // SECOND) > MAX_RANGE_SECONDS:
        return end
    return min(end, planned.first_at + planned.max_times * step)


def _nth_time(schedule: Every | Cron, first_at: datetime, number: int) -> datetime | None:
    return first_at if number == 1 else nth_time(schedule, first_at, number - 1)


def _excluded_days(schedule: Every | Cron, first_at: datetime, end: datetime) -> Iterator[int]:
    """Yield the excluded dates from `first_at` to `end`, in days since 1970."""
    if not schedule.exclude or first_at >= end:
        return
    first_day = local_day(schedule.timezone, first_at) - 1
    last_day = local_day(schedule.timezone, end) + 1
    for excluded in schedule.exclude:
        day = excluded.toordinal()
        if first_day <= day <= last_day:
            yield day - EPOCH_ORDINAL
