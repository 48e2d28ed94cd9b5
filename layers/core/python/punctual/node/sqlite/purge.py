"""Removes expired rows in steps of bounded size. Until then reads filter them out."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from punctual.domain.durations import RETENTION
from punctual.domain.identifiers import sortable_id
from punctual.engine.commands.definitions_store import payload_name
from punctual.engine.ports.rows import AttemptRow, Key
from punctual.node.files.blobs import FileBlobs
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import micros, minute
from punctual.node.sqlite.control import SqliteBuckets
from punctual.node.sqlite.counts import JOB, RUN, Counts
from punctual.node.sqlite.definitions import BODY
from punctual.node.sqlite.history import ATTEMPT, MOMENT, ROW, SqliteHistory
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.recent_starts import MINUTE
from punctual.node.sqlite.state_rows import read_heads, uncount
from punctual.node.sqlite.transaction import Transaction

EVENTS_KEPT = timedelta(hours=24)
_SLACK = timedelta(hours=1)
_START = ("", "", 0)
T = TypeVar("T")


class Purge:
    """Removes expired rows.

    A blob goes before the row that names it, so that no blob is left without a row.
    """

    def __init__(
        self,
        unit: Transaction,
        counts: Counts,
        heads: SqliteJobStates,
        history: SqliteHistory,
        buckets: SqliteBuckets,
        blobs: FileBlobs,
    ) -> None:
        self._unit = unit
        self._counts = counts
        self._heads = heads
        self._history = history
        self._buckets = buckets
        self._blobs = blobs
        self._walked: tuple[str, str, int] = _START

    def step(self, now: datetime, limit: int) -> bool:
        """Remove at most `limit` rows of each kind. Return whether more may be expired."""
        with self._unit:
            self._heads.flush()
            self._unit.begin()
            kept = (self._receipts, self._tokens, self._events, self._minutes, self._audit)
            steps = (self._jobs, self._runs, *kept, self._starts)
            more = [step(now, limit) for step in steps]
            return any(more)

    def _jobs(self, now: datetime, limit: int) -> bool:
        db = self._unit.db
        found = db.execute(
            "SELECT id, state, tenant, job_id, head FROM heads WHERE expires <= ? LIMIT ?",
            (micros(now), limit),
        ).fetchall()
        keys = [Key(tenant, job_id) for _, _, tenant, job_id, _ in found]
        names = []
        for key in keys:
            for (row,) in db.execute(
                "SELECT body FROM bodies WHERE tenant = ? AND job_id = ?", key
            ):
                body = self._decoded("bodies", key, BODY.decode, row)
                names.append("" if body is None else body.payload_blob)
            self._heads.forget(key)
        heads, unread = read_heads(self._unit.damage, [row[2:] for row in found])
        uncount(heads, self._counts.changes)
        for _, state, *key, _ in found:
            if Key(*key) in unread:
                self._counts.changes[key[0], JOB, state] -= 1
        self._blobs.delete([name for name in names if name])
        db.executemany("DELETE FROM leases WHERE head = ?", [(row[0],) for row in found])
        for table in ("bodies", "heads"):
            db.executemany(f"DELETE FROM {table} WHERE tenant = ? AND job_id = ?", keys)
        return len(found) >= limit

    def _runs(self, now: datetime, limit: int) -> bool:
        """Walk the old end of a tenant's history. Younger runs cannot be expired."""
        db = self._unit.db
        self._history.flush()
        tenant, after, number = self._walked
        young = sortable_id(now - RETENTION + _SLACK, bytes(10))
        rows = db.execute(
            "SELECT run_id, job_id, expires, status, row, id FROM runs WHERE tenant = ? "
            f"AND ({MOMENT}, id) > (?, ?) AND {MOMENT} < substr(?, 1, 13) "
            f"ORDER BY {MOMENT}, id LIMIT ?",
            (tenant, after, number, young, limit),
        ).fetchall()
        self._remove_runs(tenant, [row for row in rows if row[2] <= micros(now)])
        if len(rows) >= limit:
            self._walked = tenant, rows[-1][0][:13], rows[-1][5]
            return True
        following = db.execute("SELECT min(tenant) FROM runs WHERE tenant > ?", (tenant,))
        (tenant,) = following.fetchone()
        self._walked = _START if tenant is None else (tenant, "", 0)
        return tenant is not None

    def _remove_runs(
        self, tenant: str, rows: Sequence[tuple[str, str, int, str, bytes, int]]
    ) -> None:
        names = []
        for run_id, job_id, _, status, row, _ in rows:
            attempts = self._attempts(tenant, job_id, run_id)
            kept = self._decoded("runs", (tenant, job_id, run_id), ROW.decode, row)
            details = [attempt.detail for attempt in attempts]
            for detail in details if kept is None else [kept.detail, *details]:
                names += [detail.output_blob, detail.log_blob]
            if kept is not None and kept.run.own_payload:
                names.append(payload_name(Key(tenant, job_id), run_id))
            self._counts.changes[tenant, RUN, status] -= 1
        self._blobs.delete([name for name in names if name])
        keys = [(tenant, run_id, job_id) for run_id, job_id, *_ in rows]
        for table in ("attempts", "runs"):
            self._unit.db.executemany(
                f"DELETE FROM {table} WHERE tenant = ? AND run_id = ? AND job_id = ?", keys
            )

    def _attempts(self, tenant: str, job_id: str, run_id: str) -> list[AttemptRow]:
        rows = self._unit.db.execute(
            "SELECT row FROM attempts WHERE tenant = ? AND job_id = ? AND run_id = ?",
            (tenant, job_id, run_id),
        )
        key = (tenant, job_id, run_id)
        found = [self._decoded("attempts", key, ATTEMPT.decode, row) for (row,) in rows.fetchall()]
        return [attempt for attempt in found if attempt is not None]

    def _decoded(
        self, table: str, key: tuple[str, ...], decode: Callable[[bytes], T], row: bytes
    ) -> T | None:
        """Return the decoded row, or None if it is unreadable.

        An unreadable row is removed when it expires, but its blobs stay.
        """
        try:
            return decode(row)
        except DECODING as error:
            self._unit.damage.note(table, key, error)
            return None

    def _receipts(self, now: datetime, limit: int) -> bool:
        gone = self._unit.db.execute(
            "DELETE FROM receipts WHERE (tenant, name) IN "
            "(SELECT tenant, name FROM receipts WHERE expires <= ? LIMIT ?)",
            (micros(now), limit),
        ).rowcount
        return gone >= limit

    def _tokens(self, now: datetime, limit: int) -> bool:
        gone = self._unit.db.execute(
            "DELETE FROM tokens WHERE hash IN "
            "(SELECT hash FROM tokens WHERE forgotten_at <= ? LIMIT ?)",
            (micros(now), limit),
        ).rowcount
        return gone >= limit

    def _events(self, now: datetime, limit: int) -> bool:
        """Remove expired events in order, but never the newest: new numbers continue from it."""
        gone = self._unit.db.execute(
            "DELETE FROM feed WHERE seq IN (SELECT seq FROM feed ORDER BY seq LIMIT ?) "
            "AND at <= ? AND seq < (SELECT max(seq) FROM feed)",
            (limit, micros(now - EVENTS_KEPT)),
        ).rowcount
        return gone >= limit

    def _audit(self, now: datetime, limit: int) -> bool:
        gone = self._unit.db.execute(
            "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE latest <= ? LIMIT ?)",
            (micros(now - RETENTION), limit),
        ).rowcount
        return gone >= limit

    def _starts(self, now: datetime, limit: int) -> bool:
        """Remove old starts and start requests of inactive tenants.

        Active tenants remove their own with each addition.
        """
        gone = self._unit.db.execute(
            "DELETE FROM starts WHERE (kind, tenant, at) IN "
            "(SELECT kind, tenant, at FROM starts WHERE at <= ? LIMIT ?)",
            (micros(now - MINUTE), limit),
        ).rowcount
        return gone >= limit

    def _minutes(self, _now: datetime, limit: int) -> bool:
        mark = self._buckets.watermark()
        if mark is None:
            return False
        gone = self._unit.db.execute(
            "DELETE FROM buckets WHERE (bucket, shard) IN "
            "(SELECT bucket, shard FROM buckets WHERE bucket < ? LIMIT ?)",
            (minute(mark), limit),
        ).rowcount
        return gone >= limit
