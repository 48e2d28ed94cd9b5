"""What of a job is still to come, as lists over all jobs show it."""

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
    """Whether it was queued before its time, and has not begun."""
    return (
        run.status is RunStatus.QUEUED
        and run.trigger is Trigger.SCHEDULE
        and run.created_at < run.due_at
        and not run.begun
    )


def first_coming(head: JobState) -> datetime | None:
    """The earliest occurrence that has not begun, nominal: one fired ahead, or the next."""
    next_at = head.next_at if head.state is JobStatus.SCHEDULED else None
    for run in head.runs:
        if is_fired_ahead(run) and (next_at is None or run.scheduled_at < next_at):
            next_at = run.scheduled_at
    return next_at


def comes_again(head: JobState) -> bool:
    """Whether more than the first may come, at times that are known by now."""
    schedule = head.schedule
    if schedule is None or isinstance(schedule, Once):
        return False
    if counts_from_completion(schedule):
        return first_coming(head) != head.next_at
    return True


def left(head: JobState) -> int | None:
    """How many more times max_runs lets it fire, if each starts; None for what is not counted."""
    if head.limits.max_runs is None:
        return None
    begun = head.started + sum(
        run.trigger is Trigger.SCHEDULE and not run.begun for run in head.runs
    )
    begun += sum(waiting.trigger is Trigger.SCHEDULE for waiting in head.line)
    return max(0, head.limits.max_runs - begun)


def last_coming(head: JobState, until: datetime) -> datetime | None:
    """The last occurrence there is to be, as far as `until`; None where nothing bounds them."""
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


Place = tuple[datetime, str]  # the time and job of an occurrence: the order of lists


def in_order(
    heads: Iterable[JobState], after: Place, end: datetime, limit: int
) -> tuple[list[JobState], Place | None]:
    """The `limit` that come first behind `after`, with those before it that come again.

    And the place of the last, if there may be more.
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
