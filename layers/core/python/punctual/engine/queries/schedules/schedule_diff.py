"""Compares the times of two schedules: what a change adds, removes, moves and leaves."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.errors import FieldError, Invalid
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.cron.expression import EPOCH_ORDINAL, SECONDS_PER_DAY
from punctual.domain.schedules.cron.instants import local_instant
from punctual.domain.schedules.schedule import (
    Every,
    Once,
    Schedule,
    clock_warnings,
    occurrences,
)
from punctual.domain.schedules.timezones import local_day, transitions
from punctual.domain.schedules.upcoming import remaining_runs
from punctual.domain.schedules.values import counts_from_completion
from punctual.domain.utc import EPOCH, MICROSECOND, SECOND
from punctual.engine.commands.definition import changed_schedule
from punctual.engine.queries.slices import Sliced

MAX_COMPARED_TIMES = 200_000  # of each schedule: one each second, for two days
_TIMES_PER_STEP = 500
_FROM_COMPLETION_WARNING = (
    "The times of an interval from completion assume runs that take no time. Each run moves the "
    "later times by its duration."
)
_PAUSED_WARNING = "The job is paused: it fires at none of these times before it is resumed."
_CANCELLED_WARNING = "The job is cancelled: it has no times, and it takes no change."


class PlannedTimes(NamedTuple):
    """The times that a schedule has from now on."""

    schedule: Schedule
    max_times: int | None = None
    next_at: datetime | None = None  # of an interval from completion: the next time as it is known
    warnings: tuple[str, ...] = ()

    @property
    def zone_name(self) -> str:
        return "UTC" if isinstance(self.schedule, Once) else self.schedule.timezone


class MovedTime(NamedTuple):
    before_at: datetime
    after_at: datetime


class ScheduleDiff(NamedTuple):
    """The times of both schedules before `end`, each in one of four lists, in order of time."""

    end: datetime
    added: Sequence[datetime]
    removed: Sequence[datetime]
    moved: Sequence[MovedTime]
    unchanged: Sequence[datetime]
    warnings: Sequence[str]

    @property
    def shift(self) -> timedelta | None:
        """Return by how much every moved time moves, or None if they differ or none moves."""
        shifts = {moved.after_at - moved.before_at for moved in self.moved}
        return shifts.pop() if len(shifts) == 1 else None


def planned_by_job(state: JobState, start: datetime) -> PlannedTimes:
    """Return the times of a job after `start`. A paused job counts as resumed."""
    schedule = state.schedule
    if schedule is None:
        return PlannedTimes(Once(state.created_at), 0)
    if state.status is JobStatus.CANCELLED:
        return PlannedTimes(schedule, 0, warnings=(_CANCELLED_WARNING,))
    if state.status is JobStatus.COMPLETED:
        return PlannedTimes(schedule, 0)
    warnings = (_PAUSED_WARNING,) if state.status is JobStatus.PAUSED else ()
    return _continued(state, schedule, start)._replace(warnings=warnings)


def planned_after_change(
    state: JobState, schedule: Schedule, max_runs: int | None, start: datetime
) -> PlannedTimes:
    """Return the times of a job after a change. An unchanged schedule keeps its phase and runs."""
    before = state.schedule
    is_unchanged = before is not None and changed_schedule(schedule, before) is None
    if state.status is JobStatus.CANCELLED or (
        is_unchanged and state.status is JobStatus.COMPLETED and max_runs == state.limits.max_runs
    ):
        return PlannedTimes(schedule, 0)
    if before is None or not is_unchanged:
        return PlannedTimes(schedule, max_runs)
    changed = replace(state, limits=replace(state.limits, max_runs=max_runs))
    return _continued(changed, before, start)


def _continued(state: JobState, schedule: Schedule, start: datetime) -> PlannedTimes:
    """Return the times that follow from the job's state, without those up to `start`."""
    if counts_from_completion(schedule):
        return PlannedTimes(schedule, remaining_runs(state), state.next_at)
    max_times, next_at = remaining_runs(state), state.next_at
    if max_times is not None and next_at is not None and next_at <= start:
        max_times = max(0, max_times - 1 - count_times(schedule, next_at, start))
    return PlannedTimes(schedule, max_times)


def diff_schedules(
    before: PlannedTimes, after: PlannedTimes, start: datetime, days: int
) -> Sliced[ScheduleDiff]:
    """Compare the times after `start`, to the end of the local date that is `days` days later.

    1. A time of both schedules is unchanged.
    2. The others are grouped by local date, each in the zone of its schedule.
    3. If a date has equally many of both, they are pairs in order: moved.
    4. If not, those of the old schedule are removed, and those of the new one are added.
    """
    zone_name = before.zone_name if isinstance(after.schedule, Once) else after.zone_name
    end = _end_of_date(zone_name, start, days)
    _check_count((before, after), start, end, days)
    before_times = yield from _times(before, start, end)
    after_times = yield from _times(after, start, end)
    before_set, after_set = frozenset(before_times), frozenset(after_times)
    yield
    lost_by_day = yield from _by_day(before_times, after_set, before.zone_name)
    new_by_day = yield from _by_day(after_times, before_set, after.zone_name)
    added: list[datetime] = []
    removed: list[datetime] = []
    moved: list[MovedTime] = []
    for day in sorted(lost_by_day.keys() | new_by_day.keys()):
        lost, new = lost_by_day.get(day, []), new_by_day.get(day, [])
        if len(lost) == len(new):
            moved += map(MovedTime, lost, new)
        else:
            removed += lost
            added += new
        yield
    unchanged = [at for at in after_times if at in before_set]
    warnings = _warnings(before, before_times, after, after_times, start)
    return ScheduleDiff(end, sorted(added), sorted(removed), sorted(moved), unchanged, warnings)


def _end_of_date(zone_name: str, start: datetime, days: int) -> datetime:
    """Return the end of the local date `days` days after that of `start`."""
    midnight = (local_day(zone_name, start) + days + 1 - EPOCH_ORDINAL) * SECONDS_PER_DAY
    second = local_instant(midnight, transitions(zone_name), "NEXT", "FIRST")
    assert second is not None  # only SKIP returns None
    return EPOCH + timedelta(seconds=second)


def _check_count(
    planned: Sequence[PlannedTimes], start: datetime, end: datetime, days: int
) -> None:
    """Raise an error if a schedule has too many times. It names the days that are possible."""
    count = max(_count(times, start, end) for times in planned)
    if count > MAX_COMPARED_TIMES:
        possible_days = max(1, days * MAX_COMPARED_TIMES // count)
        text = (
            f"cover {count:,} times of a schedule, and at most {MAX_COMPARED_TIMES:,} can be "
            f"compared: ask for {possible_days}"
        )
        raise Invalid.of(FieldError("days", text))


def _count(planned: PlannedTimes, start: datetime, end: datetime) -> int:
    schedule = planned.schedule
    if isinstance(schedule, Every) and schedule.from_completion:
        count = (end - start) // (schedule.seconds * SECOND)
    else:
        count = count_times(schedule, start, end - MICROSECOND)
    return count if planned.max_times is None else min(count, planned.max_times)


def _times(planned: PlannedTimes, start: datetime, end: datetime) -> Sliced[list[datetime]]:
    """Return the times in (start, end). A one-time schedule also fires at `start`."""
    schedule = planned.schedule
    times: list[datetime] = []
    after = start - MICROSECOND if isinstance(schedule, Once) else start
    first_times: list[datetime] = []
    if planned.next_at is not None and planned.next_at > start:
        first_times, after = [planned.next_at], planned.next_at
    for at in chain(first_times, occurrences(schedule, after, end - MICROSECOND)):
        if at >= end or len(times) == planned.max_times:
            break
        times.append(at)
        if len(times) % _TIMES_PER_STEP == 0:
            yield
    yield
    return times


def _by_day(
    times: Sequence[datetime], unchanged: frozenset[datetime], zone_name: str
) -> Sliced[dict[int, list[datetime]]]:
    times_by_day: dict[int, list[datetime]] = {}
    for index, at in enumerate(times):
        if at not in unchanged:
            times_by_day.setdefault(local_day(zone_name, at), []).append(at)
        if index % _TIMES_PER_STEP == 0:
            yield
    return times_by_day


def _warnings(
    before: PlannedTimes,
    before_times: Sequence[datetime],
    after: PlannedTimes,
    after_times: Sequence[datetime],
    start: datetime,
) -> list[str]:
    """Return the warnings of both. A clock change that only one of them meets names it."""
    before_changes = clock_warnings(before.schedule, start, before_times)
    after_changes = clock_warnings(after.schedule, start, after_times)
    return [
        *before.warnings,
        *(text for text in before_changes if text in after_changes),
        *(f"Before: {text}" for text in before_changes if text not in after_changes),
        *(f"After: {text}" for text in after_changes if text not in before_changes),
        *(
            [_FROM_COMPLETION_WARNING]
            if counts_from_completion(before.schedule) or counts_from_completion(after.schedule)
            else []
        ),
    ]
