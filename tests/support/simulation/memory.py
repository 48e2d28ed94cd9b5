"""Every port over dicts, shared by the processes of a simulated world."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from zlib import crc32

from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, Run
from punctual.domain.schedules.upcoming import sort_by_occurrence
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap
from punctual.engine.ports.rows import (
    AttemptRow,
    DefinitionRow,
    Detail,
    JobKey,
    JobStatePage,
    RunKey,
    RunRow,
    UpcomingStates,
    WalkPage,
)
from punctual.engine.ports.timers import Timer, TimerPage
from tests.support.memory_audit import MemoryAudit
from tests.support.ports import Ports
from tests.support.simulation.control import (
    MemoryBlobs,
    MemoryBuckets,
    MemoryFeed,
    MemoryNotices,
    MemoryReceipts,
    MemoryWake,
)
from tests.support.simulation.fifo import FifoQueue


class Watch:
    """Observes writes right before they take effect."""

    def swapped(self, old: StoredState | None, new: StoredState) -> None:
        """Observe a job state with its leases, before the write (if any) and after it."""

    def row_put(self, old: RunRow | None, new: RunRow) -> None:
        """Observe a history row."""


class MemoryHeads:
    def __init__(self, clock: Clock, watch: Watch) -> None:
        self.rows: dict[JobKey, StoredState] = {}
        self._bodies: dict[tuple[JobKey, str], DefinitionRow] = {}
        self._clock = clock
        self._watch = watch
        self.audit = MemoryAudit()

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, StoredState]:
        found = {key: self._standing(key) for key in keys}
        return {key: stored for key, stored in found.items() if stored is not None}

    def _standing(self, key: JobKey) -> StoredState | None:
        stored = self.rows.get(key)
        if stored is None:
            return None
        at = job_expires_at(stored.state)
        return None if at is not None and at <= self._clock() else stored

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        return [self._swap(swap) for swap in swaps]

    def _swap(self, swap: Swap) -> bool:
        standing = self._standing(swap.key)
        if (standing.state.version if standing else 0) != swap.expected_version:
            return standing is not None and _bears_the_mark(standing.state, swap.state)
        leases = dict(standing.leases) if standing else {}
        if any(leases.get(run_id) != lease for run_id, lease in swap.required_leases.items()):
            return False
        for run_id, lease in swap.leases.items():
            if lease is None:
                leases.pop(run_id, None)
            else:
                leases[run_id] = lease
        new = StoredState(swap.state, leases)
        self._watch.swapped(standing, new)
        self.rows[swap.key] = new
        if swap.note is not None:
            self.audit.changed(swap.note, swap.state)
        return True

    def renew_leases(self, renewals: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        return [self._beat(beat) for beat in renewals]

    def _beat(self, beat: LeaseRenewal) -> JobState | None:
        stored = self._standing(beat.key)
        lease = stored.leases.get(beat.run_id) if stored else None
        if stored is None or lease is None or lease.token != beat.token:
            return None
        renewed = Lease(token=beat.token, until=beat.expires_at, is_renewed=True)
        self.rows[beat.key] = StoredState(stored.state, {**stored.leases, beat.run_id: renewed})
        return stored.state

    def put_definitions(self, definitions: Sequence[DefinitionRow]) -> None:
        for body in definitions:
            self._bodies.setdefault((JobKey(body.tenant, body.job_id), body.ref), body)

    def load_definitions(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return {place: self._bodies[place] for place in refs if place in self._bodies}

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        heads = [stored.state for stored in self._alive() if stored.state.tenant == tenant]
        heads = [h for h in heads if not h.is_blank and (before is None or h.job_id < before)]
        heads.sort(key=lambda head: head.job_id, reverse=True)
        shown = heads[:limit]
        wanted = [
            (JobKey(tenant, head.job_id), head.current_rules.definition_ref) for head in shown
        ]
        return JobStatePage.from_rows(
            shown, wanted, self.load_definitions(wanted), len(heads) > limit
        )

    def upcoming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, max_states: int
    ) -> UpcomingStates | None:
        mine = [stored.state for stored in self._alive() if stored.state.tenant == tenant]
        before, _ = sort_by_occurrence(mine, after, end, 0)
        return (
            None
            if len(before) > max_states
            else UpcomingStates(*sort_by_occurrence(mine, after, end, limit))
        )

    def active_states(self, tenant: str) -> Sequence[JobState]:
        heads = [stored.state for stored in self._alive() if stored.state.tenant == tenant]
        return [head for head in heads if head.runs or head.wait_queue or head.unrecorded]

    def walk(self, cursor: str | None, limit: int) -> WalkPage:
        heads = [self.rows[key].state for key in sorted(self.rows) if self._standing(key)]
        start = int(cursor or 0)
        more = len(heads) > start + limit
        return WalkPage(heads[start : start + limit], str(start + limit) if more else None)

    def _alive(self) -> list[StoredState]:
        return [stored for key in self.rows if (stored := self._standing(key)) is not None]


def _bears_the_mark(standing: JobState, mine: JobState) -> bool:
    newer = standing.version - mine.version
    mark = mine.write_ids[-1] if mine.write_ids else ""
    return bool(mark) and newer >= 0 and mark in standing.write_ids[-newer - 1 :]


def _mixed(timer: Timer) -> tuple[str, int, str]:
    """Return a sort key with a fixed order among timers of one time, also as text."""
    text = f"{timer.tenant} {timer.job_id} {timer.version}"
    return (timer.at.isoformat(timespec="microseconds"), 10**10 + crc32(text.encode()), text)


class MemoryTimers:
    def __init__(self) -> None:
        self.rows: dict[tuple[datetime, int], set[Timer]] = {}

    def put(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            self.rows.setdefault((timer.bucket, timer.shard), set()).add(timer)

    def delete(self, timers: Sequence[Timer]) -> None:
        for timer in timers:
            self.rows.get((timer.bucket, timer.shard), set()).discard(timer)

    def due(
        self, bucket: datetime, shard: int, until: datetime, cursor: str | None, limit: int
    ) -> TimerPage:
        """Return a page. Its order within a time is arbitrary, and a page repeats the last row."""
        rows = [t for t in self.rows.get((bucket, shard), ()) if t.at <= until]
        rows = sorted(rows, key=_mixed)
        if cursor is None:
            found = rows[:limit]
        else:
            found = [t for t in rows if str(_mixed(t)) >= cursor][: limit + 1]
        more = bool(found) and found[-1] != rows[-1]
        return TimerPage(found, str(_mixed(found[-1])) if more else None)

    def find_existing(self, timers: Sequence[Timer]) -> frozenset[Timer]:
        return frozenset(
            one
            for one in timers
            for timer in self.rows.get((one.bucket, one.shard), ())
            if (timer.at, timer.key) == (one.at, one.key)
        )

    def all(self) -> list[Timer]:
        return [timer for rows in self.rows.values() for timer in rows]


class MemoryHistory:
    def __init__(self, watch: Watch) -> None:
        self.rows: dict[RunKey, RunRow] = {}
        self.attempt_rows: dict[tuple[RunKey, int, int, bool], AttemptRow] = {}
        self._watch = watch

    def put_runs(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            key = RunKey(row.tenant, row.job_id, row.run.run_id)
            self._watch.row_put(self.rows.get(key), row)
            self.rows[key] = row

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        for row in rows:
            key = RunKey(row.tenant, row.job_id, row.run_id)
            self.attempt_rows[key, row.number, row.token, row.lost] = row

    def put_results(self, rows: Sequence[AttemptRow]) -> None:
        self.put_attempts(rows)

    def find_result(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        mine = [row for row in self.attempts(key, now) if row.token == run.token and not row.lost]
        return mine[-1].detail if mine else None

    def recorded_keys(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        return frozenset(key for key in keys if key in self.rows)

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        found = {key: self.rows[key] for key in keys if key in self.rows}
        return {key: row for key, row in found.items() if row.expires_at > now}

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        mine = [row for place, row in self.attempt_rows.items() if place[0] == key]
        mine = [row for row in mine if row.expires_at is None or row.expires_at > now]
        return sorted(mine, key=lambda row: (row.number, row.token, row.lost))

    def page(
        self, key: JobKey, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        rows = [row for row in self.rows.values() if (row.tenant, row.job_id) == key]
        rows = [row for row in rows if row.expires_at > now]
        rows = [row for row in rows if before is None or row.run.run_id < before]
        rows = [row for row in rows if after is None or row.run.run_id > after]
        return sorted(rows, key=lambda row: row.run.run_id, reverse=True)[:limit]

    def page_all(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        rows = [row for row in self.rows.values() if row.tenant == tenant and row.expires_at > now]
        rows = [row for row in rows if before is None or (row.run.run_id, row.job_id) < before]
        return sorted(rows, key=lambda row: (row.run.run_id, row.job_id), reverse=True)[:limit]


class Memory:
    """The stores of one installation."""

    def __init__(self, clock: Clock, watch: Watch | None = None) -> None:
        watch = watch or Watch()
        self.heads = MemoryHeads(clock, watch)
        self.timers = MemoryTimers()
        self.queue = FifoQueue(clock)
        self.notices = MemoryNotices()
        self.history = MemoryHistory(watch)
        self.blobs = MemoryBlobs()
        self.buckets = MemoryBuckets(clock)
        self.wake = MemoryWake()
        self.receipts = MemoryReceipts()
        self.feed = MemoryFeed()
        self.ports = Ports(
            job_states=self.heads,
            timers=self.timers,
            run_queue=self.queue,
            notifications=self.notices,
            history=self.history,
            blobs=self.blobs,
            partitions=self.buckets,
            wakeups=self.wake,
            receipts=self.receipts,
            feed=self.feed,
            audit_log=self.heads.audit,
        )
