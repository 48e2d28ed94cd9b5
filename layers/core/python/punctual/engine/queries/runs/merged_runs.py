"""The list of runs over all jobs, merged from job states and history rows.

The node has this list, and the simulation. On AWS the list has rows of its own.
"""

import heapq
from collections.abc import Sequence
from datetime import datetime

from punctual.engine.changes.run_results import RunResults
from punctual.engine.ports.history import ListedHistory
from punctual.engine.ports.job_states import ActiveStates
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import Page, RunRow
from punctual.engine.queries import run_views
from punctual.engine.queries.run_views import WaitsForResources, waits_for_nothing
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.engine.queries.runs.run_list import (
    MAX_PAGES_READ,
    UNINDEXED_PAGE_SIZE,
    Position,
    is_on_page,
    page_size_of,
    position_of,
    with_newest_results,
)
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import RunView


class MergedRuns:
    """Reads job states first, so that a run cannot end between the two reads."""

    def __init__(
        self,
        job_states: ActiveStates,
        history: ListedHistory,
        waits_for_resources: WaitsForResources = waits_for_nothing,
    ) -> None:
        self._waits_for_resources = waits_for_resources
        self._job_states = job_states
        self._history = history
        self._results = RunResults(history)
        self._labels = JobLabels(job_states)

    def page(
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
        before = _first_position(filters, after)
        lower_bound = filters.id_lower_bound if filters.excludes_bulk else None
        page_size = page_size_of(filters, limit)
        live_views = yield from self._live_views(tenant, filters, limit, before, now)
        page_views: list[RunView] = []
        for _ in range(MAX_PAGES_READ):
            is_below_range = before is not None and before[0] <= (filters.id_lower_bound or "")
            if is_below_range:
                page_size = max(limit, UNINDEXED_PAGE_SIZE)
            rows, last = self._history.page_all(tenant, filters, before, page_size, now)
            recorded_ids = {row.run.run_id for row in rows}
            candidates = [
                view
                for view in live_views
                if view.run.run_id not in recorded_ids
                and is_on_page(position_of(view), before, last)
            ]
            candidates = with_newest_results(
                self._results, candidates, limit - len(page_views), now
            )
            recorded_views = self._matching_views(filters, rows)
            page_views.extend(sorted([*candidates, *recorded_views], key=position_of, reverse=True))
            before = last
            if len(page_views) >= limit:
                return Page(page_views[:limit], position_of(page_views[limit - 1]))
            if before is None or (lower_bound is not None and before[0] <= lower_bound):
                return Page(page_views, None)
            if is_below_range or len(rows) < page_size:
                break
            yield
        return Page(page_views, before)

    def _live_views(
        self,
        tenant: str,
        filters: RunFilters,
        limit: int,
        before: Position | None,
        now: datetime,
    ) -> Sliced[list[RunView]]:
        """Return the newest live runs that match, at most as many as a page shows."""
        newest: list[tuple[Position, RunView]] = []
        for state in self._job_states.active_states(tenant):
            label = self._labels.of_state(state) if filters.is_by_job else None
            for view in run_views.runs_in_state(state, now, self._waits_for_resources):
                if is_on_page(position_of(view), before, None) and filters.matches(view.run, label):
                    _keep_newest(newest, view, limit)
            yield
        return [view for _, view in newest]

    def _matching_views(self, filters: RunFilters, rows: Sequence[RunRow]) -> list[RunView]:
        views = [run_views.view_of_row(row) for row in rows]
        if filters.is_by_job:
            views = self._labels.add_to(views)
        return [view for view in views if filters.matches(view.run, view.label)]


def _first_position(filters: RunFilters, after: tuple[str, ...] | None) -> Position | None:
    """Return the position before which the page begins, or None for the newest run."""
    before = (after[0], after[1]) if after else None
    upper_bound = filters.id_upper_bound
    if upper_bound is not None and (before is None or upper_bound < before[0]):
        return (upper_bound, "")
    return before


def _keep_newest(newest: list[tuple[Position, RunView]], view: RunView, limit: int) -> None:
    """Add a run to the heap of the `limit` newest runs."""
    if len(newest) < limit:
        heapq.heappush(newest, (position_of(view), view))
    elif position_of(view) > newest[0][0]:
        heapq.heapreplace(newest, (position_of(view), view))
