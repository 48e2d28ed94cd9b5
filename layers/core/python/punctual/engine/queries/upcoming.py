"""Lists upcoming occurrences over all jobs of a tenant."""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import chain, islice
from typing import NamedTuple

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import occurrences
from punctual.domain.schedules.timezones import zone
from punctual.domain.schedules.upcoming import Place, first_coming, is_fired_ahead, left
from punctual.domain.schedules.values import Once, counts_from_completion
from punctual.engine.ports.job_states import JobStates
from punctual.engine.queries.cursor import moment_in
from punctual.engine.queries.job_list import JobList
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Page, Upcoming

MOST = 2_000  # jobs merged for one answer
PART = 500  # jobs in a part, for a tenant with more jobs than `MOST`
PARTS = 4  # parts read for one answer while they are empty
_INSTANT = timedelta(microseconds=1)
_ENDLESS = "~"  # sorts after every id that starts with the text before it


class _Window(NamedTuple):
    """Times after `after` and before `end`, as seen at `now`."""

    after: Place
    end: datetime
    now: datetime


class _Part(NamedTuple):
    """A range of job ids from `low` to below `top`. An empty bound is open.

    The list of each part begins at `origin`.
    """

    origin: Place
    top: str
    low: str


class UpcomingRuns:
    """Lists times, soonest first. A tenant with more jobs than `most` gets them in parts.

    Each page reads a bounded number of job states. Parts are ranges of job ids, which never change.
    So the list has no gaps and no doubles while jobs run and new jobs arrive.
    """

    def __init__(
        self, heads: JobStates, listing: JobList, most: int = MOST, part: int = PART
    ) -> None:
        self._heads = heads
        self._listing = listing
        self._most = most
        self._part = part

    def upcoming(
        self,
        tenant: str,
        start: datetime,
        end: datetime,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Sliced[Page]:
        """Return the times in [start, end) after the cursor `after`."""
        place: Place = (start, "")
        if after is not None:
            place = max(place, _place(after))
        window = _Window(place, end, now)
        if after is not None and len(after) > 2:
            part = _Part(_place(after[2:]), *after[4:])
            return (yield from self._of_parts(tenant, window, part, limit))
        found = self._heads.coming(tenant, place, end, limit + 1, self._most)
        if found is None:
            return (yield from self._of_parts(tenant, window, _Part(place, "", ""), limit))
        times = yield from _merged(found.heads, window, found.until, limit + 1)
        last: Place | None = found.until
        if len(times) > limit:
            times = times[:limit]
            last = times[-1][0]
        return Page(self._shown(times), None if last is None else _text(last))

    def _of_parts(self, tenant: str, window: _Window, part: _Part, limit: int) -> Sliced[Page]:
        for _ in range(PARTS):
            here, following = self._listing.page(tenant, part.top or None, self._part)
            heads = [head for head, _ in here if head.job_id >= part.low]
            if not part.top and heads:  # excludes jobs created after the first page
                part = part._replace(top=heads[0].job_id + _ENDLESS)
            part = part._replace(low=part.low or following or "")
            times = yield from _merged(heads, window, None, limit + 1)
            if len(times) > limit:
                last = times[limit - 1][0]
                return Page(self._shown(times[:limit]), _text(last, part))
            if not part.low:
                return Page(self._shown(times), None)
            part = _Part(part.origin, part.low, "")
            window = window._replace(after=part.origin)
            if times:
                break
        return Page(self._shown(times), _text(part.origin, part))

    def _shown(self, times: Sequence[tuple[Place, JobState]]) -> list[Upcoming]:
        bodies = self._listing.definitions([head for _, head in times])
        return [
            Upcoming(at, at.astimezone(zone(_zone(head))), job_id, bodies[job_id].name)
            for (at, job_id), head in times
            if job_id in bodies
        ]


def _merged(
    heads: Sequence[JobState], window: _Window, until: Place | None, most: int
) -> Sliced[list[tuple[Place, JobState]]]:
    """Return the first times of these jobs in order, up to `until`.

    Later times may be incomplete.
    """
    coming: list[tuple[Place, int, Iterator[Place]]] = []
    for number, head in enumerate(heads):
        stream = _times(head, window) if _comes(head, window.end) else iter(())
        coming += [(place, number, stream) for place in islice(stream, 1)]
        yield
    heapq.heapify(coming)
    found: list[tuple[Place, JobState]] = []
    while coming and len(found) < most:
        place, number, stream = coming[0]
        if until is not None and place > until:
            break
        if place > window.after:
            found.append((place, heads[number]))
        following = next(stream, None)
        if following is None:
            heapq.heappop(coming)
        else:
            heapq.heapreplace(coming, (following, number, stream))
        yield
    return found


def _comes(head: JobState, end: datetime) -> bool:
    at = first_coming(head)
    return at is not None and at < end


def _times(head: JobState, window: _Window) -> Iterator[Place]:
    start, end = window.after[0], window.end
    ahead = sorted(
        run.scheduled_at
        for run in head.runs
        if is_fired_ahead(run) and run.due_at > window.now and start <= run.scheduled_at < end
    )
    for at in chain(ahead, _scheduled(head, start, end)):
        yield at, head.job_id


def _scheduled(head: JobState, start: datetime, end: datetime) -> Iterator[datetime]:
    schedule = head.schedule
    first = head.next_at
    if schedule is None or first is None or first >= end or head.state is not JobStatus.SCHEDULED:
        return iter(())
    if counts_from_completion(schedule):
        return iter([first] if first >= start else [])  # later times depend on the end of that run
    own = [first] if first >= start else []
    every = chain(own, occurrences(schedule, max(first, start - _INSTANT), end - _INSTANT))
    number = left(head)
    if number is not None and first < start:
        number -= 1 + count_times(schedule, first, start - _INSTANT)
    return every if number is None else islice(every, max(0, number))


def _zone(head: JobState) -> str:
    schedule = head.schedule
    return "UTC" if schedule is None or isinstance(schedule, Once) else schedule.timezone


def _place(text: Sequence[str]) -> Place:
    return moment_in(text[0]), text[1]


def _text(place: Place, part: _Part | None = None) -> tuple[str, ...]:
    own = (place[0].isoformat(), place[1])
    if part is None:
        return own
    return (*own, part.origin[0].isoformat(), part.origin[1], part.top, part.low)
