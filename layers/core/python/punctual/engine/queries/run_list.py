"""Lists of runs, a page at a time: the runs in job states merged with the history."""

import heapq
from collections.abc import Sequence
from datetime import datetime

from punctual.domain.job_state import JobState
from punctual.engine.changes.run_results import Results
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import Key
from punctual.engine.queries import run_views as views
from punctual.engine.queries.filters import By, RunFilters
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Page, RunView

SCAN = 5  # pages read for one answer, which may be short
WIDE = 50  # smallest page, in rows, if a filter may pass few of them
DEEP = 500  # smallest page, in rows, for filters that ids cannot answer

_Place = tuple[str, str]


class RunList:
    """Lists runs, newest first. Job states are read first, so a run cannot end between the reads.

    On AWS the history over all jobs follows the stream of job states and lags by seconds. A run
    that ended and left its job state is missing from that list until then, for at most 10 s.
    """

    def __init__(self, heads: JobStates, history: History) -> None:
        self._heads = heads
        self._history = history
        self._results = Results(history)

    def of_job(
        self,
        head: JobState,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Page:
        key = Key(head.tenant, head.job_id)
        before = _lower(after[0] if after else None, filters.top)
        bottom = filters.bottom if filters.single else None
        wide = _width(filters, limit)
        alive = [view for view in views.in_head(head, now) if filters.admit(view.run)]
        found: list[RunView] = []
        for _ in range(SCAN):
            rows = self._history.page(key, before, bottom, wide, now)
            last = rows[-1].run.run_id if len(rows) == wide else None
            recorded = {row.run.run_id for row in rows}
            here = [
                view
                for view in alive
                if view.run.run_id not in recorded and _between(view.run.run_id, before, last)
            ]
            here = self._shown(here, limit - len(found), now)
            ended = [views.of_row(row) for row in rows if filters.admit(row.run)]
            found.extend(sorted([*here, *ended], key=_place, reverse=True))
            before = last
            if len(found) >= limit:
                return Page(found[:limit], (found[limit - 1].run.run_id,))
            if bottom is None and filters.passed(row.run for row in rows):
                bottom = filters.bottom
            if before is None or (bottom is not None and before <= bottom):
                return Page(found, None)
        return Page(found, (before,) if before else None)

    def of_all(
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
        if (top := filters.top) is not None and (before is None or top < before[0]):
            before = (top, "")
        bottom = filters.bottom if filters.single else None
        wide = _width(filters, limit)
        newest: list[tuple[_Place, RunView]] = []  # live runs, at most as many as a page shows
        for head in self._heads.busy(tenant):
            for view in views.in_head(head, now):
                if filters.admit(view.run) and _between(_place(view), before, None):
                    _keep_newest(newest, view, limit)
            yield
        alive = [view for _, view in newest]
        found: list[RunView] = []
        for _ in range(SCAN):
            deep = before is not None and before[0] <= (filters.bottom or "")
            if deep:
                wide = max(limit, DEEP)
            rows = self._history.page_all(tenant, before, wide, now)
            last = (rows[-1].run.run_id, rows[-1].job_id) if len(rows) == wide else None
            recorded = {row.run.run_id for row in rows}
            here = [
                view
                for view in alive
                if view.run.run_id not in recorded and _between(_place(view), before, last)
            ]
            here = self._shown(here, limit - len(found), now)
            ended = [views.of_row(row) for row in rows if filters.admit(row.run)]
            found.extend(sorted([*here, *ended], key=_place, reverse=True))
            before = last
            if len(found) >= limit:
                return Page(found[:limit], _place(found[limit - 1]))
            if before is None or (bottom is not None and before[0] <= bottom):
                return Page(found, None)
            if deep:
                break
            yield
        return Page(found, before)

    def _shown(self, here: Sequence[RunView], room: int, now: datetime) -> list[RunView]:
        """Return the runs that fit on the page, the ended ones with their output."""
        newest = sorted(here, key=_place, reverse=True)[:room]
        return self._results.shown(newest, now)


def _width(filters: RunFilters, limit: int) -> int:
    """Return how many rows a page reads: more if the ids do not tell which runs may pass."""
    if filters._replace(by=By.SCHEDULED) == RunFilters():
        return limit
    return max(limit, WIDE if filters.is_by_id else DEEP)


def _keep_newest(newest: list[tuple[_Place, RunView]], view: RunView, limit: int) -> None:
    """Add a run to the heap of the `limit` newest runs."""
    if len(newest) < limit:
        heapq.heappush(newest, (_place(view), view))
    elif _place(view) > newest[0][0]:
        heapq.heapreplace(newest, (_place(view), view))


def _lower(one: str | None, other: str | None) -> str | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


def _place(view: RunView) -> _Place:
    return (view.run.run_id, view.job_id)


def _between(place: str | _Place, before: str | _Place | None, last: str | _Place | None) -> bool:
    """Return whether a run falls on the page from below `before` down to `last`."""
    return (before is None or place < before) and (last is None or place >= last)  # type: ignore[operator]
