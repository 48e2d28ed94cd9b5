"""Job states and their leases.

Compare and swap runs in memory, and each commit writes one row for each changed state.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from punctual.domain.draft import expires_at
from punctual.domain.errors import Unreadable
from punctual.domain.identifiers import EPOCH
from punctual.domain.job_state import JobState, Priority
from punctual.domain.run import Lease
from punctual.domain.write_ids import is_own
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import Coming, DefinitionRow, HeadPage, Key, RunKey, Walk
from punctual.node.run_queue.slots import SLOTS
from punctual.node.sqlite.audit import SqliteAudit
from punctual.node.sqlite.bulk_insert import insert
from punctual.node.sqlite.codec import micros, moment
from punctual.node.sqlite.counts import Counts
from punctual.node.sqlite.definitions import SqliteDefinitions
from punctual.node.sqlite.rows import read_rows
from punctual.node.sqlite.state_cache import StateCache
from punctual.node.sqlite.state_rows import (
    INSERT,
    NO_LEASES,
    QUEUE,
    JobStateRows,
    merged,
    read_heads,
)
from punctual.node.sqlite.transaction import Transaction

CACHED = 20_000
_TOGETHER = 200  # busy job states in one read
_KEPT = "(expires IS NULL OR expires > ?)"
_HEADS = "SELECT tenant, job_id, head FROM heads"
_COMING = (
    "SELECT coming, job_id, head FROM heads INDEXED BY heads_coming WHERE tenant = ? AND coming < ?"
)


class SqliteJobStates:
    def __init__(
        self,
        unit: Transaction,
        bodies: SqliteDefinitions,
        counts: Counts,
        recorded: Container[RunKey],
        clock: Clock,
        audit: SqliteAudit,
        cached: int = CACHED,
    ) -> None:
        self._unit = unit
        self._damage = unit.damage
        self._audit = audit
        self._bodies = bodies
        self._counts = counts
        self._clock = clock
        self._recorded = recorded
        self._memory = StateCache(unit, cached)

    def load(self, keys: Sequence[Key]) -> Mapping[Key, StoredState]:
        found, unread = {}, []
        with self._unit:
            for key in keys:
                try:
                    kept = self._memory.find(key)
                except Unreadable:
                    unread.append(key)
                    continue
                if kept is not None and not self._expired(kept[1].head):
                    found[key] = kept[1]
        self._damage.refuse(unread)
        return found

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        with self._unit:
            return [self._swap(swap) for swap in swaps]

    def beat(self, beats: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        with self._unit:
            return [self._beat(beat) for beat in beats]

    def put_bodies(self, bodies: Sequence[DefinitionRow]) -> None:
        self._bodies.put(bodies)

    def bodies(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], DefinitionRow]:
        return self._bodies.get(wanted)

    def page(self, tenant: str, before: str | None, limit: int) -> HeadPage:
        with self._unit:
            self.flush()
            found = self._unit.db.execute(
                f"{_HEADS} WHERE tenant = ?{' AND job_id < ?' if before else ''} "
                f"AND state <> '' AND {_KEPT} ORDER BY job_id DESC LIMIT ?",
                (tenant, *((before,) if before else ()), micros(self._clock()), limit + 1),
            ).fetchall()
            heads, unread = read_heads(self._damage, found[:limit])
            wanted = [(Key(tenant, head.job_id), head.current.body) for head in heads]
            bodies = self.bodies(wanted)
        self._damage.refuse(unread)
        return HeadPage.of(heads, wanted, bodies, len(found) > limit)

    def coming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, most: int
    ) -> Coming | None:
        """Return the job states that come next.

        Each read follows the index and ends with the rows it returns.
        """
        with self._unit:
            self.flush()
            place, until = (micros(after[0]), after[1]), micros(end)
            before = self._unit.db.execute(
                f"{_COMING} AND again = 1 AND (coming, job_id) <= (?, ?) LIMIT ?",
                (tenant, until, *place, most + 1),
            ).fetchall()
            if len(before) > most:
                return None
            found = [
                row
                for again in (0, 1)
                for row in self._unit.db.execute(
                    f"{_COMING} AND again = ? AND (coming, job_id) > (?, ?) "
                    "ORDER BY coming, job_id LIMIT ?",
                    (tenant, until, again, *place, limit),
                ).fetchall()
            ]
            following = sorted(found)[:limit]
            last = following[-1] if len(following) == limit else None
            rows = [(tenant, job_id, head) for _, job_id, head in (*before, *following)]
            heads, unread = read_heads(self._damage, rows)
        self._damage.refuse(unread)
        return Coming(heads, None if last is None else (moment(last[0]), last[1]))

    def busy(self, tenant: str) -> Iterator[JobState]:
        """Yield the busy job states, each as it is when it is read.

        The order is that of row numbers, which never change. So a job that stays busy is yielded
        once.
        """
        last, now = 0, micros(self._clock())
        while True:
            with self._unit:
                self.flush()
                rows = self._unit.db.execute(
                    "SELECT tenant, job_id, head, id FROM heads INDEXED BY heads_of_busy "
                    f"WHERE busy = 1 AND tenant = ? AND id > ? AND {_KEPT} ORDER BY id LIMIT ?",
                    (tenant, last, now, _TOGETHER),
                ).fetchall()
                heads, unread = read_heads(self._damage, [row[:3] for row in rows])
            self._damage.refuse(unread)
            yield from heads
            if len(rows) < _TOGETHER:
                return
            last = rows[-1][3]

    def walk(self, cursor: str | None, limit: int) -> Walk:
        """Return a page of all job states.

        The order is by tenant and job, so new jobs do not repeat others.
        """
        with self._unit:
            self.flush()
            after = msgspec.json.decode(cursor, type=Key) if cursor else Key("", "")
            found = self._unit.db.execute(
                f"{_HEADS} WHERE (tenant, job_id) > (?, ?) AND {_KEPT} "
                "ORDER BY tenant, job_id LIMIT ?",
                (*after, micros(self._clock()), limit),
            ).fetchall()
            heads, unread = read_heads(self._damage, found)
            told = [(key, "Unreadable") for key in unread]
            if len(found) < limit:
                return Walk(heads, None, told)
            last = Key(*found[-1][:2])
            return Walk(heads, msgspec.json.encode(last).decode(), told)

    def end_all_leases(self) -> list[Key]:
        """End all leases and return their jobs.

        A start calls this: the lock on the folder proves that their holders are gone.
        """
        with self._unit:
            self.flush()
            found = read_rows(
                self._unit.db,
                "SELECT DISTINCT tenant, job_id FROM leases JOIN heads ON heads.id = leases.head",
            )
            keys = [Key(*row) for row in found]
            if keys:
                self._unit.begin()
                self._unit.db.execute("UPDATE leases SET until = ?", (micros(EPOCH),))
            for key in keys:
                self._memory.forget(key)
            return keys

    def oldest_queued(self, tenant: str) -> datetime | None:
        """Return when the tenant's earliest queued run was due."""
        with self._unit:
            self.flush()
            found = [
                self._unit.db.execute(
                    "SELECT min(due) FROM queue WHERE slot = ? AND tenant = ? AND priority = ?",
                    (slot, tenant, priority),
                ).fetchone()
                for slot in SLOTS.values()
                for priority in Priority
            ]
            return min((moment(due) for (due,) in found if due is not None), default=None)

    def forget(self, key: Key) -> None:
        """Drop the cached job state, because its rows were removed in this transaction."""
        self._memory.forget(key)
        self._bodies.forget()

    def _expired(self, head: JobState) -> bool:
        if head.ended_at is None:
            return False
        at = expires_at(head)
        return at is not None and at <= self._clock()

    def _swap(self, swap: Swap) -> bool:
        head, expect, changes = swap.head, swap.expect, swap.leases
        key = (head.tenant, head.job_id)
        try:
            kept = self._memory.find(key)
        except Unreadable:
            return False  # The swap is lost. The next load raises the reason.
        version, leases = 0, NO_LEASES
        if kept is not None and not self._expired(kept[1].head):
            standing, leases = kept[1]
            version = standing.version
            if version != expect:
                return is_own(head, standing.version, standing.writers)
        if version != expect:
            return False
        for run_id, lease in swap.required.items():
            if leases.get(run_id) != lease:
                return False
        if changes:
            leases = merged(leases, changes)
        self._memory.change(key, kept, StoredState(head, leases))
        if swap.note is not None:
            self._audit.changed(swap.note, head)
        return True

    def _beat(self, beat: LeaseRenewal) -> JobState | None:
        try:
            kept = self._memory.find(beat.key)
        except Unreadable:
            return None
        if kept is None or self._expired(kept[1].head):
            return None
        head, leases = kept[1]
        lease = leases.get(beat.run_id)
        if lease is None or lease.token != beat.token:
            return None
        renewed = Lease(token=beat.token, until=beat.until, beaten=True)
        self._memory.change(beat.key, kept, StoredState(head, {**leases, beat.run_id: renewed}))
        return head

    def flush(self) -> None:
        pending = self._memory.take_pending()
        if not pending:
            return
        self._unit.begin()
        writes = JobStateRows(self._counts.changes, self._recorded)
        for old, (number, new) in pending:
            writes.add(number, old, new)
        for statement, rows in writes.statements():
            if statement in (INSERT, QUEUE):
                insert(self._unit.db, statement, rows)
            else:
                self._unit.db.executemany(statement, rows)

    def keep(self) -> None:
        self._memory.keep()

    def drop(self) -> None:
        self._memory.drop()
