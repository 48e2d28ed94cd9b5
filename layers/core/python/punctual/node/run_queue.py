"""The node's run queue: the QUEUED runs, by priority, then by due time.

Scripts start strictly in this order. If the first one does not fit into the free memory, later
ones wait too. Otherwise small scripts could keep a large one waiting for ever.

The table `queue` is an index of the job states. The commit that changes a job state changes its
rows. So the queue needs no repair after a crash, and holds no run that was cancelled, paused or
claimed.
"""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from punctual.domain.job_state import JobState, Lane, Priority
from punctual.domain.run import Run
from punctual.engine.ports.run_queue import Message
from punctual.node.limits import Admission
from punctual.node.script_memory import ScriptMemory
from punctual.node.sqlite.job_states import SqliteJobStates
from punctual.node.sqlite.rows import from_micros, read_rows, to_micros
from punctual.node.sqlite.state_rows import INLINE_SLOT, SCRIPT_NUMBER, SLOT_NUMBERS
from punctual.node.sqlite.transaction import Transaction

QUEUE_PAGE_SIZE = 100
_QUEUE_PREFIX = "slot = ? AND tenant = ? AND priority = ?"

_KEY_COLUMNS = f"{_QUEUE_PREFIX} AND due = ? AND job_id = ? AND run_id = ?"


class QueueRow(NamedTuple):
    """A queued run. Rows compare in the order in which runs start."""

    priority: Priority
    due_micros: int
    job_id: str
    run_id: str
    memory_mb: int
    tenant: str


class RunQueue:
    """The RunQueue port of the node.

    A tenant at its limit costs one probe of the index, however many of its runs wait.
    """

    def __init__(
        self,
        transaction: Transaction,
        job_states: SqliteJobStates,
        admission: Admission,
        script_memory: ScriptMemory,
    ) -> None:
        self._transaction = transaction
        self._job_states = job_states
        self._admission = admission
        self._script_memory = script_memory
        self._next_at: datetime | None = None
        self._first_waiting: QueueRow | None = None  # the first script that does not fit
        self._watches_first_waiting = False

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Remember when the earliest run is due. The job states write the rows."""
        due_times = [message.due_at for message in messages]
        if self._next_at is not None:
            due_times.append(self._next_at)
        self._next_at = min(due_times, default=None)
        return [True] * len(messages)

    def find_due(self, slot: str, now: datetime, limit: int) -> list[Message]:
        """Return at most `limit` due runs.

        Runs of tenants at their limit and scripts that wait for memory are left out.
        """
        if slot == Lane.LONG:
            self._first_waiting = None
        free_mb = self._script_memory.free_mb
        with self._transaction:
            self._job_states.flush()
            room_by_tenant = {
                tenant: self._admission.room(tenant, now, limit, slot)
                for tenant in self._tenants(slot)
            }
            rows_by_priority = [
                islice(self._due_rows(slot_number, tenant, priority, now), room)
                for tenant, room in room_by_tenant.items()
                for priority in Priority
                for slot_number in SLOT_NUMBERS[slot]
                if room
            ]
            messages: list[Message] = []
            for row in heapq.merge(*rows_by_priority):
                if len(messages) == limit:
                    break
                if not room_by_tenant[row.tenant]:
                    continue
                memory_mb = self._script_memory.needed_mb(row.memory_mb)
                if row.memory_mb and (self._first_waiting is not None or memory_mb > free_mb):
                    self._first_waiting = self._first_waiting or row
                    continue
                free_mb -= memory_mb
                room_by_tenant[row.tenant] -= 1
                messages.append(_message(slot, row))
            return messages

    def waits_for_memory(self, state: JobState, run: Run, now: datetime) -> bool:
        """Return whether this QUEUED run waits for memory, or behind a run that does."""
        first, rules = self._first_waiting, state.rules[run.definition]
        if first is None or rules.task_type != "script" or run.due_at > now:
            return False
        place = (rules.priority, to_micros(run.due_at), state.job_id, run.run_id)
        return place >= first[: len(place)]

    def limit(self) -> Mapping[str, Any]:
        """Return the memory of the node's scripts, as `GET /stats` shows it."""
        return self._script_memory.limit()

    def count_waiting_for_memory(self, tenant: str, now: datetime) -> int:
        """Return how many runs of a tenant `waits_for_memory` names."""
        first = self._first_waiting
        if first is None:
            return 0
        with self._transaction:
            self._job_states.flush()
            (count,) = self._transaction.db.execute(
                "SELECT count(*) FROM queue WHERE slot = ? AND tenant = ? AND due <= ? "
                "AND (priority, due, job_id, run_id) >= (?, ?, ?, ?)",
                (SCRIPT_NUMBER, tenant, to_micros(now), *first[:4]),
            ).fetchone()
            return int(count)

    def _tenants(self, slot: str) -> list[str]:
        """Return the tenants with queued runs in a slot."""
        return sorted(
            {
                tenant
                for slot_number in SLOT_NUMBERS[slot]
                for tenant in self._tenants_of(slot_number)
            }
        )

    def _tenants_of(self, slot_number: int) -> Iterator[str]:
        """Yield the tenants with queued runs, with one probe of the index for each."""
        tenant: str | None = ""
        while True:
            ((tenant,),) = read_rows(
                self._transaction.db,
                "SELECT min(tenant) FROM queue WHERE slot = ? AND tenant > ?",
                (slot_number, tenant),
            )
            if not isinstance(tenant, str):
                return
            yield tenant

    def _due_rows(
        self, slot_number: int, tenant: str, priority: Priority, now: datetime
    ) -> Iterator[QueueRow]:
        """Yield the runs that may be claimed now, the earliest first. Rows are read in batches."""
        last_row: tuple[Any, ...] = (-1, "", "")
        now_micros = to_micros(now)
        while True:
            rows = read_rows(
                self._transaction.db,
                f"SELECT due, job_id, run_id, memory_mb FROM queue WHERE {_QUEUE_PREFIX} "
                "AND due <= ? "
                "AND (due, job_id, run_id) > (?, ?, ?) AND retry_at <= ? "
                "ORDER BY due, job_id, run_id LIMIT ?",
                (
                    slot_number,
                    tenant,
                    priority,
                    now_micros,
                    *last_row,
                    now_micros,
                    QUEUE_PAGE_SIZE,
                ),
            )
            for due_micros, job_id, run_id, memory_mb in rows:
                yield QueueRow(priority, due_micros, job_id, run_id, memory_mb, tenant)
            if len(rows) < QUEUE_PAGE_SIZE:
                return
            last_row = rows[-1][:3]

    def postpone(self, slot: str, messages: Sequence[Message], until: datetime) -> None:
        """Leave out the runs of these messages until `until`.

        Their claims failed, for example because the job state is damaged.
        """
        rows = [
            (
                slot_number,
                message.tenant,
                message.priority,
                to_micros(message.due_at),
                *message[1:3],
            )
            for message in messages
            for slot_number in SLOT_NUMBERS[slot]
        ]
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany(
                f"UPDATE queue SET retry_at = {to_micros(until)} WHERE {_KEY_COLUMNS}",
                rows,
            )

    def on_clock_set(self) -> None:
        """Offer postponed runs at once. Their times came from the clock before it was set."""
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.execute("UPDATE queue SET retry_at = 0 WHERE retry_at > 0")

    def next_at(self) -> datetime | None:
        """Return when the next run may start, as far as time alone decides."""
        first = self._first_waiting
        if first is not None and self._watches_first_waiting and not self._is_queued(first):
            # It was cancelled or paused, so the next one may fit.
            return from_micros(first.due_micros)
        return self._next_at

    def _is_queued(self, row: QueueRow) -> bool:
        key = (SCRIPT_NUMBER, row.tenant, *row[:4])
        with self._transaction:
            self._job_states.flush()
            matching = self._transaction.db.execute(
                f"SELECT 1 FROM queue WHERE {_KEY_COLUMNS}", key
            ).fetchone()
        return matching is not None

    def update_next_at(self, slots: Sequence[str], now: datetime) -> None:
        """Compute `next_at` for the slots that have room.

        A full slot has no such time: the end of a run makes room in it. The same holds for scripts
        that wait for memory.
        """
        start_times: list[datetime | None] = []
        self._watches_first_waiting = Lane.LONG in slots
        with self._transaction:
            for slot in slots:
                for tenant in self._tenants(slot):
                    if self._admission.room(tenant, now, 1, slot):
                        start_times += [
                            self._earliest_due_at(slot_number, tenant, priority, now)
                            for priority in Priority
                            for slot_number in SLOT_NUMBERS[slot]
                        ]
                    else:
                        start_times.append(self._admission.free_at(tenant))
        self._next_at = min(
            (start_at for start_at in start_times if start_at is not None), default=None
        )

    def _earliest_due_at(
        self, slot_number: int, tenant: str, priority: Priority, now: datetime
    ) -> datetime | None:
        row = self._transaction.db.execute(
            f"SELECT due, job_id, run_id FROM queue WHERE {_QUEUE_PREFIX} AND retry_at <= ? "
            "ORDER BY due, job_id, run_id LIMIT 1",
            (slot_number, tenant, priority, to_micros(now)),
        ).fetchone()
        if row is None or (slot_number == SCRIPT_NUMBER and self._must_wait((priority, *row))):
            return None
        return from_micros(row[0])

    def _must_wait(self, place: tuple[Any, ...]) -> bool:
        """Return whether a script at this place of the queue must wait for the end of another."""
        first = self._first_waiting
        if first is None or first.memory_mb <= self._script_memory.free_mb:
            return False
        return place >= first[: len(place)]


def _message(slot: str, row: QueueRow) -> Message:
    due_at, lane = from_micros(row.due_micros), Lane.QUICK if slot == INLINE_SLOT else Lane(slot)
    return Message(row.tenant, row.job_id, row.run_id, due_at, row.priority, lane, 0, "")
