"""Follows changes of job states: audit, lists, events, counts, and cleanup of expired jobs.

Each step may run twice. Lists and marks are puts, events carry an id, deletions find nothing, and
counts know which changes they include.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from punctual.aws.dynamodb.audit.audit import DynamoAudit
from punctual.aws.dynamodb.control.counters import Change, Counters, mark_of
from punctual.aws.dynamodb.history.tenant_index import TenantRunIndex
from punctual.aws.dynamodb.jobs.cleanup import JobData
from punctual.aws.dynamodb.stream_records import Record, place_of, to_record
from punctual.domain.durations import RETENTION
from punctual.domain.errors import Unavailable
from punctual.domain.run import Run
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.changes.run_results import Results
from punctual.engine.commands.audit import subject_of
from punctual.engine.commands.definitions_store import payload_name
from punctual.engine.ports.audit_log import Noted
from punctual.engine.ports.blobs import Blobs
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.feed import Feed
from punctual.engine.ports.history import History
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import Key, RunKey, RunRow
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.status import counters
from punctual.lambdas.status.changes import Changes, between
from punctual.lambdas.status.events import events
from punctual.lambdas.telemetry import Telemetry

SHOWN = timedelta(minutes=65)  # no read shows the counts of earlier minutes
AHEAD = timedelta(minutes=5)  # runs are queued up to two minutes before their time
Followed = tuple[Record, Changes]


class StatusHandler:
    def __init__(
        self,
        *,
        heads: JobStates,
        history: History,
        blobs: Blobs,
        feed: Feed,
        lists: TenantRunIndex,
        belongings: JobData,
        tallies: Counters,
        audit: DynamoAudit,
        run_events: str,
        clock: Clock,
        tell: Telemetry,
    ) -> None:
        self._heads = heads
        self._history = history
        self._blobs = blobs
        self._feed = feed
        self._lists = lists
        self._belongings = belongings
        self._tallies = tallies
        self._audit = audit
        self._run_events = run_events
        self._clock = clock
        self._tell = tell

    def follow(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Process records. Return the place of the first failed record, with all before it done.

        1. Records before the first unreadable one are processed in one batch.
        2. If the batch fails for another reason than a store, they are processed one by one.
        3. A failure of the first record is raised. Lambda then splits the batch until the record is
           alone and goes to the failure queue.
        """
        with self._tell.told():
            read, failure = self._read(records)
            try:
                self._apply(read)
            except Unavailable:
                raise
            except Exception as error:
                self._tell.problem("batch_failed", records=len(read), error=type(error).__name__)
                failure = self._one_by_one(read) or failure
            if failure is None:
                return []
            place, cause = failure
            if place == place_of(records[0]):
                raise cause
            return [place]

    def _read(
        self, records: Sequence[Mapping[str, Any]]
    ) -> tuple[list[Followed], tuple[str, Exception] | None]:
        read: list[Followed] = []
        for record in records:
            try:
                found = to_record(record)
            except Exception as error:
                self._tell.problem(
                    "record_not_read",
                    event_id=record.get("eventID"),
                    keys=record.get("dynamodb", {}).get("Keys"),
                    error=type(error).__name__,
                )
                return read, (place_of(record), error)
            if found is not None:
                read.append((found, between(found.old, found.new)))
        return read, None

    def _one_by_one(self, read: Sequence[Followed]) -> tuple[str, Exception] | None:
        for one in read:
            try:
                self._apply([one])
            except Exception as error:
                head = one[0].head
                self._tell.problem(
                    "record_failed",
                    tenant=head.tenant,
                    job_id=head.job_id,
                    event_id=one[0].name,
                    error=type(error).__name__,
                )
                return one[0].place, error
        return None

    def _apply(self, changes: Sequence[Followed]) -> None:
        self._note([record for record, _ in changes if record.note is not None])
        self._mark_payloads(changes)
        self._list(changes)
        self._publish(changes)
        self._forget([record for record, _ in changes if record.new is None])
        self._count(changes)

    def _note(self, records: Sequence[Record]) -> None:
        """Write the audit entries first, because later steps may fail for their own reasons."""
        tenants: dict[str, dict[str, Noted]] = {}
        for record in records:
            if record.note is not None and record.new is not None:
                found = tenants.setdefault(record.new.tenant, {})
                noted = found.setdefault(repr(record.note), Noted(record.note, []))
                noted.subjects.append(subject_of(record.note, record.new))
        for tenant, found in tenants.items():
            self._audit.append(tenant, list(found.values()))

    def _mark_payloads(self, changes: Sequence[Followed]) -> None:
        """Mark the own payloads of new runs."""
        given = [
            RunKey(record.head.tenant, record.head.job_id, change.run.run_id)
            for record, found in changes
            for change in found.runs
            if change.before is None and change.run.own_payload
        ]
        if given:
            self._belongings.mark_payloads(given)

    def _list(self, changes: Sequence[Followed]) -> None:
        """Append ended runs to the list over all jobs, each with its last end."""
        ended = {
            RunKey(record.head.tenant, record.head.job_id, change.run.run_id): change.run
            for record, found in changes
            for change in found.runs
            if change.has_ended
        }
        now = self._clock()
        rows = [_shown(row) for row in self._rows(ended, now) if row.expires_at > now]
        for tenant, some in groupby(sorted(rows, key=_tenant), key=_tenant):
            self._lists.append(tenant, list(some))

    def _rows(self, ended: Mapping[RunKey, Run], now: datetime) -> Iterator[RunRow]:
        """Yield the history rows of these runs.

        A run without a row gets one made from the results of its last attempt.
        """
        begun = [key for key, run in ended.items() if run.token and not run.note]
        written = self._history.get(begun, now) if begun else {}
        results = Results(self._history)
        for key, run in ended.items():
            row = written.get(key)
            if row is None:
                detail = results.left_by(key, run, now)
                expires_at = (run.ended_at or run.changed_at) + RETENTION
                row = RunRow(key.tenant, key.job_id, run, expires_at, TZDATA_VERSION, detail)
            yield row

    def _publish(self, changes: Sequence[Followed]) -> None:
        told = [
            event
            for record, found in changes
            for event in events(record.head, _sequence(record), record.at, found, self._run_events)
        ]
        if told:
            self._feed.publish(told)

    def _forget(self, gone: Sequence[Record]) -> None:
        """Delete the data of expired jobs. Blobs go before the rows that name them.

        A job that exists again keeps all its data.
        """
        keys = [Key(record.head.tenant, record.head.job_id) for record in gone]
        standing = self._heads.load(keys) if keys else {}
        for key in keys:
            if key in standing:
                continue
            left = self._belongings.of(key)
            if left.given_by:
                self._blobs.delete([payload_name(key, by) for by in left.given_by])
            if left.rows:
                self._belongings.forget(left)
            self._tell("job_gone", tenant=key.tenant, job_id=key.job_id, rows=len(left.rows))

    def _count(self, changes: Sequence[Followed]) -> None:
        """Count the changes last, so a failed step is counted only after its retry."""
        now = self._clock()
        wanted: dict[str, list[Change]] = {}
        for record, found in changes:
            if found.job is None and not found.runs:
                continue
            minutes: dict[datetime, Counter[str]] = {}
            for minute, name, count in counters.minutes(found):
                if now - SHOWN <= minute <= now + AHEAD:
                    minutes.setdefault(minute, Counter())[name] += count
            head = record.head
            mark = mark_of(record.place, head.job_id)
            totals = counters.totals(found)
            moved = counters.moved(totals)
            change = Change(mark, record.at, totals, minutes, moved)
            wanted.setdefault(head.tenant, []).append(change)
        for tenant, counted in wanted.items():
            self._tallies.count(tenant, counted)


def _shown(row: RunRow) -> RunRow:
    """Return the row without its output. Lists only show that an output exists."""
    detail = row.detail
    return replace(row, detail=replace(detail, output=b"")) if detail.output else row


def following(runtime: Runtime) -> StatusHandler:
    settings = runtime.settings
    return StatusHandler(
        heads=runtime.ports.heads,
        history=runtime.ports.history,
        blobs=runtime.ports.blobs,
        feed=runtime.ports.feed,
        lists=TenantRunIndex(runtime.dynamo, settings.control_table),
        belongings=JobData(runtime.dynamo, settings.jobs_table),
        tallies=Counters(runtime.dynamo, settings.control_table),
        audit=runtime.ports.audit,
        run_events=settings.run_events,
        clock=runtime.clock,
        tell=runtime.tell,
    )


def _sequence(record: Record) -> int:
    """Return a number that grows with each change. The expiry comes after the last version."""
    return record.head.version + (record.new is None)


def _tenant(row: RunRow) -> str:
    return row.tenant
