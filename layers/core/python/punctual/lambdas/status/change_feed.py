"""Writes the change feed from changes of jobs and operations: a row for each batch and tenant."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed, FeedEntry
from punctual.aws.dynamodb.lists.job_row import NO_HEAD
from punctual.aws.dynamodb.stream_records import OperationRecord, Record
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import JobState, task_type_of
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.ports.lists.change_feed import ChangeKind
from punctual.engine.ports.rows import JobKey, JobLabel, RunKey, RunRow
from punctual.engine.queries.changes import summarize_job
from punctual.lambdas.status.changes import Changes, RunChange
from punctual.lambdas.status.definitions import DefinitionCache, DefinitionId


class ChangeFeedWriter:
    def __init__(self, feed: DynamoChangeFeed, definitions: DefinitionCache) -> None:
        self._feed = feed
        self._definitions = definitions

    def write(
        self,
        changes: Sequence[tuple[Record, Changes]],
        run_rows: Mapping[RunKey, RunRow],
        operations: Sequence[OperationRecord] = (),
    ) -> None:
        """Write all changes. `run_rows` holds the last form of each changed run."""
        visible = [
            (record, job_changes)
            for record, job_changes in changes
            if job_changes.runs or _shows_in_job(record)
        ]
        heads = self._definitions.load(
            _definition_id(record.new) for record, _ in visible if record.new is not None
        )
        entries_by_tenant: dict[str, list[FeedEntry]] = {}
        for record, job_changes in visible:
            state = record.state
            head = heads.get(_definition_id(state), NO_HEAD)
            label = JobLabel(head.name, head.tags)
            entries_by_tenant.setdefault(state.tenant, []).extend(
                _entries(record, job_changes, run_rows, label)
            )
        for operation_record in last_revisions(operations):
            tenant = operation_record.operation.tenant
            entries_by_tenant.setdefault(tenant, []).append(_operation_entry(operation_record))
        sequence_numbers = [record.sequence_number for record, _ in changes]
        sequence_numbers += [record.sequence_number for record in operations]
        for tenant, entries in entries_by_tenant.items():
            if entries:
                self._feed.append(tenant, sequence_numbers[0], entries)


def last_revisions(records: Sequence[OperationRecord]) -> Collection[OperationRecord]:
    """Return the last record of each operation. Its slices are written often."""
    last: dict[tuple[str, str], OperationRecord] = {}
    for record in records:
        key = (record.operation.tenant, record.operation.operation_id)
        if key not in last or last[key].operation.revision < record.operation.revision:
            last[key] = record
    return last.values()


def _operation_entry(record: OperationRecord) -> FeedEntry:
    operation = record.operation
    return FeedEntry(
        ChangeKind.OPERATION.value,
        "",
        "",
        operation.revision,
        record.changed_at,
        operation=operation.without_errors(),
    )


def _entries(
    record: Record,
    changes: Changes,
    run_rows: Mapping[RunKey, RunRow],
    label: JobLabel,
) -> Iterator[FeedEntry]:
    job_id, version, at = record.state.job_id, record.sequence, record.changed_at
    if record.new is None:
        yield FeedEntry(ChangeKind.JOB.value, job_id, "", version, at)
    elif _shows_in_job(record):
        summary = summarize_job(record.new, label.name)
        yield FeedEntry(ChangeKind.JOB.value, job_id, "", version, at, summary)
    for change in changes.runs:
        row = _run_row(record, change, run_rows, label)
        yield FeedEntry(ChangeKind.RUN.value, job_id, change.run.run_id, version, at, None, row)


def _run_row(
    record: Record, change: RunChange, run_rows: Mapping[RunKey, RunRow], label: JobLabel
) -> RunRow | None:
    """Return the run after the change, or None if it was taken back."""
    run = change.after
    if run is None:
        return None
    tenant, job_id = record.state.tenant, record.state.job_id
    row = run_rows.get(RunKey(tenant, job_id, run.run_id)) if change.has_ended else None
    if row is None:
        task_type = task_type_of(run, record.new, record.old)
        expires_at = run.changed_at + HISTORY_RETENTION
        row = RunRow(tenant, job_id, run, expires_at, TZDATA_VERSION, task_type=task_type)
    return replace(row, label=label)


def _shows_in_job(record: Record) -> bool:
    """Return whether a change shows in the short form of the job. Renewals of leases do not.

    A blank state counts as no job.
    """
    old = None if record.old is None or record.old.is_blank else record.old
    new = None if record.new is None or record.new.is_blank else record.new
    if old is None or new is None:
        return old is not new
    return summarize_job(old, "") != summarize_job(new, "") or (old.definition != new.definition)


def _definition_id(state: JobState) -> DefinitionId:
    return JobKey(state.tenant, state.job_id), state.current_rules.definition_ref
