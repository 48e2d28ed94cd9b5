"""The list of a job's runs, a page at a time: those in its state merged with the history."""

from collections.abc import Sequence
from datetime import datetime

from punctual.domain.job_state import JobState
from punctual.engine.changes.run_results import RunResults
from punctual.engine.ports.history import History
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.engine.ports.rows import JobKey, Page
from punctual.engine.queries import run_views
from punctual.engine.queries.run_views import WaitsForResources
from punctual.engine.queries.views import RunView

MAX_PAGES_READ = 5  # pages read for one answer, which may be short
FILTERED_PAGE_SIZE = 50  # smallest page, in rows, if a filter may pass few of them
UNINDEXED_PAGE_SIZE = 500  # smallest page, in rows, for filters that ids cannot answer

Position = tuple[str, str]


class RunList:
    """Lists the runs of a job that is read already, newest first."""

    def __init__(self, history: History, waits_for_resources: WaitsForResources) -> None:
        self._waits_for_resources = waits_for_resources
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
        page_size = page_size_of(filters, limit)
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
                if view.run.run_id not in recorded_ids and is_on_page(view.run.run_id, before, last)
            ]
            candidates = with_newest_results(
                self._results, candidates, limit - len(page_views), now
            )
            recorded_views = [
                run_views.view_of_row(row) for row in rows if filters.matches(row.run)
            ]
            page_views.extend(sorted([*candidates, *recorded_views], key=position_of, reverse=True))
            before = last
            if len(page_views) >= limit:
                return Page(page_views[:limit], (page_views[limit - 1].run.run_id,))
            if lower_bound is None and filters.is_past_range(row.run for row in rows):
                lower_bound = filters.id_lower_bound
            if before is None or (lower_bound is not None and before <= lower_bound):
                return Page(page_views, None)
        return Page(page_views, (before,) if before else None)


def with_newest_results(
    results: RunResults, candidates: Sequence[RunView], limit: int, now: datetime
) -> list[RunView]:
    """Return the runs that fit on the page, the ended ones with their output."""
    newest = sorted(candidates, key=position_of, reverse=True)[:limit]
    return results.with_results(newest, now)


def page_size_of(filters: RunFilters, limit: int) -> int:
    """Return how many rows a page reads: more if the ids do not tell which runs may pass."""
    if filters._replace(time_field=TimeField.SCHEDULED) == RunFilters():
        return limit
    return max(limit, FILTERED_PAGE_SIZE if filters.is_by_id else UNINDEXED_PAGE_SIZE)


def _min_bound(first: str | None, second: str | None) -> str | None:
    return min((bound for bound in (first, second) if bound is not None), default=None)


def position_of(view: RunView) -> Position:
    return (view.run.run_id, view.job_id)


def is_on_page(
    position: str | Position, before: str | Position | None, last: str | Position | None
) -> bool:
    """Return whether a run falls on the page from below `before` down to `last`."""
    return (before is None or position < before) and (last is None or position >= last)  # type: ignore[operator]
