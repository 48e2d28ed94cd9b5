"""The read operations of the API on jobs and runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

from punctual.domain.errors import NotFound
from punctual.domain.job_state import JobState
from punctual.domain.run import LOST_LETTER, NOT_RUN_STATUSES, Run
from punctual.engine.changes.run_results import RunResults, log_key
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.execution.log_parts import LogOfClaim, read_log_parts
from punctual.engine.ports.audit_log import AuditLog
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE, Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.lists.change_feed import ChangeFeed
from punctual.engine.ports.lists.job_index import JobIndex, JobQuery, Position
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.lists.run_index import RunIndex
from punctual.engine.ports.log import Log, no_log
from punctual.engine.ports.monitor import Health, Monitor, Stats
from punctual.engine.ports.rows import DefinitionRow, JobKey, Page, RunKey, RunRow
from punctual.engine.queries import run_views
from punctual.engine.queries.audit import AuditQueries
from punctual.engine.queries.changes import ChangeQueries
from punctual.engine.queries.explain import Explainer
from punctual.engine.queries.job_list import JobList
from punctual.engine.queries.job_versions import JobVersions
from punctual.engine.queries.recent_runs import ListedRuns, RecentRuns
from punctual.engine.queries.run_views import WaitsForResources, waits_for_nothing
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.engine.queries.runs.run_list import RunList
from punctual.engine.queries.schedules.forecast import Forecast, forecast_starts
from punctual.engine.queries.schedules.upcoming import UpcomingRuns
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import (
    Explanation,
    JobView,
    LogPiece,
    LongContent,
    Output,
    RunView,
)

LATEST_RUN_PAGE_SIZE = 200
MAX_LISTED_READS = 25  # times as many, for a list that must be whole
MAX_INDEX_READS = 4  # of the index of jobs for one answer, which may be short
MAX_WHOLE_OUTPUT_BYTES = 1024 * 1024  # a longer output is read in pieces
_DISCARDED_MESSAGE = 'The run has no {}: its job discards output and logs ("output": "discard").'


class JobQueries:
    def __init__(
        self,
        *,
        job_states: JobStates,
        job_index: JobIndex,
        history: History,
        run_index: RunIndex,
        blobs: Blobs,
        audit_log: AuditLog,
        monitor: Monitor,
        clock: Clock,
        log: Log = no_log,
        waits_for_resources: WaitsForResources = waits_for_nothing,
        change_feed: ChangeFeed | None = None,
        listed_runs: ListedRuns | None = None,
    ) -> None:
        self._waits_for_resources = waits_for_resources
        self._job_index = job_index
        self._history = history
        self._blobs = blobs
        self._clock = clock
        self._monitor = monitor
        self._definitions = Definitions(job_states, blobs)
        self._job_versions = JobVersions(self._definitions)
        self._explainer = Explainer(history, self._definitions, waits_for_resources)
        self._job_list = JobList(job_states, clock, log)
        self._job_states = job_states
        self._upcoming_runs = UpcomingRuns(job_states, self._job_list)
        self._results = RunResults(history)
        self._recent_runs = RecentRuns(history, listed_runs)
        self._run_list = RunList(history, waits_for_resources)
        self._run_index = run_index
        self._labels = JobLabels(job_states)
        self.audit = AuditQueries(audit_log, job_states)
        self.changes: ChangeQueries | None = None
        if change_feed is not None:
            self.changes = ChangeQueries(change_feed, job_states, history)

    def job(self, tenant: str, job_id: str) -> JobView:
        stored, definition = self.load(JobKey(tenant, job_id))
        return self.to_view(stored.state, definition)

    def load(self, key: JobKey) -> tuple[StoredState, DefinitionRow]:
        return self._job_list.load(key)

    def to_view(self, state: JobState, definition: DefinitionRow) -> JobView:
        """Return a job that is read already, with its payload and its latest run."""
        return JobView(
            state,
            self._definitions.with_payload(definition),
            self.latest_run(state),
            outcomes=self._recent_runs.of_job(state, self._clock()),
        )

    def latest_run(self, state: JobState) -> RunView | None:
        """Return the latest run of a job that is read already."""
        return self._latest_run(JobKey(state.tenant, state.job_id), state, self._clock(), {})

    def _latest_run(
        self, key: JobKey, state: JobState, now: datetime, rows: Mapping[RunKey, RunRow | None]
    ) -> RunView | None:
        """Return the newest run that runs or ran, else the newest that did not run, or None."""
        for run_id in (state.latest_run_id, state.latest_not_run_id):
            if run_id:
                view = self._find_run(key, state, run_id, now, rows)
                if view is not None and (
                    view.run.status not in NOT_RUN_STATUSES or not state.latest_run_id
                ):
                    return view
        if not state.latest_run_id and not state.latest_not_run_id:
            return None
        recorded_rows = self._history.page(key, None, None, LATEST_RUN_PAGE_SIZE, now)
        candidates = [
            *run_views.runs_in_state(state, now, self._waits_for_resources),
            *(run_views.view_of_row(row) for row in recorded_rows),
        ]
        executed = [view for view in candidates if view.run.status not in NOT_RUN_STATUSES]
        latest = max(executed or candidates, key=lambda view: view.run.created_at, default=None)
        return None if latest is None else self._results.with_results([latest], now)[0]

    def _find_run(
        self,
        key: JobKey,
        state: JobState,
        run_id: str,
        now: datetime,
        rows: Mapping[RunKey, RunRow | None],
    ) -> RunView | None:
        """Return a run of this job. An ended run has its output.

        `rows` holds the history rows that are already read, None for a run without a row.
        """
        views_in_state = run_views.runs_in_state(state, now, self._waits_for_resources)
        state_view = next((view for view in views_in_state if view.run.run_id == run_id), None)
        if state_view is not None and state_view.run.ended_at is None:
            return state_view
        run_key = RunKey(*key, run_id)
        loaded_rows = rows if run_key in rows else self._history.get([run_key], now)
        row = loaded_rows.get(run_key)
        if row is not None:
            return run_views.view_of_row(row)
        if state_view is None:
            return None
        return state_view._replace(detail=self._results.stored_result(run_key, state_view.run, now))

    def jobs(
        self,
        tenant: str,
        query: JobQuery,
        limit: int,
        after: Position | None,
    ) -> Sliced[Page]:
        """Return a page of jobs. A page may be short if few jobs pass the filters.

        The index says which jobs are listed. What is shown comes from the job states.
        """
        now = self._clock()
        jobs, cursor = yield from self._matching_jobs(tenant, query, limit, after, now)
        return Page((yield from self._listed_views(jobs)), cursor)

    def listed_states(
        self, tenant: str, query: JobQuery, limit: int, now: datetime
    ) -> Sliced[tuple[list[JobState], bool]]:
        """Return the states of up to `limit` matching jobs, and whether there may be more."""
        states: list[JobState] = []
        cursor: Position | None = None
        for _ in range(MAX_LISTED_READS):
            jobs, cursor = yield from self._matching_jobs(
                tenant, query, limit - len(states), cursor, now
            )
            states += [state for _, state, _ in jobs]
            if cursor is None or len(states) == limit:
                break
        return states, cursor is not None

    def _matching_jobs(
        self,
        tenant: str,
        query: JobQuery,
        limit: int,
        after: Position | None,
        now: datetime,
    ) -> Sliced[tuple[list[tuple[Position, JobState, DefinitionRow]], Position | None]]:
        cursor = after
        jobs: list[tuple[Position, JobState, DefinitionRow]] = []
        for _ in range(MAX_INDEX_READS):
            page = self._job_index.page(tenant, query, limit - len(jobs), cursor, now)
            jobs += [
                (position, state, definition)
                for position, state, definition in self._job_list.load_listed(
                    tenant, page.positions
                )
                if query.filters.matches(state, definition, now)
            ]
            cursor = page.next_cursor
            if cursor is None or len(jobs) == limit:
                break
            yield
        return jobs, cursor

    def _listed_views(
        self, jobs: Sequence[tuple[Position, JobState, DefinitionRow]]
    ) -> Sliced[list[JobView]]:
        """Return the jobs with their latest runs, read in one batch. A step reads one payload."""
        now = self._clock()
        run_keys = [
            RunKey(state.tenant, state.job_id, run_id)
            for _, state, _ in jobs
            if (run_id := state.latest_run_id or state.latest_not_run_id)
            and not any(
                view.run.run_id == run_id and view.run.ended_at is None
                for view in run_views.runs_in_state(state, now, self._waits_for_resources)
            )
        ]
        loaded_rows = self._history.get(run_keys, now) if run_keys else {}
        rows = {run_key: loaded_rows.get(run_key) for run_key in run_keys}
        outcomes = yield from self._recent_runs.of_jobs([state for _, state, _ in jobs], now)
        job_views = []
        for (position, state, definition), job_outcomes in zip(jobs, outcomes, strict=True):
            latest = self._latest_run(JobKey(state.tenant, state.job_id), state, now, rows)
            payload = self._definitions.with_payload(definition)
            job_views.append(JobView(state, payload, latest, position, job_outcomes))
            yield
        return job_views

    def versions(
        self, tenant: str, job_id: str, limit: int, after: tuple[str, ...] | None
    ) -> Sliced[Page]:
        """Return a page of the definitions that a job has had, newest first."""
        key = JobKey(tenant, job_id)
        return self._job_versions.page(key, self.load(key)[1], limit, after)

    def run_of(self, state: JobState, run_id: str) -> RunView:
        """Return a run of a job that is read already, without its attempts and payload."""
        view = self._find_run(JobKey(state.tenant, state.job_id), state, run_id, self._clock(), {})
        if view is None:
            raise NotFound("There is no such run.")
        return view

    def run(self, tenant: str, job_id: str, run_id: str) -> RunView:
        key, now = JobKey(tenant, job_id), self._clock()
        stored, definition = self.load(key)
        view = self.run_of(stored.state, run_id)
        run, lease = view.run, stored.leases.get(run_id)
        is_own_lease = lease is not None and run.is_held and lease.token == run.token
        rows = self._history.attempts(RunKey(*key, run_id), now) if run.past_attempts else ()
        past_attempts = []
        for attempt_number, letter in enumerate(run.past_attempts, start=1):
            is_lost = letter == LOST_LETTER
            row = next(
                (
                    attempt
                    for attempt in rows
                    if attempt.number == attempt_number and attempt.lost is is_lost
                ),
                None,
            )
            if row is not None:
                past_attempts.append(row)
        payload = self._definitions.load_run_payload(key, run_id) if run.has_own_payload else None
        return view._replace(
            label=run_views.label_of(definition),
            attempts=past_attempts,
            payload=payload,
            has_payload=run.has_own_payload,
            progress=lease.progress if lease is not None and is_own_lease else None,
        )

    def runs(
        self,
        tenant: str,
        job_id: str | None,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
    ) -> Sliced[Page]:
        """Return a page of the runs of a job, or of all jobs, each with the name of its job."""
        now = self._clock()
        if job_id is None:
            page = yield from self._run_index.page(tenant, filters, limit, after, now)
            return page._replace(items=self._labels.add_to(page.items))
        stored, definition = self.load(JobKey(tenant, job_id))
        page = self._run_list.page_of_job(stored.state, filters, limit, after, now)
        label = run_views.label_of(definition)
        return page._replace(items=[view._replace(label=label) for view in page.items])

    def output(self, tenant: str, job_id: str, run_id: str) -> Output:
        """Return what the last attempt returned, or on AWS a link to it.

        The node reads a long output in pieces.
        """
        detail = self.run(tenant, job_id, run_id).detail
        if detail.output is not None:
            return Output(detail.output, detail.output_type or TEXT_CONTENT_TYPE, None)
        if detail.discarded:
            raise NotFound(_DISCARDED_MESSAGE.format("output"))
        if not detail.output_blob:
            raise NotFound("The run has no output, or none yet.")
        blobs, key = self._blobs, detail.output_blob
        link = blobs.link(key, detail.output_type)
        size, is_truncated = detail.output_size, detail.output_truncated
        # A damaged file is shorter and lacks the last byte. It is read as a whole.
        if link is None and size > MAX_WHOLE_OUTPUT_BYTES and blobs.get(key, size - 1, size):
            content = LongContent(size, partial(blobs.get, key))
            return Output(b"", detail.output_type, None, is_truncated, content)
        data = blobs.get(key) if link is None else blobs.get(key, 0, 1)
        if data is None:
            raise NotFound("The output of the run has expired.")
        if link is not None:
            return Output(b"", detail.output_type, link, is_truncated)
        is_truncated = is_truncated or len(data) < size
        return Output(data, detail.output_type, None, is_truncated)

    def logs(self, tenant: str, job_id: str, run_id: str, after: int) -> LogPiece:
        """Return the log of the present or last attempt from the offset `after`."""
        view = self.run(tenant, job_id, run_id)
        run, detail = view.run, view.detail
        if detail.log_blob:
            data = self._blobs.get(detail.log_blob, after) or b""
            return LogPiece(data, max(0, detail.log_size - after - len(data)))
        if detail.discarded:
            raise NotFound(_DISCARDED_MESSAGE.format("logs"))
        live_data = self._live_log(JobKey(tenant, job_id), run, after) if run.token else None
        if live_data is None and not run.is_held:
            raise NotFound("The run has no logs, or none yet.")
        return LogPiece(live_data or b"", 0)

    def _live_log(self, key: JobKey, run: Run, after: int) -> bytes | None:
        """Return the log of an attempt that goes on, or that was lost. None means no log.

        Our own executors on the node append to one blob. External executors send parts.
        """
        number, data = run.attempt, None
        if run.is_held:
            data = self._blobs.get(log_key(key, run.run_id, number), after)
        log = LogOfClaim(key, run.run_id, number, run.token)
        return read_log_parts(self._blobs, log, after) if data is None else data

    def explain(self, tenant: str, job_id: str, at: datetime | None) -> Sliced[Explanation]:
        """Explain a moment, a local time of the job's zone, or without `at` the last due time."""
        key = JobKey(tenant, job_id)
        stored, definition = self.load(key)
        return (
            yield from self._explainer.explain(key, stored.state, definition, at, self._clock())
        )

    def now(self) -> datetime:
        return self._clock()

    def stats(self, tenant: str) -> Stats:
        return self._monitor.stats(tenant, self._clock())

    def health(self) -> Health:
        return self._monitor.health(self._clock())

    def forecast(self, tenant: str, hours: int) -> Sliced[Forecast]:
        """Return the scheduled starts of the next hours over all jobs."""
        return forecast_starts(self._job_states, tenant, hours, self._clock())

    def upcoming(
        self,
        tenant: str,
        start: datetime,
        end: datetime,
        limit: int,
        after: tuple[str, ...] | None,
        job_id: str | None = None,
    ) -> Sliced[Page]:
        """Return the upcoming times of one job, or of all jobs."""
        now = self._clock()
        if job_id is None:
            return self._upcoming_runs.upcoming(tenant, start, end, limit, after, now)
        state = self.load(JobKey(tenant, job_id))[0].state
        return self._upcoming_runs.upcoming_of_job(state, start, end, limit, after, now)
