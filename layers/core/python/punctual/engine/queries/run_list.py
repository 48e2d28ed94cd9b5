"""Lists of runs, a page at a time: those that heads know, among those that history has."""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from punctual.domain.identifiers import EPOCH
from punctual.domain.job_state import JobState
from punctual.engine.changes.run_results import Results
from punctual.engine.ports.bundle import Ports
from punctual.engine.ports.rows import Key, RunKey, RunRow
from punctual.engine.queries import run_views as views
from punctual.engine.queries.filters import By, RunFilters
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Page, RunView

SCAN = 5  # pages read for one answer at most: a page may be short
WIDE = 50  # rows a page at least where a filter may pass few of them
DEEP = 500  # and where the ids say little: an entry for many, or the time of a start or an end
NAMED = timedelta(minutes=5)  # a head that rests names what the lists have had for long
SECOND = timedelta(seconds=1)

_Place = tuple[str, str]


class RunList:
    """Newest first. What heads know is read before the rest, so nothing ends between the two."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._results = Results(ports.history)

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
            rows = self._ports.history.page(key, before, bottom, wide, now)
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
        """Over all jobs: first the living, from the heads that have any, then the ended.

        Where only an entry for many may still pass, an answer reads one large page at most.
        """
        before = (after[0], after[1]) if after else None
        if (top := filters.top) is not None and (before is None or top < before[0]):
            before = (top, "")
        bottom = filters.bottom if filters.single else None
        wide = _width(filters, limit)
        newest: list[tuple[_Place, RunView]] = []  # of the living: more is not shown
        lately: list[_Place] = []
        for head in self._ports.heads.busy(tenant):
            for view in views.in_head(head, now):
                if filters.admit(view.run) and _between(_place(view), before, None):
                    _keep_newest(newest, view, limit)
            lately += _named(head, now)
            yield
        alive = [view for _, view in newest]
        found: list[RunView] = []
        for _ in range(SCAN):
            deep = before is not None and before[0] <= (filters.bottom or "")
            if deep:
                wide = max(limit, DEEP)
            rows = self._ports.history.page_all(tenant, before, wide, now)
            last = (rows[-1].run.run_id, rows[-1].job_id) if len(rows) == wide else None
            listed = {_place_of(row) for row in rows}
            missed = [one for one in lately if one not in listed and _between(one, before, last)]
            rows = [*rows, *self._recorded(tenant, missed, now)]
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
        """Return those that fit on the page, with what the ended ones left."""
        newest = sorted(here, key=_place, reverse=True)[:room]
        return self._results.shown(newest, now)

    def _recorded(self, tenant: str, places: Sequence[_Place], now: datetime) -> Sequence[RunRow]:
        """Of runs that ended and left their heads so lately that the list may not have them yet."""
        if not places:
            return ()
        wanted = [RunKey(tenant, job_id, run_id) for run_id, job_id in places]
        return list(self._ports.history.get(wanted, now).values())


def _width(filters: RunFilters, limit: int) -> int:
    """Return how many rows a page reads: more where the ids do not say which may pass."""
    if filters._replace(by=By.SCHEDULED) == RunFilters():
        return limit
    return max(limit, WIDE if filters.is_by_id else DEEP)


def _keep_newest(newest: list[tuple[_Place, RunView]], view: RunView, limit: int) -> None:
    """Add a run to a heap of the newest; each has a place of its own."""
    if len(newest) < limit:
        heapq.heappush(newest, (_place(view), view))
    elif _place(view) > newest[0][0]:
        heapq.heapreplace(newest, (_place(view), view))


def _named(head: JobState, now: datetime) -> Iterator[_Place]:
    """Runs that have left the head; not those of which the lists know for long."""
    since = (now - NAMED - EPOCH) // SECOND
    return ((run_id, head.job_id) for run_id, at in head.lately.items() if at > since)


def _lower(one: str | None, other: str | None) -> str | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


def _place(view: RunView) -> _Place:
    return (view.run.run_id, view.job_id)


def _place_of(row: RunRow) -> _Place:
    return (row.run.run_id, row.job_id)


def _between(place: str | _Place, before: str | _Place | None, last: str | _Place | None) -> bool:
    """Whether a living run falls on the page from below `before` down to `last`."""
    return (before is None or place < before) and (last is None or place >= last)  # type: ignore[operator]
