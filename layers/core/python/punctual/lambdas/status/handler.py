"""Follows changes of job states: audit, lists, events, counts, places, cleanup of expired jobs.

Changes of operations only enter the change feed.

Each step may run twice. Lists and markers are puts, events carry an id, deletions and freed places
find nothing, and counts know which changes they include.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from punctual.aws.dynamodb.audit import DynamoAudit
from punctual.aws.dynamodb.control.count_log import CountChange, change_id_of
from punctual.aws.dynamodb.control.counters import Counters
from punctual.aws.dynamodb.jobs.cleanup import JobData
from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed
from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.aws.dynamodb.stream_records import (
    OperationRecord,
    Record,
    parse_operation_record,
    parse_record,
    sequence_number_of,
)
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import bucket_of
from punctual.domain.utc import MILLISECOND
from punctual.engine.commands.audit import subject_of
from punctual.engine.commands.definitions_store import payload_name
from punctual.engine.ports.audit_log import NoteWithSubjects
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.feed import Feed
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.lambdas.quotas import build_claim_places
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status import counters
from punctual.lambdas.status.change_feed import ChangeFeedWriter
from punctual.lambdas.status.changes import Changes, compare_states, ended_claims
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.events import build_events, stop_events
from punctual.lambdas.status.failures import FailureWriter
from punctual.lambdas.status.job_list import JobListWriter
from punctual.lambdas.status.run_list import RunListWriter
from punctual.lambdas.telemetry import Metric, Telemetry

if TYPE_CHECKING:
    from punctual.engine.quotas.claim_places import ClaimPlaces

MINUTE_COUNTS_WINDOW = timedelta(minutes=65)  # no read shows the counts of earlier minutes
MINUTE_COUNTS_LOOKAHEAD = timedelta(
    minutes=5
)  # runs are queued up to two minutes before their time
RecordChanges = tuple[Record, Changes]
ParsedRecord = RecordChanges | OperationRecord


class StatusHandler:
    def __init__(
        self,
        *,
        job_states: JobStates,
        blobs: Blobs,
        feed: Feed,
        job_list: JobListWriter,
        run_list: RunListWriter,
        change_feed: ChangeFeedWriter,
        failures: FailureWriter,
        job_data: JobData,
        tenant_counters: Counters,
        audit: DynamoAudit,
        claim_places: "ClaimPlaces | None",
        run_events: str,
        clock: Clock,
        log: Telemetry,
    ) -> None:
        self._job_states = job_states
        self._blobs = blobs
        self._feed = feed
        self._job_list = job_list
        self._run_list = run_list
        self._change_feed = change_feed
        self._failures = failures
        self._job_data = job_data
        self._counters = tenant_counters
        self._audit = audit
        self._claim_places = claim_places
        self._run_events = run_events
        self._clock = clock
        self._log = log

    def handle(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Process records. Return the place of the first failed record, with all before it done.

        1. Records before the first unreadable one are processed in one batch.
        2. If the batch fails for another reason than a store, they are processed one by one.
        3. A failure of the first record is raised. Lambda then splits the batch until the record is
           alone and goes to the failure queue.
        """
        with self._log.invocation():
            parsed, failure = self._parse_records(records)
            try:
                self._apply(parsed)
            except Unavailable:
                raise
            except Exception as error:
                self._log.error("batch_failed", records=len(parsed), error=type(error).__name__)
                failure = self._apply_one_by_one(parsed) or failure
            if failure is None:
                return []
            sequence_number, cause = failure
            if sequence_number == sequence_number_of(records[0]):
                raise cause
            return [sequence_number]

    def _parse_records(
        self, records: Sequence[Mapping[str, Any]]
    ) -> tuple[list[ParsedRecord], tuple[str, Exception] | None]:
        parsed: list[ParsedRecord] = []
        for record in records:
            try:
                stream_record = parse_record(record)
                operation_record = parse_operation_record(record)
            except Exception as error:
                self._log.error(
                    "record_not_read",
                    event_id=record.get("eventID"),
                    keys=record.get("dynamodb", {}).get("Keys"),
                    error=type(error).__name__,
                )
                return parsed, (sequence_number_of(record), error)
            if stream_record is not None:
                parsed.append((stream_record, compare_states(stream_record.old, stream_record.new)))
            if operation_record is not None:
                parsed.append(operation_record)
        return parsed, None

    def _apply_one_by_one(self, parsed: Sequence[ParsedRecord]) -> tuple[str, Exception] | None:
        for item in parsed:
            try:
                self._apply([item])
            except Exception as error:
                record = item if isinstance(item, OperationRecord) else item[0]
                self._log.error(
                    "record_failed",
                    **_ids_of(record),
                    event_id=record.event_id,
                    error=type(error).__name__,
                )
                return record.sequence_number, error
        return None

    def _apply(self, parsed: Sequence[ParsedRecord]) -> None:
        now = self._clock()
        changes = [item for item in parsed if not isinstance(item, OperationRecord)]
        operations = [item for item in parsed if isinstance(item, OperationRecord)]
        self._append_audit([record for record, _ in changes if record.note is not None])
        failing_jobs = self._job_list.write_changes(changes, now)
        self._failures.write_changes(changes, failing_jobs, now)
        self._mark_payloads(changes)
        run_rows = self._run_list.write_changes(changes, now)
        self._change_feed.write(changes, run_rows, operations)
        self._publish(changes)
        self._free_places([record for record, _ in changes])
        self._delete_job_data([record for record, _ in changes if record.new is None])
        self._count_changes(changes)

    def _append_audit(self, records: Sequence[Record]) -> None:
        """Write the audit entries first, because later steps may fail for their own reasons."""
        notes_by_tenant: dict[str, dict[str, NoteWithSubjects]] = {}
        for record in records:
            if record.note is not None and record.new is not None:
                notes = notes_by_tenant.setdefault(record.new.tenant, {})
                noted = notes.setdefault(repr(record.note), NoteWithSubjects(record.note, []))
                noted.subjects.append(subject_of(record.note, record.new))
        for tenant, notes in notes_by_tenant.items():
            self._audit.append(tenant, list(notes.values()))

    def _mark_payloads(self, changes: Sequence[RecordChanges]) -> None:
        """Mark the own payloads of new runs."""
        run_keys = [
            RunKey(record.state.tenant, record.state.job_id, change.run.run_id)
            for record, job_changes in changes
            for change in job_changes.runs
            if change.before is None and change.run.has_own_payload
        ]
        if run_keys:
            self._job_data.mark_payloads(run_keys)

    def _publish(self, changes: Sequence[RecordChanges]) -> None:
        bus_events = [
            event
            for record, job_changes in changes
            for event in build_events(
                record.state,
                record.sequence,
                record.changed_at,
                job_changes,
                self._run_events,
            )
        ]
        bus_events += [
            event for record, _ in changes for event in stop_events(record.old, record.new)
        ]
        if bus_events:
            self._feed.publish(bus_events)

    def _free_places(self, records: Sequence[Record]) -> None:
        """Free the places of handed over claims that have ended, however they ended."""
        if self._claim_places is None:
            return
        ended = [claim for record in records for claim in ended_claims(record.old, record.new)]
        if ended:
            self._claim_places.free(ended)

    def _delete_job_data(self, expired: Sequence[Record]) -> None:
        """Delete the data of expired jobs. Blobs go before the rows that name them.

        A job that exists again keeps all its data.
        """
        keys = [JobKey(record.state.tenant, record.state.job_id) for record in expired]
        existing = self._job_states.load(keys) if keys else {}
        for key in keys:
            if key in existing:
                continue
            data = self._job_data.find(key)
            if data.payload_ids:
                self._blobs.delete(
                    [payload_name(key, payload_id) for payload_id in data.payload_ids]
                )
            if data.rows:
                self._job_data.delete(data)
            self._log("job_gone", tenant=key.tenant, job_id=key.job_id, rows=len(data.rows))
        gone = [
            record.old
            for key, record in zip(keys, expired, strict=True)
            if key not in existing and record.old is not None and not record.old.is_blank
        ]
        self._job_list.remove(gone, self._clock())

    def _count_changes(self, changes: Sequence[RecordChanges]) -> None:
        """Count the changes last, so a failed step is counted only after its retry.

        The lag of lists is counted where the minute has other counts, so it costs no row.
        """
        now = self._clock()
        if changes:
            lag = max(now - record.changed_at for record, _ in changes)
            self._log.metric(Metric.LIST_LAG, max(0.0, lag / MILLISECOND))
        changes_by_tenant: dict[str, list[CountChange]] = {}
        for record, job_changes in changes:
            if not job_changes.runs:
                continue
            minutes: dict[datetime, Counter[str]] = {}
            for minute, name, count in counters.minute_counts(job_changes):
                if now - MINUTE_COUNTS_WINDOW <= minute <= now + MINUTE_COUNTS_LOOKAHEAD:
                    minutes.setdefault(minute, Counter())[name] += count
            if bucket_of(now) in minutes:
                minutes[bucket_of(now)][counters.list_lag_count(now - record.changed_at)] += 1
            state = record.state
            change_id = change_id_of(record.sequence_number, state.job_id)
            totals = counters.status_count_changes(job_changes)
            moved = counters.moved_counts(totals)
            change = CountChange(change_id, record.changed_at, totals, minutes, moved)
            changes_by_tenant.setdefault(state.tenant, []).append(change)
        for tenant, tenant_changes in changes_by_tenant.items():
            self._counters.count(tenant, tenant_changes)


def _ids_of(record: Record | OperationRecord) -> dict[str, str]:
    if isinstance(record, OperationRecord):
        operation = record.operation
        return {"tenant": operation.tenant, "operation_id": operation.operation_id}
    return {"tenant": record.state.tenant, "job_id": record.state.job_id}


def build_handler(runtime: Runtime) -> StatusHandler:
    settings = runtime.settings
    job_rows = JobRows(
        runtime.dynamo,
        settings.lists_table,
        settings.list_slots,
        runtime.clock,
        runtime.new_id,
    )
    definitions = DefinitionCache(runtime.ports.job_states)
    return StatusHandler(
        job_states=runtime.ports.job_states,
        blobs=runtime.ports.blobs,
        feed=runtime.ports.feed,
        job_list=JobListWriter(job_rows, definitions),
        run_list=RunListWriter(runtime.ports.run_index, runtime.ports.history, definitions),
        change_feed=ChangeFeedWriter(
            DynamoChangeFeed(
                runtime.dynamo, settings.lists_table, settings.feed_slots, runtime.clock
            ),
            definitions,
        ),
        failures=FailureWriter(runtime.ports.failures, runtime.ports.history),
        job_data=JobData(runtime.dynamo, settings.jobs_table),
        tenant_counters=Counters(runtime.dynamo, settings.control_table, runtime.clock),
        audit=runtime.ports.audit_log,
        claim_places=build_claim_places(runtime),
        run_events=settings.run_events,
        clock=runtime.clock,
        log=runtime.log,
    )
