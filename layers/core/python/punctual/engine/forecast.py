"""What will run when, over all jobs of a tenant."""

import heapq
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain, islice

from punctual.domain.head import Head, State
from punctual.domain.run import Trigger
from punctual.domain.schedule import Every, Once, occurrences
from punctual.domain.zones import zone
from punctual.engine.ports import Body, Ports
from punctual.engine.views import Page, Upcoming

PAGE = 1_000
COUNTED = 10_000  # so many times of a job with max_runs are walked through to count them
_INSTANT = timedelta(microseconds=1)


class Forecast:
    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def upcoming(
        self, tenant: str, start: datetime, end: datetime, limit: int, after: tuple[str, ...] | None
    ) -> Page:
        """The times in [start, end), soonest first, behind `after` (time, job)."""
        past = (datetime.fromisoformat(after[0]), after[1]) if after else None
        begin = start if past is None else max(start, past[0])
        streams = [_times(head, body, begin, end) for head, body in self._active(tenant, end)]
        found: list[Upcoming] = []
        for at, job_id, name, timezone in heapq.merge(*streams):
            if past is not None and (at, job_id) <= past:
                continue
            if len(found) == limit:
                last = found[-1]
                return Page(found, (last.at.isoformat(), last.job_id))
            found.append(Upcoming(at, at.astimezone(zone(timezone)), job_id, name))
        return Page(found, None)

    def _active(self, tenant: str, end: datetime) -> Iterator[tuple[Head, Body]]:
        before: str | None = None
        while True:
            page = self._ports.heads.page(tenant, before, PAGE)
            for head, body in page.items:
                if (
                    head.state is State.SCHEDULED
                    and head.next_at is not None
                    and head.next_at < end
                ):
                    yield head, body
            before = page.before
            if before is None:
                return


def _times(
    head: Head, body: Body, start: datetime, end: datetime
) -> Iterator[tuple[datetime, str, str, str]]:
    schedule = head.schedule
    first = head.next_at
    if schedule is None or first is None:
        return
    timezone = "UTC" if isinstance(schedule, Once) else schedule.timezone
    from_completion = isinstance(schedule, Every) and schedule.from_completion
    times: Iterator[datetime]
    if from_completion:  # what follows depends on when that run ends
        times = iter([first] if first >= start else [])
    elif (left := _left(head)) is not None:
        every = chain([first], occurrences(schedule, first, end - _INSTANT))
        times = (at for at in islice(every, left) if at >= start)
    else:
        own = [first] if first >= start else []
        times = chain(own, occurrences(schedule, max(first, start - _INSTANT), end - _INSTANT))
    for at in times:
        yield at, head.job_id, body.name, timezone


def _left(head: Head) -> int | None:
    """How many more times max_runs lets it fire, if each starts; None for what is not counted."""
    if head.limits.max_runs is None:
        return None
    begun = head.started + sum(
        run.trigger is Trigger.SCHEDULE and not run.begun for run in head.runs
    )
    begun += sum(waiting.trigger is Trigger.SCHEDULE for waiting in head.line)
    left = max(0, head.limits.max_runs - begun)
    return left if left <= COUNTED else None
