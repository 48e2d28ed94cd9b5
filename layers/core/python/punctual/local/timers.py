"""Timers: held back until the commit, then one small row each, filed by their minute."""

from collections.abc import Sequence
from datetime import datetime

from punctual.engine.ports import Timer, TimerPage
from punctual.local.codec import Codec, micros, minute, moment
from punctual.local.inserting import insert
from punctual.local.unit import Unit

_CURSOR = Codec(tuple[int, str, str, int])
_BEHIND = " AND (at, tenant, job_id, version) > (?, ?, ?, ?)"


class SqliteTimers:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._wanted: dict[Timer, bool] = {}

    def put(self, timers: Sequence[Timer]) -> None:
        with self._unit:
            self._wanted.update(dict.fromkeys(timers, True))

    def delete(self, timers: Sequence[Timer]) -> None:
        """Also of one put in the same unit: it may have stood before."""
        with self._unit:
            self._wanted.update(dict.fromkeys(timers, False))

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        with self._unit:
            self.flush()
            behind = () if cursor is None else _CURSOR.decode(cursor)
            rows = self._unit.db.execute(
                "SELECT at, tenant, job_id, version FROM timers WHERE bucket = ? AND shard = ? "
                f"AND at <= ?{_BEHIND if behind else ''} "
                "ORDER BY at, tenant, job_id, version LIMIT ?",
                (minute(bucket), shard, micros(until), *behind, limit),
            ).fetchall()
        found = [
            Timer(bucket, shard, moment(at), tenant, job_id, version)
            for at, tenant, job_id, version in rows
        ]
        more = rows and len(rows) == limit
        return TimerPage(found, _CURSOR.encode(rows[-1]).decode() if more else None)

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


def _rows(timers: Sequence[Timer]) -> list[tuple[int | str, ...]]:
    """Many are of one moment, whose numbers are worked out once."""
    minutes = {bucket: minute(bucket) for bucket in {timer.bucket for timer in timers}}
    moments = {at: micros(at) for at in {timer.at for timer in timers}}
    return [
        (minutes[bucket], shard, moments[at], tenant, job_id, version)
        for bucket, shard, at, tenant, job_id, version in timers
    ]
