"""Timers: held in memory until the commit, then one small row each, filed by minute."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from punctual.domain.errors import Unreadable
from punctual.engine.ports.timers import Timer, TimerPage
from punctual.node.sqlite.rows import (
    Codec,
    from_micros,
    insert_rows,
    read_rows,
    to_micros,
    to_minute,
)
from punctual.node.sqlite.transaction import Transaction

_CURSOR_CODEC = Codec(tuple[int, str, str, int])
_AFTER_CURSOR = " AND (at, tenant, job_id, version) > (?, ?, ?, ?)"
# A text that is not UTF-8 was read as bytes. To SQLite bytes never equal a text.
_SAME_TIMER = " AND ".join(
    f"({name} IS ? OR {name} IS CAST(? AS TEXT))" for name in ("at", "tenant", "job_id", "version")
)


class SqliteTimers:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.pending: dict[Timer, bool] = {}

    def put(self, timers: Sequence[Timer]) -> None:
        with self._transaction:
            self.pending.update(dict.fromkeys(timers, True))

    def delete(self, timers: Sequence[Timer]) -> None:
        """Delete timers.

        One that was put in the same transaction is also deleted from the table, where it may have
        stood before.
        """
        with self._transaction:
            self.pending.update(dict.fromkeys(timers, False))

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        with self._transaction:
            self.flush()
            cursor_values = () if cursor is None else _CURSOR_CODEC.decode(cursor)
            rows = read_rows(
                self._transaction.db,
                "SELECT at, tenant, job_id, version FROM timers WHERE bucket = ? AND shard = ? "
                f"AND at <= ?{_AFTER_CURSOR if cursor_values else ''} "
                "ORDER BY at, tenant, job_id, version LIMIT ?",
                (to_minute(bucket), shard, to_micros(until), *cursor_values, limit),
            )
            if not all(map(_is_timer, rows)):
                self._remove_unreadable(bucket, shard, [row for row in rows if not _is_timer(row)])
                return self.due(bucket, shard, until, cursor, limit)
        timers = [
            Timer(bucket, shard, from_micros(due_micros), tenant, job_id, version)
            for due_micros, tenant, job_id, version in rows
        ]
        has_more = rows and len(rows) == limit
        return TimerPage(timers, _CURSOR_CODEC.encode(rows[-1]).decode() if has_more else None)

    def _remove_unreadable(
        self, bucket: datetime, shard: int, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        """Remove unreadable rows, which would keep their minute open forever.

        The next walk of the reconciler gives their jobs new timers.
        """
        self._transaction.begin()
        for row in rows:
            self._transaction.damage.note("timers", (bucket, shard, *row), TypeError("not a timer"))
            deleted = self._transaction.db.execute(
                f"DELETE FROM timers WHERE bucket = ? AND shard = ? AND {_SAME_TIMER}",
                (to_minute(bucket), shard, *(value for value in row for _ in range(2))),
            )
            if not deleted.rowcount:
                raise Unreadable("A timer that cannot be read cannot be removed either.")
        self._transaction.damage.has_lost_timer = True

    def find_existing(self, timers: Sequence[Timer]) -> frozenset[Timer]:
        with self._transaction:
            self.flush()
            return frozenset(timer for timer in timers if self._has_timer_at(timer))

    def _has_timer_at(self, timer: Timer) -> bool:
        rows = self._transaction.db.execute(
            "SELECT 1 FROM timers WHERE bucket = ? AND shard = ? AND at = ? AND tenant = ? "
            "AND job_id = ? LIMIT 1",
            (to_minute(timer.bucket), timer.shard, to_micros(timer.at), timer.tenant, timer.job_id),
        )
        return rows.fetchone() is not None

    def flush(self) -> None:
        if not self.pending:
            return
        self._transaction.begin()
        db = self._transaction.db
        put_rows = _timer_rows([timer for timer, is_put in self.pending.items() if is_put])
        deleted_rows = _timer_rows([timer for timer, is_put in self.pending.items() if not is_put])
        self.pending.clear()
        if put_rows:
            insert_rows(db, "INSERT OR IGNORE INTO timers VALUES (?, ?, ?, ?, ?, ?)", put_rows)
        if deleted_rows:
            db.executemany(
                "DELETE FROM timers WHERE bucket = ? AND shard = ? AND at = ? AND tenant = ? "
                "AND job_id = ? AND version = ?",
                deleted_rows,
            )

    def on_rollback(self) -> None:
        self.pending.clear()


def _is_timer(row: tuple[Any, ...]) -> bool:
    """Return whether the values have the types of a timer. SQLite stores any type in any column."""
    due_micros, tenant, job_id, version = row
    return (
        type(due_micros) is int
        and due_micros >= 0
        and type(version) is int
        and type(tenant) is str
        and type(job_id) is str
    )


def _timer_rows(timers: Sequence[Timer]) -> list[tuple[int | str, ...]]:
    """Return the rows of timers. Many share a time, which is converted once."""
    minutes = {bucket: to_minute(bucket) for bucket in {timer.bucket for timer in timers}}
    micros_by_time = {due_at: to_micros(due_at) for due_at in {timer.at for timer in timers}}
    return [
        (minutes[bucket], shard, micros_by_time[due_at], tenant, job_id, version)
        for bucket, shard, due_at, tenant, job_id, version in timers
    ]
