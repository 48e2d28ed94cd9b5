"""Finds the jobs or runs that an operation acts on. They are fixed when the operation begins."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.domain.errors import FieldError, Invalid
from punctual.domain.job_state import JobStatus
from punctual.domain.operations.operation import (
    MAX_OPERATION_JOBS,
    MAX_OPERATION_RUNS,
    OperationAction,
    OperationItem,
)
from punctual.domain.run import Run, RunStatus, Trigger
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.job_index import JobFilters, JobIndex, JobQuery, Position
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import RunView

MATCH_PAGE_JOBS = 1_000
MATCH_PAGE_RUNS = 200
FOLLOWING_RUNS_READ = 200  # later runs of a job that one step of `latest_only` reads
# An action reaches jobs in these states, unless the filter names others.
STATUSES_OF_ACTION = {
    OperationAction.PAUSE: frozenset({JobStatus.SCHEDULED}),
    OperationAction.RESUME: frozenset({JobStatus.PAUSED}),
    OperationAction.CANCEL: frozenset({JobStatus.SCHEDULED, JobStatus.PAUSED}),
    OperationAction.RUN_NOW: frozenset({JobStatus.SCHEDULED, JobStatus.PAUSED}),
}
RETRIED_RUN_STATUSES = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT})


class BulkFilter(NamedTuple):
    """Which jobs, or which runs, an operation acts on."""

    jobs: JobFilters
    runs: RunFilters = RunFilters()
    paused_by: str = ""  # an operation that paused the jobs
    latest_only: bool = False  # only runs that were not retried, or followed by a success, since

    @property
    def selects(self) -> bool:
        """Return whether it leaves something out. `latest_only` alone stands for no filter."""
        return bool(self.paused_by) or self.jobs != JobFilters() or self.runs != RunFilters()


class Matcher:
    def __init__(
        self,
        job_index: JobIndex,
        job_states: JobStates,
        history: History,
        queries: JobQueries,
    ) -> None:
        self._job_index = job_index
        self._job_states = job_states
        self._history = history
        self._queries = queries

    def matches(
        self, tenant: str, action: OperationAction, bulk_filter: BulkFilter, now: datetime
    ) -> Sliced[Sequence[OperationItem]]:
        """Return what the action would reach now. More than the most items are an error."""
        if action is OperationAction.RETRY:
            return (yield from self._matching_runs(tenant, bulk_filter, now))
        return (yield from self._matching_jobs(tenant, action, bulk_filter, now))

    def _matching_jobs(
        self, tenant: str, action: OperationAction, bulk_filter: BulkFilter, now: datetime
    ) -> Sliced[Sequence[OperationItem]]:
        filters = bulk_filter.jobs
        if not filters.status:
            filters = filters._replace(status=STATUSES_OF_ACTION[action])
        items: list[OperationItem] = []
        after: Position | None = None
        while True:
            page = self._job_index.page(tenant, JobQuery(filters), MATCH_PAGE_JOBS, after, now)
            job_ids = [position[-1] for position in page.positions]
            matching = self._matching_ids(tenant, job_ids, filters, bulk_filter.paused_by, now)
            items += [OperationItem(job_id) for job_id in matching]
            if len(items) > MAX_OPERATION_JOBS:
                raise _too_many(MAX_OPERATION_JOBS, "jobs")
            after = page.next_cursor
            if after is None:
                return items
            yield

    def _matching_ids(
        self,
        tenant: str,
        job_ids: Sequence[str],
        filters: JobFilters,
        paused_by: str,
        now: datetime,
    ) -> Sequence[str]:
        """Return the jobs that pass all filters.

        The index knows all but the health and the pause of a job, so only these need the states.
        Where the index is behind, the change of the job itself meets its present status.
        """
        if filters.health is None and not paused_by:
            return job_ids
        keys = [JobKey(tenant, job_id) for job_id in job_ids]
        stored = self._job_states.load(keys) if keys else {}
        states = {key: stored[key].state for key in keys if key in stored}
        refs = {key: (key, state.current_rules.definition_ref) for key, state in states.items()}
        definitions = self._job_states.load_definitions(list(refs.values())) if refs else {}
        return [
            key.job_id
            for key, state in states.items()
            if refs[key] in definitions
            and filters.matches(state, definitions[refs[key]], now)
            and (
                not paused_by or (state.pause is not None and state.pause.operation_id == paused_by)
            )
        ]

    def _matching_runs(
        self, tenant: str, bulk_filter: BulkFilter, now: datetime
    ) -> Sliced[Sequence[OperationItem]]:
        filters = bulk_filter.runs
        if not filters.status:
            filters = filters._replace(status=RETRIED_RUN_STATUSES)
        items: list[OperationItem] = []
        after: tuple[str, ...] | None = None
        while True:
            page = yield from self._queries.runs(tenant, None, filters, MATCH_PAGE_RUNS, after)
            ended = [view for view in page.items if view.run.ended_at is not None]
            if bulk_filter.latest_only:
                ended = yield from self._not_followed(tenant, ended, now)
            items += [OperationItem(view.job_id, view.run.run_id) for view in ended]
            if len(items) > MAX_OPERATION_RUNS:
                raise _too_many(MAX_OPERATION_RUNS, "runs")
            after = page.next_cursor
            if after is None:
                return items

    def _not_followed(
        self, tenant: str, views: Sequence[RunView], now: datetime
    ) -> Sliced[list[RunView]]:
        """Return the runs that were not retried, and that no success of their job followed."""
        runs_by_job: dict[str, list[Run]] = {}
        for view in views:
            runs_by_job.setdefault(view.job_id, []).append(view.run)
        followers = {}
        for job_id, runs in runs_by_job.items():
            followers[job_id] = yield from self._followers(JobKey(tenant, job_id), runs, now)
        return [view for view in views if not followers[view.job_id].follow(view.run)]

    def _followers(self, key: JobKey, runs: Sequence[Run], now: datetime) -> Sliced["_Followers"]:
        """Return what followed these runs of one job. The newest runs often tell for all."""
        last_end = max(run.ended_at for run in runs if run.ended_at is not None)
        oldest_id = min(run.run_id for run in runs)
        followers = _Followers(set(), [])
        stored = self._job_states.load([key]).get(key)
        if stored is not None:
            waiting = stored.state.wait_queue
            followers.retried_ids.update(entry.retried_from for entry in waiting)
            followers.add([*stored.state.runs, *stored.state.unrecorded])
        before: str | None = None
        while not followers.has_success_after(last_end):
            rows = self._history.page(key, before, oldest_id, FOLLOWING_RUNS_READ, now)
            followers.add([row.run for row in rows])
            if len(rows) < FOLLOWING_RUNS_READ:
                break
            before = rows[-1].run.run_id
            yield
        return followers


class _Followers(NamedTuple):
    """Runs of a job that were made after some others: which they retry, and when they succeeded."""

    retried_ids: set[str]
    success_ends: list[datetime]

    def add(self, runs: Sequence[Run]) -> None:
        self.retried_ids.update(run.retried_from for run in runs if run.trigger is Trigger.RETRY)
        self.success_ends.extend(
            run.ended_at for run in runs if run.status is RunStatus.SUCCESS and run.ended_at
        )

    def has_success_after(self, at: datetime) -> bool:
        return any(ended_at > at for ended_at in self.success_ends)

    def follow(self, run: Run) -> bool:
        """Return whether one of these runs retries the run, or succeeded after its end."""
        return run.run_id in self.retried_ids or (
            run.ended_at is not None and self.has_success_after(run.ended_at)
        )


def _too_many(limit: int, noun: str) -> Invalid:
    text = f"matches more than {limit:,} {noun}, the most for one operation: narrow it"
    return Invalid.of(FieldError("filter", text))
