"""The read operations of the API on jobs and runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from punctual.domain.errors import NotFound
from punctual.domain.job_state import JobState
from punctual.domain.run import NOT_RUN
from punctual.engine.changes.run_results import Results, log_key
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.audit_log import AuditLog
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.log import Log, untold
from punctual.engine.ports.monitor import Health, Monitor, Stats
from punctual.engine.ports.rows import DefinitionRow, Key, RunKey, RunRow
from punctual.engine.queries import run_views as views
from punctual.engine.queries.audit import AuditQueries
from punctual.engine.queries.explain import Explainer
from punctual.engine.queries.filters import By as By
from punctual.engine.queries.filters import JobFilters as JobFilters
from punctual.engine.queries.filters import RunFilters as RunFilters
from punctual.engine.queries.job_list import JobList
from punctual.engine.queries.run_list import SCAN, WIDE, RunList
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.upcoming import UpcomingRuns
from punctual.engine.queries.views import Explanation, JobView, LogPiece, Output, Page, RunView

LATEST_SCAN = 200
_EVENT_ID = "text/plain; charset=utf-8"
_DISCARDED = 'The run has no {}: its job discards what runs print or return ("output": "discard").'


class JobQueries:
    def __init__(
        self,
        *,
        heads: JobStates,
        history: History,
        blobs: Blobs,
        audit: AuditLog,
        monitor: Monitor,
        clock: Clock,
        log: Log = untold,
    ) -> None:
        self._history = history
        self._blobs = blobs
        self._clock = clock
        self._monitor = monitor
        self._documents = Definitions(heads, blobs)
        self._explaining = Explainer(history, self._documents)
        self._listing = JobList(heads, clock, log)
        self._forecast = UpcomingRuns(heads, self._listing)
        self._results = Results(history)
        self._pages = RunList(heads, history)
        self.audit = AuditQueries(audit, heads)

    def job(self, tenant: str, job_id: str) -> JobView:
        stored, body = self.load(Key(tenant, job_id))
        return self.view(stored.head, body)

    def load(self, key: Key) -> tuple[StoredState, DefinitionRow]:
        return self._listing.load(key)

    def view(self, head: JobState, body: DefinitionRow) -> JobView:
        """Return a job that is read already, with its payload and its latest run."""
        return JobView(head, self._documents.full(body), self.latest(head))

    def latest(self, head: JobState) -> RunView | None:
        """Return the latest run of a job that is read already."""
        return self._latest(Key(head.tenant, head.job_id), head, self._clock(), {})

    def _latest(
        self, key: Key, head: JobState, now: datetime, rows: Mapping[RunKey, RunRow | None]
    ) -> RunView | None:
        """Return the newest run that runs or ran, else the newest that did not run, or None."""
        for run_id in (head.latest, head.latest_not_run):
            if run_id:
                view = self._find(key, head, run_id, now, rows)
                if view is not None and (view.run.status not in NOT_RUN or not head.latest):
                    return view
        if not head.latest and not head.latest_not_run:
            return None
        kept = self._history.page(key, None, None, LATEST_SCAN, now)
        found = [*views.in_head(head, now), *(views.of_row(row) for row in kept)]
        ran = [view for view in found if view.run.status not in NOT_RUN]
        latest = max(ran or found, key=lambda view: view.run.created_at, default=None)
        return None if latest is None else self._results.shown([latest], now)[0]

    def _find(
        self,
        key: Key,
        head: JobState,
        run_id: str,
        now: datetime,
        rows: Mapping[RunKey, RunRow | None],
    ) -> RunView | None:
        """Return a run of this job. An ended run has its output.

        `rows` holds the history rows that are already read, None for a run without a row.
        """
        known = views.in_head(head, now)
        alive = next((view for view in known if view.run.run_id == run_id), None)
        if alive is not None and alive.run.ended_at is None:
            return alive
        wanted = RunKey(*key, run_id)
        read = rows if wanted in rows else self._history.get([wanted], now)
        row = read.get(wanted)
        if row is not None:
            return views.of_row(row)
        if alive is None:
            return None
        return alive._replace(detail=self._results.left_by(wanted, alive.run, now))

    def jobs(
        self, tenant: str, filters: JobFilters, limit: int, after: tuple[str, ...] | None
    ) -> Sliced[Page]:
        """Return a page of jobs, newest first. A page may be short if the filters pass few jobs."""
        before = after[0] if after else None
        wide = limit if filters == JobFilters() else max(limit, WIDE)
        found: list[tuple[JobState, DefinitionRow]] = []
        for _ in range(SCAN):
            here, following = self._listing.page(tenant, before, wide)
            for head, body in here:
                before = head.job_id
                if filters.admit(head, body):
                    found.append((head, body))
                    if len(found) == limit:
                        return Page((yield from self._listed(found)), (before,))
            before = following
            if before is None:
                break
            yield
        return Page((yield from self._listed(found)), (before,) if before else None)

    def _listed(self, jobs: Sequence[tuple[JobState, DefinitionRow]]) -> Sliced[list[JobView]]:
        """Return the jobs with their latest runs, read in one batch. A step reads one payload."""
        now = self._clock()
        wanted = [
            RunKey(head.tenant, head.job_id, run_id)
            for head, _ in jobs
            if (run_id := head.latest or head.latest_not_run)
            and not any(
                view.run.run_id == run_id and view.run.ended_at is None
                for view in views.in_head(head, now)
            )
        ]
        found = self._history.get(wanted, now) if wanted else {}
        rows = {run_key: found.get(run_key) for run_key in wanted}
        listed = []
        for head, body in jobs:
            latest = self._latest(Key(head.tenant, head.job_id), head, now, rows)
            listed.append(JobView(head, self._documents.full(body), latest))
            yield
        return listed

    def run_of(self, head: JobState, run_id: str) -> RunView:
        """Return a run of a job that is read already, without its attempts and payload."""
        view = self._find(Key(head.tenant, head.job_id), head, run_id, self._clock(), {})
        if view is None:
            raise NotFound("There is no such run.")
        return view

    def run(self, tenant: str, job_id: str, run_id: str) -> RunView:
        key, now = Key(tenant, job_id), self._clock()
        view = self.run_of(self.load(key)[0].head, run_id)
        run = view.run
        rows = self._history.attempts(RunKey(*key, run_id), now) if run.past else ()
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
    ) -> Sliced[Page]:
        now = self._clock()
        if job_id is None:
            return (yield from self._pages.of_all(tenant, filters, limit, after, now))
        head = self.load(Key(tenant, job_id))[0].head
        return self._pages.of_job(head, filters, limit, after, now)

    def output(self, tenant: str, job_id: str, run_id: str) -> Output:
        """Return what the last attempt returned, or on AWS a link to it."""
        detail = self.run(tenant, job_id, run_id).detail
        if detail.output is not None:
            return Output(detail.output, detail.output_type or _EVENT_ID, None)
        if detail.discarded:
            raise NotFound(_DISCARDED.format("output"))
        if not detail.output_blob:
            raise NotFound("The run has no output, or none yet.")
        blobs, key = self._blobs, detail.output_blob
        link = blobs.link(key, detail.output_type)
        data = blobs.get(key) if link is None else blobs.get(key, 0, 1)
        if data is None:
            raise NotFound("The run's output is not kept any more.")
        if link is not None:
            return Output(b"", detail.output_type, link, detail.output_truncated)
        is_cut = detail.output_truncated or len(data) < detail.output_size
        return Output(data, detail.output_type, None, is_cut)

    def logs(self, tenant: str, job_id: str, run_id: str, after: int) -> LogPiece:
        """Return the log of the present or last attempt from the offset `after`."""
        view = self.run(tenant, job_id, run_id)
        run, detail = view.run, view.detail
        blob = detail.log_blob or (
            log_key(Key(tenant, job_id), run_id, run.attempt) if run.held else ""
        )
        if not blob:
            missing = "The run has no logs, or none yet."
            raise NotFound(_DISCARDED.format("logs") if detail.discarded else missing)
        data = self._blobs.get(blob, after) or b""
        return LogPiece(data, max(0, detail.log_size - after - len(data)))

    def explain(self, tenant: str, job_id: str, at: datetime | None) -> Sliced[Explanation]:
        """Explain a moment, a local time of the job's zone, or without `at` the last due time."""
        key = Key(tenant, job_id)
        stored, body = self.load(key)
        return (yield from self._explaining.explain(key, stored.head, body, at, self._clock()))

    def stats(self, tenant: str) -> Stats:
        return self._monitor.stats(tenant, self._clock())

    def health(self) -> Health:
        return self._monitor.health(self._clock())

    def upcoming(
        self, tenant: str, start: datetime, end: datetime, limit: int, after: tuple[str, ...] | None
    ) -> Sliced[Page]:
        return self._forecast.upcoming(tenant, start, end, limit, after, self._clock())
