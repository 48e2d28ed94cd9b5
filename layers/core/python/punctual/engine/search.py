"""The reads of the API over jobs and runs."""

from datetime import datetime
from typing import NamedTuple

from punctual.domain.errors import NotFound
from punctual.domain.head import Head
from punctual.domain.run import NOT_RUN, Run
from punctual.engine import runs as views
from punctual.engine.documents import Documents
from punctual.engine.explaining import Explaining
from punctual.engine.forecast import Forecast
from punctual.engine.ports import Body, Clock, Detail, Key, Ports, RunKey, Stored
from punctual.engine.views import (
    Explanation,
    Health,
    JobView,
    Monitor,
    Output,
    Page,
    RunView,
    Stats,
)

SCAN = 5  # pages read for one answer at most: a page may be short
LATEST_SCAN = 200
_EVENT_ID = "text/plain; charset=utf-8"


class JobFilters(NamedTuple):
    status: frozenset[str] = frozenset()
    schedule_type: str = ""
    name_prefix: str = ""
    created_by: str = ""
    tags: tuple[tuple[str, str], ...] = ()

    def admit(self, head: Head, body: Body) -> bool:
        return (
            (not self.status or head.state in self.status)
            and (not self.schedule_type or head.kind == self.schedule_type)
            and body.name.startswith(self.name_prefix)
            and (not self.created_by or body.created_by == self.created_by)
            and all(body.tags.get(key) == value for key, value in self.tags)
        )


class RunFilters(NamedTuple):
    status: frozenset[str] = frozenset()
    trigger: str = ""
    start: datetime | None = None
    end: datetime | None = None

    def admit(self, run: Run) -> bool:
        return (
            (not self.status or run.status in self.status)
            and (not self.trigger or run.trigger == self.trigger)
            and (self.start is None or (run.last_at or run.scheduled_at) >= self.start)
            and (self.end is None or run.scheduled_at < self.end)
        )


class Search:
    def __init__(self, ports: Ports, clock: Clock, monitor: Monitor) -> None:
        self._ports = ports
        self._clock = clock
        self._monitor = monitor
        self._documents = Documents(ports)
        self._explaining = Explaining(ports, self._documents)
        self._forecast = Forecast(ports)

    def job(self, tenant: str, job_id: str) -> JobView:
        key = Key(tenant, job_id)
        stored, body = self.load(key)
        return JobView(stored.head, self._documents.full(body), self._latest(key, stored.head))

    def load(self, key: Key) -> tuple[Stored, Body]:
        stored = self._ports.heads.load([key]).get(key)
        if stored is None or stored.head.blank:
            raise NotFound("There is no such job.")
        wanted = (key, stored.head.current.body)
        return stored, self._ports.heads.bodies([wanted])[wanted]

    def _latest(self, key: Key, head: Head) -> RunView | None:
        """The run last made that ran or will; else the last that did not run; else none."""
        for run_id in (head.latest, head.latest_not_run):
            if run_id:
                view = self._find(key, head, run_id)
                if view is not None and (view.run.status not in NOT_RUN or not head.latest):
                    return view
        if not head.latest and not head.latest_not_run:
            return None
        now = self._clock()
        rows = self._ports.history.page(key, None, None, LATEST_SCAN, now)
        found = [*views.in_head(head, now), *(views.of_row(row) for row in rows)]
        ran = [view for view in found if view.run.status not in NOT_RUN]
        return max(ran or found, key=lambda view: view.run.created_at, default=None)

    def _find(self, key: Key, head: Head, run_id: str) -> RunView | None:
        known = views.in_head(head, self._clock())
        alive = next((view for view in known if view.run.run_id == run_id), None)
        if alive is not None and alive.run.ended_at is None:
            return alive
        wanted = RunKey(*key, run_id)
        row = self._ports.history.get([wanted], self._clock()).get(wanted)
        return alive if row is None else views.of_row(row)

    def jobs(
        self, tenant: str, filters: JobFilters, limit: int, after: tuple[str, ...] | None
    ) -> Page:
        """Newest first; a page may be short where a filter passes few."""
        before = after[0] if after else None
        found: list[JobView] = []
        for _ in range(SCAN):
            page = self._ports.heads.page(tenant, before, limit)
            for head, body in page.items:
                before = head.job_id
                if filters.admit(head, body):
                    found.append(self._listed(head, body))
                    if len(found) == limit:
                        return Page(found, (before,))
            before = page.before
            if before is None:
                return Page(found, None)
        return Page(found, (before,) if before else None)

    def _listed(self, head: Head, body: Body) -> JobView:
        key = Key(head.tenant, head.job_id)
        return JobView(head, self._documents.full(body), self._latest(key, head))

    def run(self, tenant: str, job_id: str, run_id: str) -> RunView:
        key = Key(tenant, job_id)
        head = self.load(key)[0].head
        view = self._find(key, head, run_id)
        if view is None:
            raise NotFound("There is no such run.")
        run, now = view.run, self._clock()
        rows = self._ports.history.attempts(RunKey(*key, run_id), now) if run.past else ()
        former = []
        for number, letter in enumerate(run.past, start=1):
            lost = letter == "L"
            row = next((r for r in rows if r.number == number and r.lost is lost), None)
            if row is not None:
                former.append(row)
        payload = self._documents.own_payload(key, run_id) if run.own_payload else None
        return view._replace(attempts=former, payload=payload, has_payload=run.own_payload)

    def runs(
        self,
        tenant: str,
        job_id: str | None,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
    ) -> Page:
        if job_id is None:
            return self._all_runs(tenant, filters, limit, after)
        key = Key(tenant, job_id)
        head = self.load(key)[0].head
        before = after[0] if after else None
        alive = [view for view in views.in_head(head, self._clock()) if filters.admit(view.run)]
        found: list[RunView] = []
        for _ in range(SCAN):
            rows = self._ports.history.page(key, before, None, limit, self._clock())
            last = rows[-1].run.run_id if len(rows) == limit else None
            recorded = {row.run.run_id for row in rows}
            here = [
                view
                for view in alive
                if view.run.run_id not in recorded and _between(view.run.run_id, before, last)
            ]
            ended = [views.of_row(row) for row in rows if filters.admit(row.run)]
            found.extend(sorted([*here, *ended], key=lambda view: view.run.run_id, reverse=True))
            before = last
            if len(found) >= limit:
                return Page(found[:limit], (found[limit - 1].run.run_id,))
            if before is None:
                return Page(found, None)
        return Page(found, (before,) if before else None)

    def _all_runs(
        self, tenant: str, filters: RunFilters, limit: int, after: tuple[str, ...] | None
    ) -> Page:
        """Over all jobs: first the living, from the heads that have any, then the ended."""
        before = (after[0], after[1]) if after else None
        alive = [
            view
            for head in self._ports.heads.busy(tenant)
            for view in views.in_head(head, self._clock())
            if filters.admit(view.run)
        ]
        found: list[RunView] = []
        for _ in range(SCAN):
            rows = self._ports.history.page_all(tenant, before, limit, self._clock())
            last = (rows[-1].run.run_id, rows[-1].job_id) if len(rows) == limit else None
            recorded = {row.run.run_id for row in rows}
            here = [
                view
                for view in alive
                if view.run.run_id not in recorded and _between(_place(view), before, last)
            ]
            ended = [views.of_row(row) for row in rows if filters.admit(row.run)]
            found.extend(sorted([*here, *ended], key=_place, reverse=True))
            before = last
            if len(found) >= limit:
                return Page(found[:limit], _place(found[limit - 1]))
            if before is None:
                return Page(found, None)
        return Page(found, before)

    def output(self, tenant: str, job_id: str, run_id: str) -> Output:
        detail = self._detail(tenant, job_id, run_id)
        if detail.output is not None:
            return Output(detail.output, detail.output_type or _EVENT_ID, None)
        if not detail.output_blob:
            raise NotFound("The run has no output, or none yet.")
        start, end = _slice(detail.output_at, detail.output_size)
        if end is None:
            link = self._ports.blobs.link(detail.output_blob, detail.output_type)
            if link is not None:
                return Output(b"", detail.output_type, link)
        data = self._ports.blobs.get(detail.output_blob, start, end)
        if data is None:
            raise NotFound("The run's output is not kept any more.")
        return Output(data, detail.output_type, None, detail.output_truncated)

    def _detail(self, tenant: str, job_id: str, run_id: str) -> Detail:
        return self.run(tenant, job_id, run_id).detail

    def logs(self, tenant: str, job_id: str, run_id: str, after: int) -> bytes:
        """What the attempt that runs, or ran last, has printed from `after` on."""
        view = self.run(tenant, job_id, run_id)
        run = view.run
        blob = view.detail.log_blob or (
            log_name(Key(tenant, job_id), run_id, run.token) if run.held else ""
        )
        if not blob:
            raise NotFound("The run has no logs, or none yet.")
        start, end = _slice(view.detail.log_at, view.detail.log_size)
        return self._ports.blobs.get(blob, start + after, end) or b""

    def explain(self, tenant: str, job_id: str, at: datetime) -> Explanation:
        key = Key(tenant, job_id)
        stored, body = self.load(key)
        return self._explaining.explain(key, stored.head, body, at, self._clock())

    def stats(self, tenant: str) -> Stats:
        return self._monitor.stats(tenant, self._clock())

    def health(self) -> Health:
        return self._monitor.health(self._clock())

    def upcoming(
        self, tenant: str, start: datetime, end: datetime, limit: int, after: tuple[str, ...] | None
    ) -> Page:
        return self._forecast.upcoming(tenant, start, end, limit, after, self._clock())


def _slice(start: int | None, size: int) -> tuple[int, int | None]:
    """From where to where in the blob; one that is nobody else's is whole."""
    return (0, None) if start is None else (start, start + size)


def log_name(key: Key, run_id: str, token: int) -> str:
    return f"logs/{key.tenant}/{key.job_id}/{run_id}/{token}"


def output_name(key: Key, run_id: str, token: int) -> str:
    return f"outputs/{key.tenant}/{key.job_id}/{run_id}/{token}"


def _place(view: RunView) -> tuple[str, str]:
    return (view.run.run_id, view.job_id)


def _between(
    place: "str | tuple[str, str]",
    before: "str | tuple[str, str] | None",
    last: "str | tuple[str, str] | None",
) -> bool:
    """Whether a living run falls on the page from below `before` down to `last`."""
    return (before is None or place < before) and (last is None or place >= last)  # type: ignore[operator]
