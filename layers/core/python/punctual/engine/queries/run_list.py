"""Lists of runs, a page at a time: the runs in job states merged with the history."""

import heapq
from collections.abc import Sequence
from datetime import datetime

from punctual.domain.job_state import JobState
from punctual.engine.changes.run_results import RunResults
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries import run_views
from punctual.engine.queries.filters import RunFilters, TimeField
from punctual.engine.queries.run_views import WaitsForResources
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Page, RunView

MAX_PAGES_READ = 5  # pages read for one answer, which may be short
FILTERED_PAGE_SIZE = 50  # smallest page, in rows, if a filter may pass few of them
UNINDEXED_PAGE_SIZE = 500  # smallest page, in rows, for filters that ids cannot answer

_Position = tuple[str, str]


class RunList:
    """Lists runs, newest first. Job states are read first, so a run cannot end between the reads.

    On AWS the history over all jobs follows the stream of job states and lags by seconds. A run
    that ended and left its job state is missing from that list until then, for at most 10 s.
    """

    def __init__(
        self, job_states: JobStates, history: History, waits_for_resources: WaitsForResources
    ) -> None:
        self._waits_for_resources = waits_for_resources
        self._job_states = job_states
        self._history = history
        self._results = RunResults(history)

    def page_of_job(
        self,
        state: JobState,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Page:
        key = JobKey(state.tenant, state.job_id)
        before = _min_bound(after[0] if after else None, filters.id_upper_bound)
        lower_bound = filters.id_lower_bound if filters.excludes_bulk else None
        page_size = _page_size(filters, limit)
        state_views = [
            view
            for view in run_views.runs_in_state(state, now, self._waits_for_resources)
            if filters.matches(view.run)
        ]
        page_views: list[RunView] = []
        for _ in range(MAX_PAGES_READ):
            rows = self._history.page(key, before, lower_bound, page_size, now)
            last = rows[-1].run.run_id if len(rows) == page_size else None
            recorded_ids = {row.run.run_id for row in rows}
            candidates = [
                view
                for view in state_views
                if view.run.run_id not in recorded_ids
                and _is_on_page(view.run.run_id, before, last)
            ]
            candidates = self._with_results(candidates, limit - len(page_views), now)
            recorded_views = [
                run_views.view_of_row(row) for row in rows if filters.matches(row.run)
            ]
            page_views.extend(sorted([*candidates, *recorded_views], key=_position, reverse=True))
            before = last
            if len(page_views) >= limit:
                return Page(page_views[:limit], (page_views[limit - 1].run.run_id,))
            if lower_bound is None and filters.is_past_range(row.run for row in rows):
                lower_bound = filters.id_lower_bound
            if before is None or (lower_bound is not None and before <= lower_bound):
                return Page(page_views, None)
        return Page(page_views, (before,) if before else None)

    def page_of_tenant(
        self,
        tenant: str,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Sliced[Page]:
        """Return a page of the runs of all jobs.

        Below the filter's range only an entry for many occurrences can pass. There an answer reads
        at most one large page.
        """
        before = (after[0], after[1]) if after else None
        if (upper_bound := filters.id_upper_bound) is not None and (
            before is None or upper_bound < before[0]
        ):
            before = (upper_bound, "")
        lower_bound = filters.id_lower_bound if filters.excludes_bulk else None
        page_size = _page_size(filters, limit)
        newest: list[tuple[_Position, RunView]] = []  # live runs, at most as many as a page shows
        for state in self._job_states.active_states(tenant):
            for view in run_views.runs_in_state(state, now, self._waits_for_resources):
                if filters.matches(view.run) and _is_on_page(_position(view), before, None):
                    _keep_newest(newest, view, limit)
            yield
        state_views = [view for _, view in newest]
        page_views: list[RunView] = []
        for _ in range(MAX_PAGES_READ):
            is_below_range = before is not None and before[0] <= (filters.id_lower_bound or "")
            if is_below_range:
                page_size = max(limit, UNINDEXED_PAGE_SIZE)
            rows = self._history.page_all(tenant, before, page_size, now)
            last = (rows[-1].run.run_id, rows[-1].job_id) if len(rows) == page_size else None
            recorded_ids = {row.run.run_id for row in rows}
            candidates = [
                view
                for view in state_views
                if view.run.run_id not in recorded_ids
                and _is_on_page(_position(view), before, last)
            ]
            candidates = self._with_results(candidates, limit - len(page_views), now)
            recorded_views = [
                run_views.view_of_row(row) for row in rows if filters.matches(row.run)
            ]
            page_views.extend(sorted([*candidates, *recorded_views], key=_position, reverse=True))
            before = last
            if len(page_views) >= limit:
                return Page(page_views[:limit], _position(page_views[limit - 1]))
            if before is None or (lower_bound is not None and before[0] <= lower_bound):
                return Page(page_views, None)
            if is_below_range:
                break
            yield
        return Page(page_views, before)

    def _with_results(
        self, candidates: Sequence[RunView], limit: int, now: datetime
    ) -> list[RunView]:
        """Return the runs that fit on the page, the ended ones with their output."""
        newest = sorted(candidates, key=_position, reverse=True)[:limit]
        return self._results.with_results(newest, now)


def _page_size(filters: RunFilters, limit: int) -> int:
    """Return how many rows a page reads: more if the ids do not tell which runs may pass."""
    if filters._replace(time_field=TimeField.SCHEDULED) == RunFilters():
        return limit
    return max(limit, FILTERED_PAGE_SIZE if filters.is_by_id else UNINDEXED_PAGE_SIZE)


def _keep_newest(newest: list[tuple[_Position, RunView]], view: RunView, limit: int) -> None:
    """Add a run to the heap of the `limit` newest runs."""
    if len(newest) < limit:
        heapq.heappush(newest, (_position(view), view))
    elif _position(view) > newest[0][0]:
        heapq.heapreplace(newest, (_position(view), view))


def _min_bound(first: str | None, second: str | None) -> str | None:
    return min((bound for bound in (first, second) if bound is not None), default=None)


def _position(view: RunView) -> _Position:
    return (view.run.run_id, view.job_id)


def _is_on_page(
    position: str | _Position, before: str | _Position | None, last: str | _Position | None
) -> bool:
    """Return whether a run falls on the page from below `before` down to `last`."""
    return (before is None or position < before) and (last is None or position >= last)  # type: ignore[operator]
