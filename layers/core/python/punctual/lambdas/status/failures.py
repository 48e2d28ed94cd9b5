"""Opens and closes failures of jobs, from changes of job states."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from punctual.aws.dynamodb.lists.failures import DynamoFailures, FailureChange
from punctual.aws.dynamodb.stream_records import Record
from punctual.domain.draft import job_expires_at
from punctual.domain.failures import FAILED_STATUSES, EndedRun
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.run import Run, RunStatus, Trigger
from punctual.engine.changes.run_results import RunResults
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import Detail, JobKey, RunKey
from punctual.lambdas.status.changes import Changes

RecordChanges = tuple[Record, Changes]
_DECIDING_STATUSES = FAILED_STATUSES | {RunStatus.SUCCESS}
_ONE_TIME = frozenset({ScheduleKind.IMMEDIATE, ScheduleKind.FUTURE})


class FailureWriter:
    """Reads and writes only for failed runs, and for jobs that may have an open failure."""

    def __init__(self, failures: DynamoFailures, history: History) -> None:
        self._failures = failures
        self._history = history

    def write_changes(
        self,
        changes: Sequence[RecordChanges],
        failing_jobs: Collection[JobKey],
        now: datetime,
    ) -> None:
        """`failing_jobs` are the jobs of the batch with a mark of an open failure."""
        by_job: dict[JobKey, list[RecordChanges]] = {}
        for record, job_changes in changes:
            if record.new is not None and not record.new.is_blank:
                key = JobKey(record.new.tenant, record.new.job_id)
                by_job.setdefault(key, []).append((record, job_changes))
        relevant = {
            key: job_records
            for key, job_records in by_job.items()
            if any(
                _may_matter(record, job_changes, key in failing_jobs)
                for record, job_changes in job_records
            )
        }
        if not relevant:
            return
        details = self._details(relevant, now)
        self._failures.apply(
            {
                key: [_failure_change(key, *entry, details) for entry in job_records]
                for key, job_records in relevant.items()
            }
        )

    def _details(
        self, records_by_job: Mapping[JobKey, Sequence[RecordChanges]], now: datetime
    ) -> Mapping[RunKey, Detail]:
        """Return the results of the failed runs."""
        failed_runs = {
            RunKey(*key, run.run_id): run
            for key, job_records in records_by_job.items()
            for _, job_changes in job_records
            for run in _ended_runs(job_changes)
            if run.status in FAILED_STATUSES
        }
        rows = self._history.get(list(failed_runs), now) if failed_runs else {}
        results = RunResults(self._history)
        return {
            key: rows[key].detail if key in rows else results.stored_result(key, run, now)
            for key, run in failed_runs.items()
        }


def _may_matter(record: Record, changes: Changes, has_mark: bool) -> bool:
    """Return whether the change may open or close a failure.

    The first run of a one-time job can close nothing. Its list row is then not read for a mark.
    """
    state, old = record.new, record.old
    assert state is not None
    ended_runs = _ended_runs(changes)
    if any(run.status in FAILED_STATUSES for run in ended_runs) or _is_cancelled(old, state):
        return True
    is_first_of_one_time_job = state.kind in _ONE_TIME and state.edition == 1
    if has_mark:
        return bool(ended_runs) or _ends(old) != _ends(state)
    if any(
        run.trigger is not Trigger.SCHEDULE or (state.kind in _ONE_TIME and state.edition > 1)
        for run in ended_runs
    ):
        return True
    return not is_first_of_one_time_job and _ends(old) != _ends(state)


def _is_cancelled(old: JobState | None, state: JobState) -> bool:
    was_cancelled = old is not None and old.status is JobStatus.CANCELLED
    return state.status is JobStatus.CANCELLED and not was_cancelled


def _ends(state: JobState | None) -> bool:
    return state is not None and state.ended_at is not None


def _ended_runs(changes: Changes) -> list[Run]:
    return [
        change.after
        for change in changes.runs
        if change.after is not None and change.after.status in _DECIDING_STATUSES
    ]


def _failure_change(
    key: JobKey, record: Record, changes: Changes, details: Mapping[RunKey, Detail]
) -> FailureChange:
    state = record.new
    assert state is not None
    ended = []
    for run in _ended_runs(changes):
        detail = details.get(RunKey(*key, run.run_id), Detail())
        ended.append(EndedRun(run, detail.error, detail.exit_code, detail.http_status))
    return FailureChange(
        state.version,
        ended,
        is_cancelled=state.status is JobStatus.CANCELLED,
        expires_at=job_expires_at(state),
    )
