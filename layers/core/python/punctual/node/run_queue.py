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
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.rows import from_micros, read_rows, to_micros
from punctual.node.sqlite.state_rows import INLINE_SLOT, SLOT_NUMBERS
from punctual.node.sqlite.transaction import Transaction

QUEUE_PAGE_SIZE = 100
_QUEUE_PREFIX = "slot = ? AND tenant = ? AND priority = ?"

QueueRow = tuple[Priority, int, str, str, str]  # priority, due time, job, run, tenant


class RunQueue:
    """The RunQueue port of the node.

    A tenant at its limit costs one probe of the index, however many of its runs wait.
    """

    def __init__(
        self, transaction: Transaction, job_states: SqliteJobStates, admission: Admission
    ) -> None:
        self._transaction = transaction
        self._job_states = job_states
        self._admission = admission
        self._next_at: datetime | None = None

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Remember when the earliest run is due. The job states write the rows."""
        due_times = [message.due_at for message in messages]
        if self._next_at is not None:
            due_times.append(self._next_at)
        self._next_at = min(due_times, default=None)
        return [True] * len(messages)

    def find_due(self, slot: str, now: datetime, limit: int) -> list[Message]:
        """Return at most `limit` due runs, without those of tenants that are at their limit."""
        with self._transaction:
            self._job_states.flush()
            room_by_tenant = {
                tenant: self._admission.room(tenant, now, limit, slot)
                for tenant in self._tenants(slot)
            }
            rows_by_priority = [
                islice(self._due_rows(slot, tenant, priority, now), room)
                for tenant, room in room_by_tenant.items()
                for priority in Priority
                if room
            ]
            messages: list[Message] = []
            for row in heapq.merge(*rows_by_priority):
                if len(messages) == limit:
                    break
                tenant = row[-1]
                if room_by_tenant[tenant]:
                    room_by_tenant[tenant] -= 1
                    messages.append(_message(slot, row))
            return messages

    def _tenants(self, slot: str) -> Iterator[str]:
        """Yield the tenants with queued runs, with one probe of the index for each."""
        tenant: str | None = ""
        while True:
            ((tenant,),) = read_rows(
                self._transaction.db,
                "SELECT min(tenant) FROM queue WHERE slot = ? AND tenant > ?",
                (SLOT_NUMBERS[slot], tenant),
            )
            if not isinstance(tenant, str):
                return
            yield tenant

    def _due_rows(
        self, slot: str, tenant: str, priority: Priority, now: datetime
    ) -> Iterator[QueueRow]:
        """Yield the runs that may be claimed now, the earliest first. Rows are read in batches."""
        last_row: tuple[Any, ...] = (-1, "", "")
        now_micros = to_micros(now)
        while True:
            rows = read_rows(
                self._transaction.db,
                f"SELECT due, job_id, run_id FROM queue WHERE {_QUEUE_PREFIX} AND due <= ? "
                "AND (due, job_id, run_id) > (?, ?, ?) AND retry_at <= ? "
                "ORDER BY due, job_id, run_id LIMIT ?",
                (
                    SLOT_NUMBERS[slot],
                    tenant,
                    priority,
                    now_micros,
                    *last_row,
                    now_micros,
                    QUEUE_PAGE_SIZE,
                ),
            )
            for row in rows:
                yield priority, *row, tenant
            if len(rows) < QUEUE_PAGE_SIZE:
                return
            last_row = rows[-1]

    def postpone(self, slot: str, messages: Sequence[Message], until: datetime) -> None:
        """Leave out the runs of these messages until `until`.

        Their claims failed, for example because the job state is damaged.
        """
        rows = [
            (
                SLOT_NUMBERS[slot],
                message.tenant,
                message.priority,
                to_micros(message.due_at),
                *message[1:3],
            )
            for message in messages
        ]
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany(
                f"UPDATE queue SET retry_at = {to_micros(until)} WHERE {_QUEUE_PREFIX} AND due = ? "
                "AND job_id = ? AND run_id = ?",
                rows,
            )

    def on_clock_set(self) -> None:
        """Offer postponed runs at once. Their times came from the clock before it was set."""
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute("UPDATE queue SET retry_at = 0 WHERE retry_at > 0")

    def next_at(self) -> datetime | None:
        """Return when the next run may start, as far as time alone decides."""
        return self._next_at

    def update_next_at(self, slots: Sequence[str], now: datetime) -> None:
        """Compute `next_at` for the slots that have room.

        In full slots the end of a run makes room.
        """
        start_times: list[datetime | None] = []
        with self._transaction:
            for slot in slots:
                for tenant in self._tenants(slot):
                    if self._admission.room(tenant, now, 1, slot):
                        start_times += [
                            self._earliest_due_at(slot, tenant, priority, now)
                            for priority in Priority
                        ]
                    else:
                        start_times.append(self._admission.free_at(tenant))
        self._next_at = min(
            (start_at for start_at in start_times if start_at is not None), default=None
        )

    def _earliest_due_at(
        self, slot: str, tenant: str, priority: Priority, now: datetime
    ) -> datetime | None:
        row = self._transaction.db.execute(
            f"SELECT due FROM queue WHERE {_QUEUE_PREFIX} AND retry_at <= ? ORDER BY due LIMIT 1",
            (SLOT_NUMBERS[slot], tenant, priority, to_micros(now)),
        ).fetchone()
        return None if row is None else from_micros(row[0])


def _message(slot: str, row: QueueRow) -> Message:
    priority, due_micros, job_id, run_id, tenant = row
    lane = Lane.QUICK if slot == INLINE_SLOT else Lane(slot)
    return Message(tenant, job_id, run_id, from_micros(due_micros), priority, lane, 0, "")
