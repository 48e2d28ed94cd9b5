"""The node's run queue: the QUEUED runs, by priority, then by due time.

The table `queue` is an index of the job states. The commit that changes a job state changes its
rows. So the queue needs no repair after a crash, and holds no run that was cancelled, paused or
claimed.
"""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

from punctual.domain.job_state import Lane, Priority
from punctual.engine.ports.run_queue import Message
from punctual.node.limits import Admission
from punctual.node.run_queue.slots import INLINE, SLOTS
from punctual.node.sqlite.codec import micros, moment
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.rows import read_rows
from punctual.node.sqlite.transaction import Transaction

ROWS_READ_TOGETHER = 100
_PLACE = "slot = ? AND tenant = ? AND priority = ?"

Row = tuple[Priority, int, str, str, str]  # priority, due time, job, run, tenant


class RunQueue:
    """The Messages port of the node.

    A tenant at its limit costs one probe of the index, however many of its runs wait.
    """

    def __init__(self, unit: Transaction, heads: SqliteJobStates, admission: Admission) -> None:
        self._unit = unit
        self._heads = heads
        self._admission = admission
        self._next_at: datetime | None = None

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Note when the earliest run is due. The rows come with the job states."""
        moments = [message.due_at for message in messages]
        if self._next_at is not None:
            moments.append(self._next_at)
        self._next_at = min(moments, default=None)
        return [True] * len(messages)

    def take(self, slot: str, now: datetime, limit: int) -> list[Message]:
        """Return at most `limit` due runs, without those of tenants that are at their limit."""
        with self._unit:
            self._heads.flush()
            rooms = {
                tenant: self._admission.room(tenant, now, limit, slot)
                for tenant in self._tenants(slot)
            }
            parts = [
                islice(self._due(slot, tenant, priority, now), room)
                for tenant, room in rooms.items()
                for priority in Priority
                if room
            ]
            taken: list[Message] = []
            for row in heapq.merge(*parts):
                if len(taken) == limit:
                    break
                tenant = row[-1]
                if rooms[tenant]:
                    rooms[tenant] -= 1
                    taken.append(_message(slot, row))
            return taken

    def _tenants(self, slot: str) -> Iterator[str]:
        """Yield the tenants with queued runs, with one probe of the index for each."""
        tenant: str | None = ""
        while True:
            ((tenant,),) = read_rows(
                self._unit.db,
                "SELECT min(tenant) FROM queue WHERE slot = ? AND tenant > ?",
                (SLOTS[slot], tenant),
            )
            if not isinstance(tenant, str):
                return
            yield tenant

    def _due(self, slot: str, tenant: str, priority: Priority, now: datetime) -> Iterator[Row]:
        """Yield the runs that may be claimed now, the earliest first. Rows are read in batches."""
        behind: tuple[Any, ...] = (-1, "", "")
        at = micros(now)
        while True:
            rows = read_rows(
                self._unit.db,
                f"SELECT due, job_id, run_id FROM queue WHERE {_PLACE} AND due <= ? "
                "AND (due, job_id, run_id) > (?, ?, ?) AND retry_at <= ? "
                "ORDER BY due, job_id, run_id LIMIT ?",
                (SLOTS[slot], tenant, priority, at, *behind, at, ROWS_READ_TOGETHER),
            )
            for row in rows:
                yield priority, *row, tenant
            if len(rows) < ROWS_READ_TOGETHER:
                return
            behind = rows[-1]

    def postpone(self, slot: str, runs: Sequence[Message], until: datetime) -> None:
        """Leave out runs until `until`.

        Their claims failed, for example because the job state is damaged.
        """
        rows = [
            (SLOTS[slot], run.tenant, run.priority, micros(run.due_at), *run[1:3]) for run in runs
        ]
        with self._unit:
            self._unit.begin()
            self._unit.db.executemany(
                f"UPDATE queue SET retry_at = {micros(until)} WHERE {_PLACE} AND due = ? "
                "AND job_id = ? AND run_id = ?",
                rows,
            )

    def clock_was_set(self) -> None:
        """Offer postponed runs at once. Their times came from the clock before it was set."""
        with self._unit:
            self._unit.begin()
            self._unit.db.execute("UPDATE queue SET retry_at = 0 WHERE retry_at > 0")

    def next_at(self) -> datetime | None:
        """Return when the next run may start, as far as time alone decides."""
        return self._next_at

    def look_ahead(self, slots: Sequence[str], now: datetime) -> None:
        """Compute `next_at` for the slots that have room.

        In full slots the end of a run makes room.
        """
        moments: list[datetime | None] = []
        with self._unit:
            for slot in slots:
                for tenant in self._tenants(slot):
                    if self._admission.room(tenant, now, 1, slot):
                        moments += [self._first(slot, tenant, one, now) for one in Priority]
                    else:
                        moments.append(self._admission.free_at(tenant))
        self._next_at = min((at for at in moments if at is not None), default=None)

    def _first(self, slot: str, tenant: str, priority: Priority, now: datetime) -> datetime | None:
        found = self._unit.db.execute(
            f"SELECT due FROM queue WHERE {_PLACE} AND retry_at <= ? ORDER BY due LIMIT 1",
            (SLOTS[slot], tenant, priority, micros(now)),
        ).fetchone()
        return None if found is None else moment(found[0])


def _message(slot: str, row: Row) -> Message:
    priority, due, job_id, run_id, tenant = row
    lane = Lane.QUICK if slot == INLINE else Lane(slot)
    return Message(tenant, job_id, run_id, moment(due), priority, lane, 0, "")
