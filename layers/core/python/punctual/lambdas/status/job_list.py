"""Writes the rows of jobs in the lists of their tenants, from changes of job states."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.aws.dynamodb.lists.job_counts import NO_CLASS, job_class
from punctual.aws.dynamodb.lists.job_row import NO_HEAD, RecentOutcome, derive_job_row, outcome_of
from punctual.aws.dynamodb.lists.job_rows import JobRowChange, JobRows
from punctual.aws.dynamodb.stream_records import Record
from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState, ScheduleKind
from punctual.engine.ports.rows import JobKey
from punctual.lambdas.status.changes import Changes
from punctual.lambdas.status.definitions import DefinitionCache

_ONE_TIME_KINDS = frozenset({ScheduleKind.IMMEDIATE, ScheduleKind.FUTURE})


class _JobChange(NamedTuple):
    state: JobState
    outcomes: list[RecentOutcome]
    old: JobState | None  # before the first change of the batch
    is_visible: bool  # whether a change of the batch changes the row
    moves_class: bool  # whether a change of the batch moves the job to another class of the counts


class JobListWriter:
    """Writes the row of each changed job once for a batch. The row expires with its job."""

    def __init__(self, job_rows: JobRows, definitions: DefinitionCache) -> None:
        self._job_rows = job_rows
        self._definitions = definitions

    def write_changes(
        self, changes: Sequence[tuple[Record, Changes]], now: datetime
    ) -> frozenset[JobKey]:
        """Write the rows. Return the jobs with a mark of an open failure in a row that was read."""
        changes_by_job: dict[JobKey, _JobChange] = {}
        for record, job_changes in changes:
            state = record.new
            if state is None or state.is_blank:
                continue
            key = JobKey(state.tenant, state.job_id)
            outcomes = _outcomes(job_changes)
            is_visible = bool(outcomes) or _changes_row(record.old, state)
            moves_class = _class_of(record.old) != _class_of(state)
            change = _JobChange(state, outcomes, record.old, is_visible, moves_class)
            earlier = changes_by_job.get(key)
            changes_by_job[key] = change if earlier is None else _joined(earlier, change)
        visible = {key: change for key, change in changes_by_job.items() if change.is_visible}
        return self._write(visible, now) if visible else frozenset()

    def remove(self, states: Sequence[JobState], now: datetime) -> None:
        """Remove the rows of jobs that were deleted before they expired."""
        row_keys = [
            self._job_rows.row_key(JobKey(state.tenant, state.job_id))
            for state in states
            if (expires_at := job_expires_at(state)) is None or expires_at > now
        ]
        if row_keys:
            self._job_rows.remove(row_keys)

    def _write(
        self, changes_by_job: Mapping[JobKey, _JobChange], now: datetime
    ) -> frozenset[JobKey]:
        """Write the rows of jobs that have not expired.

        A job without its definition stays in the list, so that the list reports it.
        """
        refs = {
            key: (key, change.state.current_rules.definition_ref)
            for key, change in changes_by_job.items()
        }
        heads = self._definitions.load(refs.values())
        row_changes = [
            JobRowChange(
                key,
                change.state.version,
                derive_job_row(change.state, heads.get(refs[key], NO_HEAD)),
                change.outcomes,
                job_expires_at(change.state),
                is_first=not _has_outcome(change.old),
                is_new=change.old is None or change.old.is_blank,
                moves_class=change.moves_class,
            )
            for key, change in changes_by_job.items()
        ]
        return self._job_rows.write(
            [row for row in row_changes if row.expires_at is None or row.expires_at > now]
        )


def _outcomes(changes: Changes) -> list[RecentOutcome]:
    return [
        outcome_of(change.after)
        for change in changes.runs
        if change.after is not None and change.has_ended
    ]


def _joined(earlier: _JobChange, later: _JobChange) -> _JobChange:
    """Return one change for both. A batch repeated in other bounds must not hide a change.

    So a change counts as visible, or moves the class, even if a later one takes it back.
    """
    return _JobChange(
        max(earlier.state, later.state, key=lambda state: state.version),
        [*earlier.outcomes, *later.outcomes],
        earlier.old,
        earlier.is_visible or later.is_visible,
        earlier.moves_class or later.moves_class,
    )


def _class_of(state: JobState | None) -> str:
    if state is None or state.is_blank:
        return NO_CLASS
    return job_class(state.status, job_expires_at(state))


def _changes_row(old: JobState | None, new: JobState) -> bool:
    """Return whether a change shows in the row. Renewals of leases and write ids do not."""
    if old is None or old.is_blank:
        return True
    return job_expires_at(old) != job_expires_at(new) or (
        derive_job_row(old, NO_HEAD) != derive_job_row(new, NO_HEAD)
    )


def _has_outcome(state: JobState | None) -> bool:
    """Return whether a run of this job has probably ended before. If not, no row is read."""
    if state is None:
        return False
    if state.latest_not_run_id or state.unrecorded:
        return True
    return bool(state.latest_run_id) and state.kind not in _ONE_TIME_KINDS
