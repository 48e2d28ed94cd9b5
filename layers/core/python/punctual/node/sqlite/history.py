"""History: a row for each run that ended, sorted by run id and so by time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from punctual.domain.durations import RETENTION
from punctual.domain.identifiers import EPOCH
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.run_results import UNREADABLE
from punctual.engine.ports.rows import AttemptRow, Detail, Key, RunKey, RunRow
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.bulk_insert import insert
from punctual.node.sqlite.codec import Packed, micros, moment
from punctual.node.sqlite.counts import RUN, Counts
from punctual.node.sqlite.transaction import Transaction

ROW = Packed(RunRow)
ATTEMPT = Packed(AttemptRow)
MOMENT = "substr(run_id, 1, 13)"  # the 48 bits of time in an id
_INSERT = "INTO runs (tenant, job_id, run_id, expires, status, row) VALUES (?, ?, ?, ?, ?, ?)"
_SELECT = "SELECT job_id, run_id, expires, status, row FROM runs"
_PLACE = "WHERE tenant = ? AND job_id = ? AND run_id = ?"
_ONE = f"FROM runs {_PLACE}"

_Row = tuple[str, str, str, int, str, bytes]


def unreadable_run(key: RunKey, status: str, expires_at: datetime) -> RunRow:
    """Return the known fields of a run with a damaged row.

    Its id holds its time, and its expiry its end.
    """
    at = EPOCH + timedelta(milliseconds=int(key.run_id[:8] + key.run_id[9:13], 16))
    ended_at = expires_at - RETENTION
    run = Run(key.run_id, RunStatus(status), 0, at, at, at, ended_at, ended_at=ended_at)
    return RunRow(key.tenant, key.job_id, run, expires_at, detail=UNREADABLE)


class SqliteHistory:
    def __init__(self, unit: Transaction, counts: Counts) -> None:
        self._unit = unit
        self._counts = counts
        self.held: dict[RunKey, RunRow] = {}  # rows of this transaction that are not written yet
        self._attempts: list[AttemptRow] = []

    def put(self, rows: Sequence[RunRow]) -> None:
        with self._unit:
            for row in rows:
                self.held[RunKey(row.tenant, row.job_id, row.run.run_id)] = row

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        with self._unit:
            self._attempts.extend(rows)

    def put_ends(self, rows: Sequence[AttemptRow]) -> None:
        self.put_attempts(rows)

    def end(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        mine = [
            UNREADABLE if row is None else row.detail
            for token, lost, row in self._attempts_of(key, now)
            if token == run.token and not lost
        ]
        return mine[-1] if mine else None

    def present(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        with self._unit:
            return frozenset(key for key in keys if key in self.held or self._stands(key))

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        with self._unit:
            found = {}
            for key in keys:
                row = self.held.get(key) or self._read(key)
                if row is not None and row.expires_at > now:
                    found[key] = row
            return found

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        return [row for *_, row in self._attempts_of(key, now) if row is not None]

    def _attempts_of(
        self, key: RunKey, now: datetime
    ) -> Sequence[tuple[int, bool, AttemptRow | None]]:
        """Return token, LOST flag and row of each attempt. An unreadable row is None."""
        with self._unit:
            self._flush_attempts()
            rows = self._unit.db.execute(
                "SELECT token, lost, row FROM attempts WHERE tenant = ? AND job_id = ? "
                "AND run_id = ? AND (expires IS NULL OR expires > ?) ORDER BY number, token, lost",
                (*key, micros(now)),
            ).fetchall()
            return [(token, bool(lost), self._attempt(key, row)) for token, lost, row in rows]

    def _attempt(self, key: RunKey, row: bytes) -> AttemptRow | None:
        try:
            return ATTEMPT.decode(row)
        except DECODING as error:
            self._unit.damage.note("attempts", key, error)
            return None

    def _run(self, tenant: str, kept: tuple[str, str, int, str, bytes]) -> RunRow:
        """Return the decoded row.

        An unreadable row is shown with the content of its columns, so that no list omits it.
        """
        job_id, run_id, expires, status, row = kept
        try:
            return ROW.decode(row)
        except DECODING as error:
            self._unit.damage.note("runs", (tenant, job_id, run_id), error)
            return unreadable_run(RunKey(tenant, job_id, run_id), status, moment(expires))

    def page(
        self, key: Key, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        with self._unit:
            self.flush()
            bounds = (" AND run_id < ?" if before else "") + (" AND run_id > ?" if after else "")
            given = [bound for bound in (before, after) if bound]
            rows = self._unit.db.execute(
                f"{_SELECT} WHERE tenant = ? AND job_id = ?{bounds} AND expires > ? "
                "ORDER BY run_id DESC LIMIT ?",
                (*key, *given, micros(now), limit),
            )
            return [self._run(key.tenant, row) for row in rows.fetchall()]

    def page_all(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        with self._unit:
            self.flush()
            bound = f" AND {MOMENT} <= ? AND (run_id, job_id) < (?, ?)" if before else ""
            given = (before[0][:13], *before) if before else ()
            db = self._unit.db
            found = db.execute(  # Select ids first, so that SQLite does not sort long rows.
                f"SELECT id FROM runs INDEXED BY runs_by_moment WHERE tenant = ?{bound} "
                f"AND expires > ? ORDER BY {MOMENT} DESC, run_id DESC, job_id DESC LIMIT ?",
                (tenant, *given, micros(now), limit),
            )
            rows = [
                db.execute(f"{_SELECT} WHERE id = ?", number).fetchone()
                for number in found.fetchall()
            ]
            return [self._run(tenant, row) for row in rows]

    def _stands(self, key: RunKey) -> bool:
        return self._unit.db.execute(f"SELECT 1 {_ONE}", key).fetchone() is not None

    def _read(self, key: RunKey) -> RunRow | None:
        row = self._unit.db.execute(f"{_SELECT} {_PLACE}", key).fetchone()
        return None if row is None else self._run(key.tenant, row)

    def flush(self) -> None:
        self._flush_attempts()
        if not self.held:
            return
        self._unit.begin()
        encode = ROW.encode
        rows: list[_Row] = []
        at, expires = None, 0
        for key, row in self.held.items():
            if row.expires_at is not at:  # runs of one batch share it
                at = row.expires_at
                expires = micros(at)
            rows.append((*key, expires, row.run.status._value_, encode(row)))
        self.held.clear()
        self._write(rows)

    def _write(self, rows: Sequence[_Row]) -> None:
        """Insert the rows and count them.

        Usually all are new. Otherwise the insert is rolled back, and each old row is read for the
        counts.
        """
        db = self._unit.db
        db.execute("SAVEPOINT new_rows")
        written = insert(db, f"INSERT OR IGNORE {_INSERT}", rows)
        if written < len(rows):
            db.execute("ROLLBACK TO new_rows")
        db.execute("RELEASE new_rows")
        if written == len(rows):
            self._count(rows, 1)
            return
        for row in rows:
            old = db.execute(f"SELECT status {_ONE}", row[:3]).fetchone()
            if old is not None:
                self._counts.changes[row[0], RUN, old[0]] -= 1
            db.execute(f"INSERT OR REPLACE {_INSERT}", row)
        self._count(rows, 1)

    def _count(self, rows: Sequence[_Row], by: int) -> None:
        changes = self._counts.changes
        for (tenant, status), n in Counter((row[0], row[4]) for row in rows).items():
            changes[tenant, RUN, status] += by * n

    def _flush_attempts(self) -> None:
        if not self._attempts:
            return
        self._unit.begin()
        self._unit.db.executemany(
            "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    row.tenant,
                    row.job_id,
                    row.run_id,
                    row.number,
                    row.token,
                    row.lost,
                    None if row.expires_at is None else micros(row.expires_at),
                    ATTEMPT.encode(row),
                )
                for row in self._attempts
            ],
        )
        self._attempts.clear()

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self.held.clear()
        self._attempts.clear()
