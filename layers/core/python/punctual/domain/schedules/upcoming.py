"""The coming occurrences of jobs, for the lists over all jobs."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from operator import itemgetter

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Run, RunStatus, Trigger
from punctual.domain.schedules.count import count_times, nth_time
from punctual.domain.schedules.schedule import last_before
from punctual.domain.schedules.values import Once, counts_from_completion

_INSTANT = timedelta(microseconds=1)


def is_fired_ahead(run: Run) -> bool:
    """Return whether the run was queued before its due time and has not begun."""
    return (
        run.status is RunStatus.QUEUED
        and run.trigger is Trigger.SCHEDULE
        and run.created_at < run.due_at
        and not run.begun
    )


def first_coming(head: JobState) -> datetime | None:
    """Return the nominal time of the earliest occurrence that has not begun, also fired ahead."""
    next_at = head.next_at if head.state is JobStatus.SCHEDULED else None
    for run in head.runs:
        if is_fired_ahead(run) and (next_at is None or run.scheduled_at < next_at):
            next_at = run.scheduled_at
    return next_at


def comes_again(head: JobState) -> bool:
    """Return whether more occurrences may follow the first, at times known now."""
    schedule = head.schedule
    if schedule is None or isinstance(schedule, Once):
        return False
    if counts_from_completion(schedule):
        return first_coming(head) != head.next_at
    return True


def left(head: JobState) -> int | None:
    """Return how many more occurrences `max_runs` allows, or None without `max_runs`.

    The count assumes that every live or waiting scheduled run starts.
    """
    if head.limits.max_runs is None:
        return None
    begun = head.started + sum(
        run.trigger is Trigger.SCHEDULE and not run.begun for run in head.runs
    )
    begun += sum(waiting.trigger is Trigger.SCHEDULE for waiting in head.line)
    return max(0, head.limits.max_runs - begun)


def last_coming(head: JobState, until: datetime) -> datetime | None:
    """Return the last occurrence to come, searched up to `until`, or None without a bound."""
    if head.next_at is None:
        return head.mark
    number = left(head)
    if number == 0:
        return head.mark
    schedule = head.schedule
    if number is None or schedule is None or counts_from_completion(schedule):
        return None
    if count_times(schedule, head.next_at, until) >= number - 1:
        return head.next_at if number == 1 else nth_time(schedule, head.next_at, number - 1)
    return max(head.next_at, last_before(schedule, until + _INSTANT) or head.next_at)


Place = tuple[datetime, str]  # time and job id of an occurrence, the order of lists


def in_order(
    heads: Iterable[JobState], after: Place, end: datetime, limit: int
) -> tuple[list[JobState], Place | None]:
    """Return the first `limit` job states after `after`, and earlier ones that come again.

    The second value is the place of the last job state, or None if no more can follow.
    """
    places = [
        ((at, head.job_id), head)
        for head in heads
        if (at := first_coming(head)) is not None and at < end
    ]
    before = [head for place, head in places if place <= after and comes_again(head)]
    behind = [(place, head) for place, head in places if place > after]
    following = sorted(behind, key=itemgetter(0))[:limit]
    until = following[-1][0] if following and len(following) == limit else None
    return [*before, *(head for _, head in following)], until
