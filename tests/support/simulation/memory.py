"""Every port over dicts, shared by the processes of a simulated world."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from json import dumps, loads
from operator import itemgetter
from zlib import crc32

from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState
from punctual.domain.run import Run
from punctual.domain.schedules.upcoming import OccurrencePosition, may_repeat, upcoming_at
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.history import HistoryPage, RecentRun, recent_run_of
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap, WalkPage
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import (
    AttemptRow,
    DefinitionRow,
    Detail,
    JobKey,
    JobStatePage,
    RunKey,
    RunRow,
    UpcomingStates,
)
from punctual.engine.ports.timers import Timer, TimerPage
from punctual.engine.queries.runs.merged_runs import MergedRuns
from tests.support.memory_audit import MemoryAudit
from tests.support.memory_lists import MemoryJobIndex
from tests.support.memory_operations import MemoryOperations
from tests.support.ports import Ports
from tests.support.simulation.fifo import FifoQueue
from tests.support.simulation.small_ports import (
    MemoryArtifacts,
    MemoryBlobs,
    MemoryFeed,
    MemoryJobNames,
    MemoryNotifications,
    MemoryPartitions,
    MemoryReceipts,
    MemoryWakeUps,
)


class WriteObserver:
    """Observes writes right before they take effect."""

    def before_swap(self, old: StoredState | None, new: StoredState) -> None:
        """Observe a job state with its leases, before the write (if any) and after it."""

    def before_row(self, old: RunRow | None, new: RunRow) -> None:
        """Observe a history row."""


class MemoryJobStates:
    def __init__(self, clock: Clock, watch: WriteObserver, names: MemoryJobNames) -> None:
        self.rows: dict[JobKey, StoredState] = {}
        self._names = names
        self._definitions: dict[tuple[JobKey, str], DefinitionRow] = {}
        self._clock = clock
        self._watch = watch
        self.audit = MemoryAudit()

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, StoredState]:
        states = {key: self._valid(key) for key in keys}
        return {key: stored for key, stored in states.items() if stored is not None}

    def _valid(self, key: JobKey) -> StoredState | None:
        stored = self.rows.get(key)
        if stored is None:
            return None
        at = job_expires_at(stored.state)
        return None if at is not None and at <= self._clock() else stored

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        return [self._swap(swap) for swap in swaps]

    def _swap(self, swap: Swap) -> bool:
        stored = self._valid(swap.key)
        if (stored.state.version if stored else 0) != swap.expected_version:
            return stored is not None and _has_write_id(stored.state, swap.state)
        leases = dict(stored.leases) if stored else {}
        if any(leases.get(run_id) != lease for run_id, lease in swap.required_leases.items()):
            return False
        for run_id, lease in swap.leases.items():
            if lease is None:
                leases.pop(run_id, None)
            else:
                leases[run_id] = lease
        new = StoredState(swap.state, leases)
        self._watch.before_swap(stored, new)
        self.rows[swap.key] = new
        if swap.note is not None:
            self.audit.changed(swap.note, swap.state)
        return True

    def renew_leases(self, renewals: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        return [self._renew(renewal) for renewal in renewals]

    def _renew(self, renewal: LeaseRenewal) -> JobState | None:
        stored = self._valid(renewal.key)
        lease = stored.leases.get(renewal.run_id) if stored else None
        if stored is None or lease is None or lease.token != renewal.token:
            return None
        renewed = lease.renewed(renewal.expires_at, renewal.progress)
        self.rows[renewal.key] = StoredState(
            stored.state, {**stored.leases, renewal.run_id: renewed}
        )
        return stored.state

    def put_definitions(self, definitions: Sequence[DefinitionRow]) -> None:
        for definition in definitions:
            self._definitions.setdefault(
                (JobKey(definition.tenant, definition.job_id), definition.ref), definition
            )

    def load_definitions(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return {ref: self._definitions[ref] for ref in refs if ref in self._definitions}

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        states = [stored.state for stored in self.alive() if stored.state.tenant == tenant]
        states = [
            state
            for state in states
            if not state.is_blank and (before is None or state.job_id < before)
        ]
        states.sort(key=lambda state: state.job_id, reverse=True)
        listed = states[:limit]
        refs = [
            (JobKey(tenant, state.job_id), state.current_rules.definition_ref) for state in listed
        ]
        return JobStatePage.from_rows(
            listed, refs, self.load_definitions(refs), len(states) > limit
        )

    def upcoming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, max_states: int
    ) -> UpcomingStates | None:
        states = [stored.state for stored in self.alive() if stored.state.tenant == tenant]
        before, _ = _sort_by_occurrence(states, after, end, 0)
        return (
            None
            if len(before) > max_states
            else UpcomingStates(*_sort_by_occurrence(states, after, end, limit))
        )

    def scheduled_states(self, tenant: str, end: datetime) -> Sequence[JobState]:
        states = [stored.state for stored in self.alive() if stored.state.tenant == tenant]
        return [state for state in states if (at := upcoming_at(state)) is not None and at < end]

    def active_states(self, tenant: str) -> Sequence[JobState]:
        states = [stored.state for stored in self.alive() if stored.state.tenant == tenant]
        return [state for state in states if state.runs or state.wait_queue or state.unrecorded]

    def walk(self, cursor: str | None, limit: int) -> WalkPage:
        states = {("job", *key): self.rows[key].state for key in self.rows if self._valid(key)}
        names = {("name", *key): row for key, row in self._names.rows.items()}
        after = ("", "", "") if cursor is None else tuple(loads(cursor))
        remaining = sorted(place for place in (*states, *names) if place > after)
        page = remaining[:limit]
        return WalkPage(
            [states[place] for place in page if place in states],
            dumps(page[-1]) if len(remaining) > limit else None,
            names=[names[place] for place in page if place in names],
        )

    def alive(self) -> list[StoredState]:
        return [stored for key in self.rows if (stored := self._valid(key)) is not None]


def _has_write_id(stored: JobState, written: JobState) -> bool:
    newer = stored.version - written.version
    write_id = written.write_ids[-1] if written.write_ids else ""
    return bool(write_id) and newer >= 0 and write_id in stored.write_ids[-newer - 1 :]


def _sort_key(timer: Timer) -> tuple[str, int, str]:
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
        rows = sorted(rows, key=_sort_key)
        if cursor is None:
            page = rows[:limit]
        else:
            page = [t for t in rows if str(_sort_key(t)) >= cursor][: limit + 1]
        more = bool(page) and page[-1] != rows[-1]
        return TimerPage(page, str(_sort_key(page[-1])) if more else None)

    def find_existing(self, timers: Sequence[Timer]) -> frozenset[Timer]:
        return frozenset(
            wanted_timer
            for wanted_timer in timers
            for timer in self.rows.get((wanted_timer.bucket, wanted_timer.shard), ())
            if (timer.at, timer.key) == (wanted_timer.at, wanted_timer.key)
        )

    def all(self) -> list[Timer]:
        return [timer for rows in self.rows.values() for timer in rows]


class MemoryHistory:
    def __init__(self, watch: WriteObserver) -> None:
        self.rows: dict[RunKey, RunRow] = {}
        self.attempt_rows: dict[tuple[RunKey, int, int, bool], AttemptRow] = {}
        self._watch = watch

    def put_runs(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            key = RunKey(row.tenant, row.job_id, row.run.run_id)
            self._watch.before_row(self.rows.get(key), row)
            self.rows[key] = row

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        for row in rows:
            key = RunKey(row.tenant, row.job_id, row.run_id)
            self.attempt_rows[key, row.number, row.token, row.lost] = row

    def put_results(self, rows: Sequence[AttemptRow]) -> None:
        self.put_attempts(rows)

    def find_result(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        rows_of_claim = [
            row for row in self.attempts(key, now) if row.token == run.token and not row.lost
        ]
        return rows_of_claim[-1].detail if rows_of_claim else None

    def recorded_keys(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        return frozenset(key for key in keys if key in self.rows)

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        rows = {key: self.rows[key] for key in keys if key in self.rows}
        return {key: row for key, row in rows.items() if row.expires_at > now}

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        rows = [row for place, row in self.attempt_rows.items() if place[0] == key]
        rows = [row for row in rows if row.expires_at is None or row.expires_at > now]
        return sorted(rows, key=lambda row: (row.number, row.token, row.lost))

    def page(
        self, key: JobKey, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        rows = [row for row in self.rows.values() if (row.tenant, row.job_id) == key]
        rows = [row for row in rows if row.expires_at > now]
        rows = [row for row in rows if before is None or row.run.run_id < before]
        rows = [row for row in rows if after is None or row.run.run_id > after]
        return sorted(rows, key=lambda row: row.run.run_id, reverse=True)[:limit]

    def recent_runs(
        self, keys: Sequence[JobKey], limit: int, now: datetime
    ) -> Mapping[JobKey, Sequence[RecentRun]]:
        return {
            key: [recent_run_of(row.run) for row in self.page(key, None, None, limit, now)]
            for key in keys
        }

    def page_all(
        self,
        tenant: str,
        filters: RunFilters,  # its caller filters
        before: tuple[str, str] | None,
        limit: int,
        now: datetime,
    ) -> HistoryPage:
        rows = [row for row in self.rows.values() if row.tenant == tenant and row.expires_at > now]
        rows = [row for row in rows if before is None or (row.run.run_id, row.job_id) < before]
        rows = sorted(rows, key=lambda row: (row.run.run_id, row.job_id), reverse=True)[:limit]
        last = (rows[-1].run.run_id, rows[-1].job_id) if len(rows) == limit else None
        return HistoryPage(rows, last)


class Memory:
    """The stores of one installation."""

    def __init__(self, clock: Clock, watch: WriteObserver | None = None) -> None:
        watch = watch or WriteObserver()
        self.job_names = MemoryJobNames()
        self.job_states = MemoryJobStates(clock, watch, self.job_names)
        self.timers = MemoryTimers()
        self.run_queue = FifoQueue(clock)
        self.notifications = MemoryNotifications()
        self.history = MemoryHistory(watch)
        self.blobs = MemoryBlobs()
        self.partitions = MemoryPartitions(clock)
        self.wakeups = MemoryWakeUps()
        self.receipts = MemoryReceipts()
        self.feed = MemoryFeed()
        self.artifacts = MemoryArtifacts(clock)
        self.operations = MemoryOperations(clock)
        self.ports = Ports(
            job_states=self.job_states,
            job_index=MemoryJobIndex(self.job_states),
            timers=self.timers,
            run_queue=self.run_queue,
            notifications=self.notifications,
            history=self.history,
            run_index=MergedRuns(self.job_states, self.history),
            blobs=self.blobs,
            partitions=self.partitions,
            wakeups=self.wakeups,
            receipts=self.receipts,
            feed=self.feed,
            audit_log=self.job_states.audit,
            artifacts=self.artifacts,
            job_names=self.job_names,
            operations=self.operations,
        )


def _sort_by_occurrence(
    states: Iterable[JobState], after: OccurrencePosition, end: datetime, limit: int
) -> tuple[list[JobState], OccurrencePosition | None]:
    """Return the first `limit` job states after `after`, and earlier ones that come again.

    The second value is the position of the last job state, or None if no more can follow.
    """
    positions = [
        ((at, state.job_id), state)
        for state in states
        if (at := upcoming_at(state)) is not None and at < end
    ]
    repeating = [state for position, state in positions if position <= after and may_repeat(state)]
    later = [(position, state) for position, state in positions if position > after]
    page = sorted(later, key=itemgetter(0))[:limit]
    last_position = page[-1][0] if page and len(page) == limit else None
    return [*repeating, *(state for _, state in page)], last_position
