"""Heads and their leases: compare and swap in memory, one row a head in each commit."""

from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from punctual.domain.draft import expires_at
from punctual.domain.head import Head, Priority
from punctual.domain.placement import EPOCH
from punctual.domain.run import Lease
from punctual.engine.ports import (
    Beat,
    Body,
    Clock,
    HeadPage,
    Key,
    RunKey,
    Stored,
    Swap,
    Walk,
)
from punctual.local.bodies import SqliteBodies
from punctual.local.codec import micros, moment
from punctual.local.counts import Counts
from punctual.local.head_rows import HEAD, NO_LEASES, HeadRows, is_own, merged
from punctual.local.unit import Unit

CACHED = 20_000
_KEPT = "(expires IS NULL OR expires > ?)"


class _Kept(NamedTuple):
    """A head and the number of its row, by which a write finds it without a search."""

    number: int
    stored: Stored


class SqliteHeads:
    """The one owner of the file, so what it remembers of it is always true.

    `_open` is each head as the unit sees it, `_rows` what SQLite holds of those not yet written.
    """

    def __init__(
        self,
        unit: Unit,
        bodies: SqliteBodies,
        counts: Counts,
        recorded: Container[RunKey],
        clock: Clock,
        cached: int = CACHED,
    ) -> None:
        self._unit = unit
        self._bodies = bodies
        self._counts = counts
        self._clock = clock
        self._recorded = recorded
        self._cached = cached
        self._cache: OrderedDict[Key, _Kept] = OrderedDict()
        self._open: dict[Key, _Kept] = {}
        self._rows: dict[Key, Stored | None] = {}
        self._last: int | None = None
        self._newest: dict[str, str] = {}

    def load(self, keys: Sequence[Key]) -> Mapping[Key, Stored]:
        with self._unit:
            found = {}
            for key in keys:
                kept = self._find(key)
                if kept is not None and not self._expired(kept.stored.head):
                    found[key] = kept.stored
            return found

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        with self._unit:
            return [self._swap(swap) for swap in swaps]

    def beat(self, beats: Sequence[Beat]) -> Sequence[Head | None]:
        with self._unit:
            return [self._beat(beat) for beat in beats]

    def put_bodies(self, bodies: Sequence[Body]) -> None:
        self._bodies.put(bodies)

    def bodies(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], Body]:
        return self._bodies.get(wanted)

    def page(self, tenant: str, before: str | None, limit: int) -> HeadPage:
        with self._unit:
            self.flush()
            found = self._unit.db.execute(
                f"SELECT head FROM heads WHERE tenant = ?{' AND job_id < ?' if before else ''} "
                f"AND state <> '' AND {_KEPT} ORDER BY job_id DESC LIMIT ?",
                (tenant, *((before,) if before else ()), micros(self._clock()), limit + 1),
            ).fetchall()
            heads = [HEAD.decode(row[0]) for row in found[:limit]]
            wanted = [(Key(tenant, head.job_id), head.current.body) for head in heads]
            bodies = self.bodies(wanted)
            items = [
                (head, bodies[ref])
                for head, ref in zip(heads, wanted, strict=True)
                if ref in bodies
            ]
            return HeadPage(items, heads[-1].job_id if len(found) > limit else None)

    def busy(self, tenant: str) -> Sequence[Head]:
        with self._unit:
            self.flush()
            found = self._unit.db.execute(
                "SELECT head FROM heads INDEXED BY heads_busy "
                f"WHERE busy = 1 AND tenant = ? AND {_KEPT}",
                (tenant, micros(self._clock())),
            )
            return [HEAD.decode(row) for (row,) in found.fetchall()]

    def walk(self, cursor: str | None, limit: int) -> Walk:
        """In the order of tenant and job, so what is added meanwhile repeats nothing."""
        with self._unit:
            self.flush()
            after = msgspec.json.decode(cursor, type=Key) if cursor else Key("", "")
            found = self._unit.db.execute(
                f"SELECT head FROM heads WHERE (tenant, job_id) > (?, ?) AND {_KEPT} "
                "ORDER BY tenant, job_id LIMIT ?",
                (*after, micros(self._clock()), limit),
            ).fetchall()
            heads = [HEAD.decode(row) for (row,) in found]
            if len(heads) < limit:
                return Walk(heads, None)
            last = Key(heads[-1].tenant, heads[-1].job_id)
            return Walk(heads, msgspec.json.encode(last).decode())

    def queued(self, until: datetime, limit: int) -> list[Head]:
        """Heads with a queued run that is due, by the priority and time of the earliest."""
        with self._unit:
            self.flush()
            keys: list[Key] = []
            for priority in Priority:
                rows = self._unit.db.execute(
                    "SELECT tenant, job_id FROM heads WHERE busy = 1 AND queued_priority = ? "
                    "AND queued_due <= ? ORDER BY queued_due, tenant, job_id LIMIT ?",
                    (int(priority), micros(until), limit - len(keys)),
                )
                keys.extend(Key(*row) for row in rows.fetchall())
            found = self.load(keys)
            return [found[key].head for key in keys if key in found]

    def end_all_leases(self) -> list[Key]:
        """For a start: whoever held them is gone, as the folder's lock shows."""
        with self._unit:
            self.flush()
            found = self._unit.db.execute(
                "SELECT DISTINCT tenant, job_id FROM leases JOIN heads ON id = head"
            )
            keys = [Key(*row) for row in found.fetchall()]
            if keys:
                self._unit.begin()
                self._unit.db.execute("UPDATE leases SET until = ?", (micros(EPOCH),))
            for key in keys:
                self._open.pop(key, None)
                self._cache.pop(key, None)
            return keys

    def oldest_queued(self, tenant: str) -> datetime | None:
        with self._unit:
            self.flush()
            (at,) = self._unit.db.execute(
                "SELECT min(queued_due) FROM heads INDEXED BY heads_busy "
                "WHERE busy = 1 AND tenant = ?",
                (tenant,),
            ).fetchone()
            return None if at is None else moment(at)

    def count_queued(self, tenant: str) -> int:
        with self._unit:
            self.flush()
            (n,) = self._unit.db.execute(
                "SELECT coalesce(sum(queued), 0) FROM heads INDEXED BY heads_busy "
                "WHERE busy = 1 AND tenant = ?",
                (tenant,),
            ).fetchone()
            return int(n)

    def forget(self, key: Key) -> None:
        """Its rows were removed in this unit."""
        self._open.pop(key, None)
        self._cache.pop(key, None)

    def _expired(self, head: Head) -> bool:
        at = expires_at(head)
        return at is not None and at <= self._clock()

    def _find(self, key: Key) -> _Kept | None:
        """As the unit sees it, expired or not."""
        kept = self._open.get(key)
        if kept is not None:
            return kept
        kept = self._cache.get(key)
        if kept is not None:
            self._cache.move_to_end(key)
            return kept
        if key.job_id > self._newest_of(key.tenant):
            return None
        kept = self._read(key)
        if kept is not None:
            self._cache[key] = kept
            self._trim()
        return kept

    def _newest_of(self, tenant: str) -> str:
        """Ids of new jobs rise, so that nearly all are known to be new without a search."""
        newest = self._newest.get(tenant)
        if newest is None:
            (newest,) = self._unit.db.execute(
                "SELECT coalesce(max(job_id), '') FROM heads WHERE tenant = ?", (tenant,)
            ).fetchone()
            self._newest[tenant] = newest
        return newest

    def _read(self, key: Key) -> _Kept | None:
        db = self._unit.db
        row = db.execute(
            "SELECT id, leased, head FROM heads WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return None
        number, leased, head = row
        leases = NO_LEASES
        if leased:
            found = db.execute(
                "SELECT run_id, token, until, beaten FROM leases WHERE head = ?", (number,)
            ).fetchall()
            leases = {
                run_id: Lease(token=token, until=moment(until), beaten=bool(beaten))
                for run_id, token, until, beaten in found
            }
        return _Kept(number, Stored(HEAD.decode(head), leases))

    def _swap(self, swap: Swap) -> bool:
        key = swap.key
        kept = self._find(key)
        standing = None if kept is None or self._expired(kept.stored.head) else kept.stored
        if (0 if standing is None else standing.head.version) != swap.expect:
            return standing is not None and is_own(swap.head, standing.head)
        leases = NO_LEASES if standing is None else standing.leases
        for run_id, lease in swap.required.items():
            if leases.get(run_id) != lease:
                return False
        if swap.leases:
            leases = merged(leases, swap.leases)
        self._change(key, kept, Stored(swap.head, leases))
        return True

    def _beat(self, beat: Beat) -> Head | None:
        kept = self._find(beat.key)
        if kept is None or self._expired(kept.stored.head):
            return None
        head, leases = kept.stored
        lease = leases.get(beat.run_id)
        if lease is None or lease.token != beat.token:
            return None
        renewed = Lease(token=beat.token, until=beat.until, beaten=True)
        self._change(beat.key, kept, Stored(head, {**leases, beat.run_id: renewed}))
        return head

    def _change(self, key: Key, old: _Kept | None, new: Stored) -> None:
        if key not in self._rows:
            self._rows[key] = None if old is None else old.stored
        self._open[key] = _Kept(self._next_number(key) if old is None else old.number, new)

    def _next_number(self, key: Key) -> int:
        """Drawn here rather than by SQLite, so that many rows are inserted by one call."""
        if self._last is None:
            (last,) = self._unit.db.execute("SELECT coalesce(max(id), 0) FROM heads").fetchone()
            self._last = int(last)
        self._last += 1
        self._newest[key.tenant] = max(self._newest_of(key.tenant), key.job_id)
        return self._last

    def _trim(self) -> None:
        while len(self._cache) > self._cached:
            self._cache.popitem(last=False)

    def flush(self) -> None:
        db = self._unit.db
        if not self._rows:
            return
        self._unit.begin()
        writes = HeadRows(self._counts.changes, self._recorded)
        for key, old in self._rows.items():
            kept = self._open[key]
            writes.add(kept.number, old, kept.stored)
        for statement, rows in writes.statements():
            db.executemany(statement, rows)
        self._rows.clear()

    def keep(self) -> None:
        for key, kept in self._open.items():
            self._cache[key] = kept
            self._cache.move_to_end(key)
        self._trim()
        self._open.clear()

    def drop(self) -> None:
        for key in self._open:
            self._cache.pop(key, None)
        self._open.clear()
        self._rows.clear()
        self._last = None
        self._newest.clear()
