"""The upcoming occurrences of jobs, for the lists over all jobs."""

from datetime import datetime
from typing import NamedTuple

from punctual.domain.job_state import JobState, JobStatus, MisfirePolicy
from punctual.domain.run import Run, RunStatus, Trigger
from punctual.domain.schedules.count import count_times, nth_time
from punctual.domain.schedules.schedule import after_completion, last_before, next_after
from punctual.domain.schedules.values import Every, Once, counts_from_completion
from punctual.domain.transitions.wait_queue import MAX_CAUGHT_UP_RUNS
from punctual.domain.utc import MICROSECOND


def is_fired_ahead(run: Run) -> bool:
    """Return whether the run was queued before its due time and has not begun."""
    return (
        run.status is RunStatus.QUEUED
        and run.trigger is Trigger.SCHEDULE
        and run.created_at < run.due_at
        and not run.has_begun
    )


def next_run_at(state: JobState) -> datetime | None:
    """Return the nominal time of the next occurrence that has not begun, also if fired ahead.

    A job that is not SCHEDULED has none. Lists show this time and sort by it.
    """
    if state.status is not JobStatus.SCHEDULED:
        return None
    next_at = state.next_at
    for run in state.runs:
        if is_fired_ahead(run) and (next_at is None or run.scheduled_at < next_at):
            next_at = run.scheduled_at
    return next_at


def upcoming_at(state: JobState) -> datetime | None:
    """Return a time before which no occurrence is to come, or None if none is to come.

    It is the next run, or for a pause that ends by itself the end of the pause if that is later.
    """
    resumes_at = _resumes_at(state)
    if resumes_at is None or state.next_at is None:
        return next_run_at(state)
    return max(state.next_at, resumes_at)


def may_repeat(state: JobState) -> bool:
    """Return whether more occurrences may follow the first, at times known now."""
    schedule = state.schedule
    if schedule is None or isinstance(schedule, Once):
        return False
    if counts_from_completion(schedule):
        return upcoming_at(state) != state.next_at
    return True


class NextTimes(NamedTuple):
    """The occurrences of a job from `first_at` on, at most `max_times` of them.

    `caught_up` is the number of earlier runs that start when a pause ends.
    """

    first_at: datetime | None
    max_times: int | None
    caught_up: int = 0


def next_times(state: JobState) -> NextTimes:
    """Return the occurrences to come, without runs fired ahead.

    A pause that ends by itself ends as planned, and the misfire policy decides about what it held.
    """
    schedule, first_at, max_times = state.schedule, state.next_at, remaining_runs(state)
    resumes_at = _resumes_at(state)
    if schedule is None or first_at is None:
        return NextTimes(None, 0)
    if state.status is JobStatus.SCHEDULED or (resumes_at is not None and first_at >= resumes_at):
        return NextTimes(first_at, max_times)
    if resumes_at is None:
        return NextTimes(None, 0)
    if isinstance(schedule, Every) and schedule.from_completion:
        held, first_at = 1, after_completion(schedule, resumes_at + state.limits.jitter)
    else:
        held = 1 + count_times(schedule, first_at, resumes_at - MICROSECOND)
        first_at = next_after(schedule, resumes_at - MICROSECOND)
    caught_up = _caught_up_runs(state.limits.misfire, held)
    if max_times is None:
        return NextTimes(first_at, None, caught_up)
    caught_up = min(caught_up, max_times)
    return NextTimes(first_at, max_times - caught_up, caught_up)


def _resumes_at(state: JobState) -> datetime | None:
    """Return the earliest nominal time that is due when the pause ends, or None without an end."""
    if state.status is not JobStatus.PAUSED or state.pause is None or state.pause.until is None:
        return None
    return state.pause.until - state.limits.jitter


def _caught_up_runs(policy: MisfirePolicy, held: int) -> int:
    if policy is MisfirePolicy.SKIP:
        return 0
    return 1 if policy is MisfirePolicy.RUN_ONCE else min(held, MAX_CAUGHT_UP_RUNS)


def remaining_runs(state: JobState) -> int | None:
    """Return how many more occurrences `max_runs` allows, or None without `max_runs`.

    The count assumes that every live or waiting scheduled run starts.
    """
    if state.limits.max_runs is None:
        return None
    started_runs = state.started_runs + sum(
        run.trigger is Trigger.SCHEDULE and not run.has_begun for run in state.runs
    )
    started_runs += sum(waiting.trigger is Trigger.SCHEDULE for waiting in state.wait_queue)
    return max(0, state.limits.max_runs - started_runs)


def last_occurrence_at(state: JobState, until: datetime) -> datetime | None:
    """Return the last occurrence to come, searched up to `until`, or None without a bound."""
    if state.next_at is None:
        return state.planned_until
    remaining = remaining_runs(state)
    if remaining == 0:
        return state.planned_until
    schedule = state.schedule
    if remaining is None or schedule is None or counts_from_completion(schedule):
        return None
    if count_times(schedule, state.next_at, until) >= remaining - 1:
        return state.next_at if remaining == 1 else nth_time(schedule, state.next_at, remaining - 1)
    return max(state.next_at, last_before(schedule, until + MICROSECOND) or state.next_at)


OccurrencePosition = tuple[datetime, str]  # time and job id of an occurrence, the order of lists
