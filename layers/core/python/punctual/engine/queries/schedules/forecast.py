"""Forecasts how many runs start in each minute or hour, over all jobs of a tenant."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.job_state import JobState
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import next_after
from punctual.domain.schedules.start_counts import MINUTE, PlannedStarts, StartCounts
from punctual.domain.schedules.upcoming import is_fired_ahead, next_times
from punctual.domain.schedules.values import counts_from_completion
from punctual.domain.utc import MICROSECOND
from punctual.engine.ports.job_states import JobStates
from punctual.engine.queries.slices import Sliced

HOUR = timedelta(hours=1)
MAX_HOURS_BY_MINUTE = 24  # a longer forecast is shown by hour
MAX_FORECAST_HOURS = 7 * 24
_JOBS_PER_STEP = 100


class StartCount(NamedTuple):
    """The number of starts in the minute or hour that begins at `at`."""

    at: datetime
    number: int


class Forecast(NamedTuple):
    """The starts after `start` and before `end`, without those that are due at once.

    `busiest` is a minute, also of a forecast by hour. Intervals from completion are counted as if
    their runs took no time; `from_completion_jobs` is the number of these jobs.
    """

    start: datetime
    end: datetime
    step: timedelta
    starts: Sequence[StartCount]
    busiest: StartCount | None
    job_count: int
    from_completion_jobs: int


def forecast_starts(
    job_states: JobStates, tenant: str, hours: int, now: datetime
) -> Sliced[Forecast]:
    """Count the scheduled starts of the next `hours`, from the full minute or hour of `now` on."""
    step = MINUTE if hours <= MAX_HOURS_BY_MINUTE else HOUR
    start = now.replace(second=0, microsecond=0)
    if step == HOUR:
        start = start.replace(minute=0)
    end = start + hours * HOUR
    counts = StartCounts(start, hours * HOUR // MINUTE)
    seen_ids: set[str] = set()
    from_completion_jobs = 0
    for index, state in enumerate(job_states.scheduled_states(tenant, end)):
        if index % _JOBS_PER_STEP == 0:
            yield
        if state.job_id in seen_ids:
            continue
        seen_ids.add(state.job_id)
        from_completion_jobs += counts_from_completion(state.schedule)
        for run in state.runs:
            if is_fired_ahead(run) and run.due_at > now:
                counts.add_start(run.due_at)
        yield from _add_scheduled(counts, state, now)
    yield from counts.finish()
    minutes = counts.minutes
    size = step // MINUTE
    starts = [
        StartCount(start + index * MINUTE, sum(minutes[index : index + size]))
        for index in range(0, len(minutes), size)
    ]
    busiest = max(range(len(minutes)), key=minutes.__getitem__)
    return Forecast(
        now,
        end,
        step,
        starts,
        StartCount(start + busiest * MINUTE, minutes[busiest]) if minutes[busiest] else None,
        len(seen_ids),
        from_completion_jobs,
    )


def _add_scheduled(counts: StartCounts, state: JobState, now: datetime) -> Sliced[None]:
    """Add the starts of a job that are due from `now` on, without runs fired ahead."""
    schedule, jitter = state.schedule, state.limits.jitter
    first_at, max_times, caught_up = next_times(state)
    if caught_up and state.pause is not None and state.pause.until is not None:
        counts.add_start(state.pause.until, caught_up)
    if schedule is None or first_at is None:
        return
    after = now - jitter - MICROSECOND
    if first_at <= after:  # it is due and about to be evaluated
        if counts_from_completion(schedule):
            return
        if max_times is not None:
            max_times = max(0, max_times - 1 - count_times(schedule, first_at, after))
        first_at = next_after(schedule, after)
    if first_at is not None:
        yield from counts.add(PlannedStarts(schedule, first_at, jitter, max_times))
