"""History: a row for each run that ended, sorted by run id and so by time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.run import Run, RunStatus, Trigger
from punctual.domain.utc import EPOCH, MICROSECOND
from punctual.engine.changes.run_results import UNREADABLE_RUN_DETAIL
from punctual.engine.ports.history import HistoryPage, RecentRun
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import AttemptRow, Detail, JobKey, RunKey, RunRow
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.counts import RUN_KIND, Counts
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
from punctual.node.sqlite.lists.failures import SqliteFailures
from punctual.node.sqlite.lists.run_pages import find_rows
from punctual.node.sqlite.rows import Codec, from_micros, insert_rows, to_micros
from punctual.node.sqlite.transaction import Transaction

RUN_CODEC = Codec(RunRow, packed=True)
ATTEMPT_CODEC = Codec(AttemptRow, packed=True)
_INSERT_RUN = (
    "INTO runs (tenant, job_id, run_id, expires, status, scheduled, duration, cause, reason, row) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SELECT_RUNS = "SELECT job_id, run_id, expires, status, row FROM runs"
_WHERE_RUN = "WHERE tenant = ? AND job_id = ? AND run_id = ?"
_FROM_RUN = f"FROM runs {_WHERE_RUN}"

_STATUSES = {status.value: status for status in RunStatus}

_RunValues = tuple[str, str, str, int, str, int, int | None, str | None, str | None, bytes]


def unreadable_run(key: RunKey, status: str, expires_at: datetime) -> RunRow:
    """Return the known fields of a run with a damaged row.

    Its id holds its time, and its expiry its end.
    """
    due_at = EPOCH + timedelta(milliseconds=int(key.run_id[:8] + key.run_id[9:13], 16))
    ended_at = expires_at - HISTORY_RETENTION
    run = Run(key.run_id, RunStatus(status), 0, due_at, due_at, due_at, ended_at, ended_at=ended_at)
    return RunRow(key.tenant, key.job_id, run, expires_at, detail=UNREADABLE_RUN_DETAIL)


class SqliteHistory:
    def __init__(
        self,
        transaction: Transaction,
        counts: Counts,
        failures: SqliteFailures,
        changes: SqliteChangeFeed,
    ) -> None:
        self._transaction = transaction
        self._failures = failures
        self._changes = changes
        self._counts = counts
        self.pending_runs: dict[
            RunKey, RunRow
        ] = {}  # rows of this transaction that are not written yet
        self.pending_attempts: list[AttemptRow] = []

    def put_runs(self, rows: Sequence[RunRow]) -> None:
        with self._transaction:
            for row in rows:
                self.pending_runs[RunKey(row.tenant, row.job_id, row.run.run_id)] = row
            self._changes.add_history(rows)

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        with self._transaction:
            self.pending_attempts.extend(rows)

    def put_results(self, rows: Sequence[AttemptRow]) -> None:
        self.put_attempts(rows)

    def find_result(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        details = [
            UNREADABLE_RUN_DETAIL if row is None else row.detail
            for token, lost, row in self._read_attempts(key, now)
            if token == run.token and not lost
        ]
        return details[-1] if details else None

    def recorded_keys(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        with self._transaction:
            return frozenset(key for key in keys if key in self.pending_runs or self._exists(key))

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        with self._transaction:
            rows = {}
            for key in keys:
                row = self.pending_runs.get(key) or self._read(key)
                if row is not None and row.expires_at > now:
                    rows[key] = row
            return rows

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        return [row for *_, row in self._read_attempts(key, now) if row is not None]

    def _read_attempts(
        self, key: RunKey, now: datetime
    ) -> Sequence[tuple[int, bool, AttemptRow | None]]:
        """Return token, LOST flag and row of each attempt. An unreadable row is None."""
        with self._transaction:
            self._flush_attempts()
            rows = self._transaction.db.execute(
                "SELECT token, lost, row FROM attempts WHERE tenant = ? AND job_id = ? "
                "AND run_id = ? AND (expires IS NULL OR expires > ?) ORDER BY number, token, lost",
                (*key, to_micros(now)),
            ).fetchall()
            return [
                (token, bool(lost), self._decode_attempt(key, row)) for token, lost, row in rows
            ]

    def _decode_attempt(self, key: RunKey, encoded: bytes) -> AttemptRow | None:
        try:
            return ATTEMPT_CODEC.decode(encoded)
        except DECODING_ERRORS as error:
            self._transaction.damage.note("attempts", key, error)
            return None

    def _decode_run(self, tenant: str, columns: tuple[str, str, int, str, bytes]) -> RunRow:
        """Return the decoded row.

        An unreadable row is shown with the content of its columns, so that no list omits it.
        """
        job_id, run_id, expires, status, encoded = columns
        try:
            return RUN_CODEC.decode(encoded)
        except DECODING_ERRORS as error:
            self._transaction.damage.note("runs", (tenant, job_id, run_id), error)
            return unreadable_run(RunKey(tenant, job_id, run_id), status, from_micros(expires))

    def page(
        self, key: JobKey, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        with self._transaction:
            self.flush()
            bounds = (" AND run_id < ?" if before else "") + (" AND run_id > ?" if after else "")
            bound_values = [bound for bound in (before, after) if bound]
            rows = self._transaction.db.execute(
                f"{_SELECT_RUNS} WHERE tenant = ? AND job_id = ?{bounds} AND expires > ? "
                "ORDER BY run_id DESC LIMIT ?",
                (*key, *bound_values, to_micros(now), limit),
            )
            return [self._decode_run(key.tenant, row) for row in rows.fetchall()]

    def recent_runs(
        self, keys: Sequence[JobKey], limit: int, now: datetime
    ) -> Mapping[JobKey, Sequence[RecentRun]]:
        with self._transaction:
            self.flush()
            return {key: self._recent_runs(key, limit, now) for key in keys}

    def _recent_runs(self, key: JobKey, limit: int, now: datetime) -> list[RecentRun]:
        """Read the columns of runs, but decode no row."""
        rows = self._transaction.db.execute(
            "SELECT run_id, status, scheduled, duration FROM runs WHERE tenant = ? "
            "AND job_id = ? AND expires > ? ORDER BY run_id DESC LIMIT ?",
            (*key, to_micros(now), limit),
        ).fetchall()
        return [
            RecentRun(
                run_id,
                _STATUSES[status],
                from_micros(scheduled),
                None if duration is None else duration * MICROSECOND,
            )
            for run_id, status, scheduled, duration in rows
        ]

    def page_all(
        self,
        tenant: str,
        filters: RunFilters,
        before: tuple[str, str] | None,
        limit: int,
        now: datetime,
    ) -> HistoryPage:
        with self._transaction:
            self.flush()
            db = self._transaction.db
            page = find_rows(db, tenant, filters, before, limit, now)
            rows = [
                db.execute(f"{_SELECT_RUNS} WHERE id = ?", (row_id,)).fetchone()
                for row_id in page.row_ids
            ]
            return HistoryPage([self._decode_run(tenant, row) for row in rows], page.before)

    def _exists(self, key: RunKey) -> bool:
        return self._transaction.db.execute(f"SELECT 1 {_FROM_RUN}", key).fetchone() is not None

    def _read(self, key: RunKey) -> RunRow | None:
        row = self._transaction.db.execute(f"{_SELECT_RUNS} {_WHERE_RUN}", key).fetchone()
        return None if row is None else self._decode_run(key.tenant, row)

    def flush(self) -> None:
        self._flush_attempts()
        if not self.pending_runs:
            return
        self._transaction.begin()
        encode = RUN_CODEC.encode
        rows: list[_RunValues] = []
        expires_at, expires = None, 0
        for key, row in self.pending_runs.items():
            if row.expires_at is not expires_at:  # runs of one batch share it
                expires_at = row.expires_at
                expires = to_micros(expires_at)
            run = row.run
            duration = run.duration
            rows.append(
                (
                    *key,
                    expires,
                    run.status._value_,
                    to_micros(run.scheduled_at),
                    None if duration is None else duration // MICROSECOND,
                    None if run.trigger is Trigger.SCHEDULE else run.trigger._value_,
                    run.reason._value_ or None,
                    encode(row),
                )
            )
        self._failures.note_ended(self.pending_runs)
        self.pending_runs.clear()
        self._write(rows)

    def _write(self, rows: Sequence[_RunValues]) -> None:
        """Insert the rows and count them.

        Usually all are new. Otherwise the insert is rolled back, and each old row is read for the
        counts.
        """
        db = self._transaction.db
        db.execute("SAVEPOINT new_rows")
        written = insert_rows(db, f"INSERT OR IGNORE {_INSERT_RUN}", rows)
        if written < len(rows):
            db.execute("ROLLBACK TO new_rows")
        db.execute("RELEASE new_rows")
        if written == len(rows):
            self._count(rows, 1)
            return
        for row in rows:
            old_row = db.execute(f"SELECT status {_FROM_RUN}", row[:3]).fetchone()
            if old_row is not None:
                self._counts.changes[row[0], RUN_KIND, old_row[0]] -= 1
            db.execute(f"INSERT OR REPLACE {_INSERT_RUN}", row)
        self._count(rows, 1)

    def _count(self, rows: Sequence[_RunValues], change: int) -> None:
        changes = self._counts.changes
        for (tenant, status), count in Counter((row[0], row[4]) for row in rows).items():
            changes[tenant, RUN_KIND, status] += change * count

    def _flush_attempts(self) -> None:
        if not self.pending_attempts:
            return
        self._transaction.begin()
        self._transaction.db.executemany(
            "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    row.tenant,
                    row.job_id,
                    row.run_id,
                    row.number,
                    row.token,
                    row.lost,
                    None if row.expires_at is None else to_micros(row.expires_at),
                    ATTEMPT_CODEC.encode(row),
                )
                for row in self.pending_attempts
            ],
        )
        self.pending_attempts.clear()

    def on_rollback(self) -> None:
        self.pending_runs.clear()
        self.pending_attempts.clear()
