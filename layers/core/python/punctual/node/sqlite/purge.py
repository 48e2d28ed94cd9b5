"""Removes expired rows in steps of bounded size. Until then reads filter them out."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import sortable_id
from punctual.engine.changes.run_results import log_parts_folder, run_outputs_folder
from punctual.engine.commands.definitions_store import payload_name
from punctual.engine.ports.rows import AttemptRow, JobKey
from punctual.node.files.blobs import FileBlobs
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.control import SqlitePartitions
from punctual.node.sqlite.counts import JOB_KIND, RUN_KIND, Counts
from punctual.node.sqlite.definitions import DEFINITION_CODEC
from punctual.node.sqlite.history import ATTEMPT_CODEC, RUN_CODEC, SqliteHistory
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
from punctual.node.sqlite.lists.failures import SqliteFailures
from punctual.node.sqlite.lists.job_list_rows import remove_jobs
from punctual.node.sqlite.lists.run_pages import RUN_ID_TIME
from punctual.node.sqlite.recent_starts import START_WINDOW
from punctual.node.sqlite.rows import to_micros, to_minute
from punctual.node.sqlite.state_rows import decode_states, subtract_counts
from punctual.node.sqlite.transaction import Transaction

EVENT_RETENTION = timedelta(hours=24)
_RETENTION_SLACK = timedelta(hours=1)
MAX_REMOVED_OPERATIONS = 10  # in one step; each may have a hundred rows of items
_FIRST_CURSOR = ("", "", 0)
T = TypeVar("T")


class Purge:
    """Removes expired rows.

    A blob goes before the row that names it, so that no blob is left without a row.
    """

    def __init__(
        self,
        transaction: Transaction,
        counts: Counts,
        job_states: SqliteJobStates,
        history: SqliteHistory,
        failures: SqliteFailures,
        changes: SqliteChangeFeed,
        partitions: SqlitePartitions,
        blobs: FileBlobs,
    ) -> None:
        self._transaction = transaction
        self._counts = counts
        self._job_states = job_states
        self._history = history
        self._failures = failures
        self._changes = changes
        self._partitions = partitions
        self._blobs = blobs
        self._runs_cursor: tuple[str, str, int] = _FIRST_CURSOR

    def step(self, now: datetime, limit: int) -> bool:
        """Remove at most `limit` rows of each kind. Return whether more may be expired."""
        with self._transaction:
            self._job_states.flush()
            self._transaction.begin()
            removals = (
                self._remove_receipts,
                self._remove_tokens,
                self._remove_events,
                self._remove_changes,
                self._remove_buckets,
                self._remove_audit,
                self._remove_artifacts,
                self._remove_operations,
            )
            steps = (self._remove_jobs, self._walk_runs, *removals, self._remove_starts)
            has_more = [step(now, limit) for step in steps]
            return any(has_more)

    def _remove_jobs(self, now: datetime, limit: int) -> bool:
        db = self._transaction.db
        rows = db.execute(
            "SELECT id, state, tenant, job_id, head FROM heads WHERE expires <= ? LIMIT ?",
            (to_micros(now), limit),
        ).fetchall()
        keys = [JobKey(tenant, job_id) for _, _, tenant, job_id, _ in rows]
        blob_names = []
        for key in keys:
            for (stored_row,) in db.execute(
                "SELECT body FROM bodies WHERE tenant = ? AND job_id = ?", key
            ):
                definition = self._decode_or_none(
                    "bodies", key, DEFINITION_CODEC.decode, stored_row
                )
                blob_names.append("" if definition is None else definition.payload_blob)
            self._job_states.forget(key)
        states, unreadable = decode_states(
            self._transaction.damage, [stored_row[2:] for stored_row in rows]
        )
        subtract_counts(states, self._counts.changes)
        for state in states:
            self._changes.add_removed_job(JobKey(state.tenant, state.job_id), state.version + 1)
        for _, state, *key, _ in rows:
            if JobKey(*key) in unreadable:
                self._counts.changes[key[0], JOB_KIND, state] -= 1
        self._blobs.delete([name for name in blob_names if name])
        db.executemany(
            "DELETE FROM leases WHERE head = ?", [(stored_row[0],) for stored_row in rows]
        )
        remove_jobs(self._transaction, keys)
        self._failures.close(keys)
        for table in ("bodies", "heads"):
            db.executemany(f"DELETE FROM {table} WHERE tenant = ? AND job_id = ?", keys)
        return len(rows) >= limit

    def _walk_runs(self, now: datetime, limit: int) -> bool:
        """Walk the old end of a tenant's history. Younger runs cannot be expired."""
        db = self._transaction.db
        self._history.flush()
        tenant, after_time, after_row_id = self._runs_cursor
        first_young_id = sortable_id(now - HISTORY_RETENTION + _RETENTION_SLACK, bytes(10))
        rows = db.execute(
            "SELECT run_id, job_id, expires, status, row, id FROM runs WHERE tenant = ? "
            f"AND ({RUN_ID_TIME}, id) > (?, ?) AND {RUN_ID_TIME} < substr(?, 1, 13) "
            f"ORDER BY {RUN_ID_TIME}, id LIMIT ?",
            (tenant, after_time, after_row_id, first_young_id, limit),
        ).fetchall()
        self._remove_runs(tenant, [row for row in rows if row[2] <= to_micros(now)])
        if len(rows) >= limit:
            self._runs_cursor = tenant, rows[-1][0][:13], rows[-1][5]
            return True
        next_tenants = db.execute("SELECT min(tenant) FROM runs WHERE tenant > ?", (tenant,))
        (tenant,) = next_tenants.fetchone()
        self._runs_cursor = _FIRST_CURSOR if tenant is None else (tenant, "", 0)
        return tenant is not None

    def _remove_runs(
        self, tenant: str, rows: Sequence[tuple[str, str, int, str, bytes, int]]
    ) -> None:
        blob_names = []
        for run_id, job_id, _, status, encoded, _ in rows:
            attempts = self._read_attempts(tenant, job_id, run_id)
            run_row = self._decode_or_none(
                "runs", (tenant, job_id, run_id), RUN_CODEC.decode, encoded
            )
            details = [attempt.detail for attempt in attempts]
            for detail in details if run_row is None else [run_row.detail, *details]:
                blob_names += [detail.output_blob, detail.log_blob]
            key = JobKey(tenant, job_id)
            if run_row is not None and run_row.run.has_own_payload:
                blob_names.append(payload_name(key, run_id))
            # A lost attempt of an external executor leaves its log in parts.
            numbers = range(1, 1 if run_row is None else run_row.run.attempt + 1)
            for number in numbers:
                blob_names += self._blobs.list_names(log_parts_folder(key, run_id, number))
            # It may also have uploaded an output that no row names.
            blob_names += self._blobs.list_names(run_outputs_folder(key, run_id))
            self._counts.changes[tenant, RUN_KIND, status] -= 1
        self._blobs.delete([name for name in blob_names if name])
        keys = [(tenant, run_id, job_id) for run_id, job_id, *_ in rows]
        for table in ("attempts", "runs"):
            self._transaction.db.executemany(
                f"DELETE FROM {table} WHERE tenant = ? AND run_id = ? AND job_id = ?", keys
            )

    def _read_attempts(self, tenant: str, job_id: str, run_id: str) -> list[AttemptRow]:
        rows = self._transaction.db.execute(
            "SELECT row FROM attempts WHERE tenant = ? AND job_id = ? AND run_id = ?",
            (tenant, job_id, run_id),
        )
        key = (tenant, job_id, run_id)
        attempts = [
            self._decode_or_none("attempts", key, ATTEMPT_CODEC.decode, encoded)
            for (encoded,) in rows.fetchall()
        ]
        return [attempt for attempt in attempts if attempt is not None]

    def _decode_or_none(
        self, table: str, key: tuple[str, ...], decode: Callable[[bytes], T], encoded: bytes
    ) -> T | None:
        """Return the decoded row, or None if it is unreadable.

        An unreadable row is removed when it expires, but its blobs stay.
        """
        try:
            return decode(encoded)
        except DECODING_ERRORS as error:
            self._transaction.damage.note(table, key, error)
            return None

    def _remove_receipts(self, now: datetime, limit: int) -> bool:
        return self._remove_rows("receipts", "tenant, name", "expires <= ?", to_micros(now), limit)

    def _remove_tokens(self, now: datetime, limit: int) -> bool:
        return self._remove_rows("tokens", "hash", "forgotten_at <= ?", to_micros(now), limit)

    def _remove_operations(self, now: datetime, limit: int) -> bool:
        db = self._transaction.db
        keys = db.execute(
            "SELECT tenant, operation_id FROM operations WHERE expires <= ? LIMIT ?",
            (to_micros(now), min(limit, MAX_REMOVED_OPERATIONS)),
        ).fetchall()
        for table in ("operation_items", "operations"):
            db.executemany(f"DELETE FROM {table} WHERE tenant = ? AND operation_id = ?", keys)
        return len(keys) == MAX_REMOVED_OPERATIONS

    def _remove_artifacts(self, now: datetime, limit: int) -> bool:
        """Remove the rows of uploads that did not arrive."""
        expiry = to_micros(now)
        return self._remove_rows("artifacts", "tenant, artifact_id", "expires <= ?", expiry, limit)

    def _remove_events(self, now: datetime, limit: int) -> bool:
        """Remove expired events in order, but never the newest: new numbers continue from it."""
        removed = self._transaction.db.execute(
            "DELETE FROM feed WHERE seq IN (SELECT seq FROM feed ORDER BY seq LIMIT ?) "
            "AND at <= ? AND seq < (SELECT max(seq) FROM feed)",
            (limit, to_micros(now - EVENT_RETENTION)),
        ).rowcount
        return removed >= limit

    def _remove_changes(self, now: datetime, limit: int) -> bool:
        return self._changes.remove_expired(now, limit)

    def _remove_audit(self, now: datetime, limit: int) -> bool:
        expiry = to_micros(now - HISTORY_RETENTION)
        return self._remove_rows("audit", "id", "latest <= ?", expiry, limit)

    def _remove_starts(self, now: datetime, limit: int) -> bool:
        """Remove old starts and start requests of inactive tenants.

        Active tenants remove their own with each addition.
        """
        expiry = to_micros(now - START_WINDOW)
        return self._remove_rows("starts", "kind, tenant, at", "at <= ?", expiry, limit)

    def _remove_buckets(self, _now: datetime, limit: int) -> bool:
        watermark = self._partitions.watermark()
        if watermark is None:
            return False
        return self._remove_rows(
            "buckets", "bucket, shard", "bucket < ?", to_minute(watermark), limit
        )

    def _remove_rows(
        self, table: str, key_columns: str, condition: str, bound: int, limit: int
    ) -> bool:
        """Remove at most `limit` rows that meet the condition. Return True if more may be left."""
        removed = self._transaction.db.execute(
            f"DELETE FROM {table} WHERE ({key_columns}) IN "
            f"(SELECT {key_columns} FROM {table} WHERE {condition} LIMIT ?)",
            (bound, limit),
        ).rowcount
        return removed >= limit
