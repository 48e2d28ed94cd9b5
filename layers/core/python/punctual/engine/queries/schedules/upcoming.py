"""Lists upcoming occurrences over all jobs of a tenant."""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import NamedTuple

from punctual.domain.job_state import JobState
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import occurrences
from punctual.domain.schedules.timezones import zone
from punctual.domain.schedules.upcoming import (
    OccurrencePosition,
    is_fired_ahead,
    next_times,
    upcoming_at,
)
from punctual.domain.schedules.values import Once, counts_from_completion
from punctual.domain.utc import MICROSECOND
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import Page
from punctual.engine.queries.cursor import time_in_cursor
from punctual.engine.queries.job_list import JobList
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import UpcomingOccurrence

MAX_MERGED_JOBS = 2_000  # jobs merged for one answer
JOBS_PER_PART = 500  # jobs in a part, for a tenant with more jobs than `MAX_MERGED_JOBS`
MAX_PARTS_READ = 4  # parts read for one answer while they are empty
_AFTER_ALL_IDS = "~"  # sorts after every id that starts with the text before it


class _Window(NamedTuple):
    """Times after `after` and before `end`, as seen at `now`."""

    after: OccurrencePosition
    end: datetime
    now: datetime


class _Part(NamedTuple):
    """A range of job ids from `lower_id` to below `upper_id`. An empty bound is open.

    The list of each part begins at `origin`.
    """

    origin: OccurrencePosition
    upper_id: str
    lower_id: str


class UpcomingRuns:
    """Lists times, soonest first. A tenant with more jobs than `max_jobs` gets them in parts.

    Each page reads a bounded number of job states. Parts are ranges of job ids, which never change.
    So the list has no gaps and no doubles while jobs run and new jobs arrive.
    """

    def __init__(
        self,
        job_states: JobStates,
        job_list: JobList,
        max_jobs: int = MAX_MERGED_JOBS,
        part_size: int = JOBS_PER_PART,
    ) -> None:
        self._job_states = job_states
        self._job_list = job_list
        self._max_jobs = max_jobs
        self._part_size = part_size

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
        position: OccurrencePosition = (start, "")
        if after is not None:
            position = max(position, _parse_position(after))
        window = _Window(position, end, now)
        if after is not None and len(after) > 2:
            part = _Part(_parse_position(after[2:]), *after[4:])
            return (yield from self._page_of_parts(tenant, window, part, limit))
        upcoming = self._job_states.upcoming(tenant, position, end, limit + 1, self._max_jobs)
        if upcoming is None:
            return (yield from self._page_of_parts(tenant, window, _Part(position, "", ""), limit))
        times = yield from _merge_times(upcoming.states, window, upcoming.complete_until, limit + 1)
        last: OccurrencePosition | None = upcoming.complete_until
        if len(times) > limit:
            times = times[:limit]
            last = times[-1][0]
        return Page(self._upcoming_views(times), None if last is None else _cursor(last))

    def upcoming_of_job(
        self,
        state: JobState,
        start: datetime,
        end: datetime,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Sliced[Page]:
        """Return the times of one job in [start, end) after the cursor `after`."""
        position: OccurrencePosition = (start, "")
        if after is not None:
            position = max(position, _parse_position(after))
        times = yield from _merge_times([state], _Window(position, end, now), None, limit + 1)
        last = times[limit - 1][0] if len(times) > limit else None
        views = self._upcoming_views(times[:limit])
        return Page(views, None if last is None else _cursor(last))

    def _page_of_parts(self, tenant: str, window: _Window, part: _Part, limit: int) -> Sliced[Page]:
        for _ in range(MAX_PARTS_READ):
            jobs, next_before = self._job_list.page(tenant, part.upper_id or None, self._part_size)
            states = [state for state, _ in jobs if state.job_id >= part.lower_id]
            if not part.upper_id and states:  # excludes jobs created after the first page
                part = part._replace(upper_id=states[0].job_id + _AFTER_ALL_IDS)
            part = part._replace(lower_id=part.lower_id or next_before or "")
            times = yield from _merge_times(states, window, None, limit + 1)
            if len(times) > limit:
                last = times[limit - 1][0]
                return Page(self._upcoming_views(times[:limit]), _cursor(last, part))
            if not part.lower_id:
                return Page(self._upcoming_views(times), None)
            part = _Part(part.origin, part.lower_id, "")
            window = window._replace(after=part.origin)
            if times:
                break
        return Page(self._upcoming_views(times), _cursor(part.origin, part))

    def _upcoming_views(
        self, times: Sequence[tuple[OccurrencePosition, JobState]]
    ) -> list[UpcomingOccurrence]:
        definitions = self._job_list.load_definitions([state for _, state in times])
        return [
            UpcomingOccurrence(
                at, at.astimezone(zone(_timezone_name(state))), job_id, definitions[job_id].name
            )
            for (at, job_id), state in times
            if job_id in definitions
        ]


def _merge_times(
    states: Sequence[JobState], window: _Window, until: OccurrencePosition | None, limit: int
) -> Sliced[list[tuple[OccurrencePosition, JobState]]]:
    """Return the first times of these jobs in order, up to `until`.

    Later times may be incomplete.
    """
    heap: list[tuple[OccurrencePosition, int, Iterator[OccurrencePosition]]] = []
    for index, state in enumerate(states):
        positions = (
            _upcoming_positions(state, window) if _has_upcoming(state, window.end) else iter(())
        )
        heap += [(position, index, positions) for position in islice(positions, 1)]
        yield
    heapq.heapify(heap)
    times: list[tuple[OccurrencePosition, JobState]] = []
    while heap and len(times) < limit:
        position, index, positions = heap[0]
        if until is not None and position > until:
            break
        if position > window.after:
            times.append((position, states[index]))
        next_position = next(positions, None)
        if next_position is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (next_position, index, positions))
        yield
    return times


def _has_upcoming(state: JobState, end: datetime) -> bool:
    at = upcoming_at(state)
    return at is not None and at < end


def _upcoming_positions(state: JobState, window: _Window) -> Iterator[OccurrencePosition]:
    start, end = window.after[0], window.end
    fired_ahead = sorted(
        run.scheduled_at
        for run in state.runs
        if is_fired_ahead(run) and run.due_at > window.now and start <= run.scheduled_at < end
    )
    for at in chain(fired_ahead, _scheduled_times(state, start, end)):
        yield at, state.job_id


def _scheduled_times(state: JobState, start: datetime, end: datetime) -> Iterator[datetime]:
    schedule = state.schedule
    first, max_times, _ = next_times(state)
    if schedule is None or first is None or first >= end:
        return iter(())
    if counts_from_completion(schedule):
        return iter([first] if first >= start else [])  # later times depend on the end of that run
    first_times = [first] if first >= start else []
    all_times = chain(
        first_times, occurrences(schedule, max(first, start - MICROSECOND), end - MICROSECOND)
    )
    if max_times is not None and first < start:
        max_times -= 1 + count_times(schedule, first, start - MICROSECOND)
    return all_times if max_times is None else islice(all_times, max(0, max_times))


def _timezone_name(state: JobState) -> str:
    schedule = state.schedule
    return "UTC" if schedule is None or isinstance(schedule, Once) else schedule.timezone


def _parse_position(text: Sequence[str]) -> OccurrencePosition:
    return time_in_cursor(text[0]), text[1]


def _cursor(position: OccurrencePosition, part: _Part | None = None) -> tuple[str, ...]:
    cursor = (position[0].isoformat(), position[1])
    if part is None:
        return cursor
    return (*cursor, part.origin[0].isoformat(), part.origin[1], part.upper_id, part.lower_id)
