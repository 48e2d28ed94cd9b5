"""Timers: held in memory until the commit, then one small row each, filed by minute."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from punctual.domain.errors import Unreadable
from punctual.engine.ports.timers import Timer, TimerPage
from punctual.node.sqlite.bulk_insert import insert
from punctual.node.sqlite.codec import Codec, micros, minute, moment
from punctual.node.sqlite.rows import read_rows
from punctual.node.sqlite.transaction import Transaction

_CURSOR = Codec(tuple[int, str, str, int])
_BEHIND = " AND (at, tenant, job_id, version) > (?, ?, ?, ?)"
# A text that is not UTF-8 was read as bytes. To SQLite bytes never equal a text.
_SAME = " AND ".join(
    f"({name} IS ? OR {name} IS CAST(? AS TEXT))" for name in ("at", "tenant", "job_id", "version")
)


class SqliteTimers:
    def __init__(self, unit: Transaction) -> None:
        self._unit = unit
        self._wanted: dict[Timer, bool] = {}

    def put(self, timers: Sequence[Timer]) -> None:
        with self._unit:
            self._wanted.update(dict.fromkeys(timers, True))

    def delete(self, timers: Sequence[Timer]) -> None:
        """Delete timers.

        One that was put in the same transaction is also deleted from the table, where it may have
        stood before.
        """
        with self._unit:
            self._wanted.update(dict.fromkeys(timers, False))

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        with self._unit:
            self.flush()
            behind = () if cursor is None else _CURSOR.decode(cursor)
            rows = read_rows(
                self._unit.db,
                "SELECT at, tenant, job_id, version FROM timers WHERE bucket = ? AND shard = ? "
                f"AND at <= ?{_BEHIND if behind else ''} "
                "ORDER BY at, tenant, job_id, version LIMIT ?",
                (minute(bucket), shard, micros(until), *behind, limit),
            )
            if not all(map(_is_timer, rows)):
                self._remove(bucket, shard, [row for row in rows if not _is_timer(row)])
                return self.due(bucket, shard, until, cursor, limit)
        found = [
            Timer(bucket, shard, moment(at), tenant, job_id, version)
            for at, tenant, job_id, version in rows
        ]
        more = rows and len(rows) == limit
        return TimerPage(found, _CURSOR.encode(rows[-1]).decode() if more else None)

    def _remove(self, bucket: datetime, shard: int, rows: Sequence[tuple[Any, ...]]) -> None:
        """Remove unreadable rows, which would keep their minute open forever.

        The next walk of the reconciler gives their jobs new timers.
        """
        self._unit.begin()
        for row in rows:
            self._unit.damage.note("timers", (bucket, shard, *row), TypeError("not a timer"))
            gone = self._unit.db.execute(
                f"DELETE FROM timers WHERE bucket = ? AND shard = ? AND {_SAME}",
                (minute(bucket), shard, *(value for value in row for _ in range(2))),
            )
            if not gone.rowcount:
                raise Unreadable("A timer that cannot be read cannot be removed either.")
        self._unit.damage.lost_timer = True

    def standing(self, wanted: Sequence[Timer]) -> frozenset[Timer]:
        with self._unit:
            self.flush()
            return frozenset(timer for timer in wanted if self._is_there(timer))

    def _is_there(self, timer: Timer) -> bool:
        found = self._unit.db.execute(
            "SELECT 1 FROM timers WHERE bucket = ? AND shard = ? AND at = ? AND tenant = ? "
            "AND job_id = ? LIMIT 1",
            (minute(timer.bucket), timer.shard, micros(timer.at), timer.tenant, timer.job_id),
        )
        return found.fetchone() is not None

    def flush(self) -> None:
        if not self._wanted:
            return
        self._unit.begin()
        db = self._unit.db
        put = _rows([timer for timer, stays in self._wanted.items() if stays])
        gone = _rows([timer for timer, stays in self._wanted.items() if not stays])
        self._wanted.clear()
        if put:
            insert(db, "INSERT OR IGNORE INTO timers VALUES (?, ?, ?, ?, ?, ?)", put)
        if gone:
            db.executemany(
                "DELETE FROM timers WHERE bucket = ? AND shard = ? AND at = ? AND tenant = ? "
                "AND job_id = ? AND version = ?",
                gone,
            )

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._wanted.clear()


def _is_timer(row: tuple[Any, ...]) -> bool:
    """Return whether the values have the types of a timer. SQLite stores any type in any column."""
    at, tenant, job_id, version = row
    return (
        type(at) is int
        and at >= 0
        and type(version) is int
        and type(tenant) is str
        and type(job_id) is str
    )


def _rows(timers: Sequence[Timer]) -> list[tuple[int | str, ...]]:
    """Return the rows of timers. Many share a time, which is converted once."""
    minutes = {bucket: minute(bucket) for bucket in {timer.bucket for timer in timers}}
    moments = {at: micros(at) for at in {timer.at for timer in timers}}
    return [
        (minutes[bucket], shard, moments[at], tenant, job_id, version)
        for bucket, shard, at, tenant, job_id, version in timers
    ]
