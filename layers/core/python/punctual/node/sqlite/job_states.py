"""Job states and their leases.

Compare and swap runs in memory, and each commit writes one row for each changed state.
"""

from collections import OrderedDict
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from punctual.domain.draft import job_expires_at
from punctual.domain.errors import Unreadable
from punctual.domain.job_state import JobState, JobStatus, Priority, has_won
from punctual.domain.utc import EPOCH
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import LeaseRenewal, StoredState, Swap, WalkPage
from punctual.engine.ports.rows import (
    DefinitionRow,
    JobKey,
    JobStatePage,
    RunKey,
    UpcomingStates,
)
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.audit import SqliteAudit
from punctual.node.sqlite.counts import Counts
from punctual.node.sqlite.definitions import SqliteDefinitions
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
from punctual.node.sqlite.lists.failures import SqliteFailures
from punctual.node.sqlite.lists.job_list_rows import JobListRows
from punctual.node.sqlite.lists.job_names import NAMES_CURSOR_PREFIX, walk_names
from punctual.node.sqlite.rows import from_micros, insert_rows, read_rows, to_micros
from punctual.node.sqlite.state_rows import (
    INSERT_QUEUED_RUN,
    INSERT_STATE,
    NO_LEASES,
    SLOT_NUMBERS,
    STATE_CODEC,
    JobStateRows,
    decode_states,
    merge_leases,
    parse_lease,
)
from punctual.node.sqlite.transaction import Transaction

MAX_CACHED_STATES = 20_000
_BUSY_PAGE_SIZE = 200  # busy job states in one read
_SCHEDULED_PAGE_SIZE = 200
_FIRST_MICROS = -(2**63)  # before every time
_NOT_EXPIRED = "(expires IS NULL OR expires > ?)"
_SELECT_STATES = "SELECT tenant, job_id, head FROM heads"
_SELECT_UPCOMING = (
    "SELECT coming, job_id, head FROM heads INDEXED BY heads_coming WHERE tenant = ? AND coming < ?"
)
# Plain tuples, because every swap creates some. A key has the hash of a `JobKey`. A cached state
# has the number of its row, so that a write needs no search.
StateKey = tuple[str, str]
CachedState = tuple[int, StoredState]


class StateCache:
    """Caches job states.

    The file has one owner, so the cache stays true.

    `_cache` holds committed states. `_uncommitted` holds the changes of this transaction, and
    `stored_before` the stored form of changes that are not written yet.
    """

    def __init__(self, transaction: Transaction, max_cached: int) -> None:
        self._transaction = transaction
        self._max_cached = max_cached
        self._cache: OrderedDict[StateKey, CachedState] = OrderedDict()
        self._uncommitted: dict[StateKey, CachedState] = {}
        self.stored_before: dict[StateKey, StoredState | None] = {}
        self._reread_keys: set[StateKey] = set()  # keys with uncommitted rows
        self._last_row_number: int | None = None
        self._newest_job_ids: dict[str, str] = {}

    def find(self, key: StateKey) -> CachedState | None:
        """Return the job state as the transaction sees it, expired or not.

        Raise `Unreadable` if its row is damaged.
        """
        cached = self._uncommitted.get(key)
        if cached is not None:
            return cached
        cached = self._cache.get(key)
        if cached is not None:
            self._cache.move_to_end(key)
            return cached
        if key[1] > self._newest_job_id(key[0]):
            return None
        cached = self._read(key)
        if cached is not None and key in self._reread_keys:
            self._uncommitted[key] = cached
        elif cached is not None:
            self._cache[key] = cached
            self._trim()
        return cached

    def change(self, key: StateKey, old: CachedState | None, new: StoredState) -> None:
        if key not in self.stored_before:
            self.stored_before[key] = None if old is None else old[1]
        self._uncommitted[key] = (self._next_row_number(key) if old is None else old[0], new)

    def take_pending(self) -> list[tuple[StoredState | None, CachedState]]:
        """Return the stored state (None if new) and the new state of each changed row.

        The caller writes them now.
        """
        changes = [(old, self._uncommitted[key]) for key, old in self.stored_before.items()]
        self.stored_before.clear()
        return changes

    def forget(self, key: StateKey) -> None:
        """Drop a job state, because this transaction changed its rows directly.

        The next `find` reads it again.
        """
        self._uncommitted.pop(key, None)
        self._cache.pop(key, None)
        self._reread_keys.add(key)

    def on_commit(self) -> None:
        cache = self._cache
        for key, cached in self._uncommitted.items():
            cache[key] = cached
            cache.move_to_end(key)
        self._trim()
        self._uncommitted.clear()
        self._reread_keys.clear()

    def on_rollback(self) -> None:
        self._uncommitted.clear()
        self.stored_before.clear()
        self._reread_keys.clear()

    def _trim(self) -> None:
        while len(self._cache) > self._max_cached:
            self._cache.popitem(last=False)

    def _newest_job_id(self, tenant: str) -> str:
        """Return the newest job id of a tenant.

        New ids rise, so nearly all new jobs are recognized without a search.
        """
        newest = self._newest_job_ids.get(tenant)
        if newest is None:
            (newest,) = self._transaction.db.execute(
                "SELECT coalesce(max(job_id), '') FROM heads WHERE tenant = ?", (tenant,)
            ).fetchone()
            self._newest_job_ids[tenant] = newest
        return newest

    def _next_row_number(self, key: StateKey) -> int:
        """Return the number of a new row.

        It is drawn here and not by SQLite, so that one call inserts many rows.
        """
        if self._last_row_number is None:
            (max_row_number,) = self._transaction.db.execute(
                "SELECT coalesce(max(id), 0) FROM heads"
            ).fetchone()
            self._last_row_number = int(max_row_number)
        self._last_row_number += 1
        tenant, job_id = key
        if job_id > self._newest_job_id(tenant):
            self._newest_job_ids[tenant] = job_id
        return self._last_row_number

    def _read(self, key: StateKey) -> CachedState | None:
        db = self._transaction.db
        row = db.execute(
            "SELECT id, leased, head FROM heads WHERE tenant = ? AND job_id = ?", key
        ).fetchone()
        if row is None:
            return None
        row_number, lease_count, encoded = row
        lease_rows: list[tuple[str, int, int, int, bytes | None]] = []
        if lease_count:
            lease_rows = db.execute(
                "SELECT run_id, token, until, beaten, progress FROM leases WHERE head = ?",
                (row_number,),
            ).fetchall()
        try:
            leases = {
                run_id: parse_lease(token, until, beaten, progress)
                for run_id, token, until, beaten, progress in lease_rows
            }
            return row_number, StoredState(
                STATE_CODEC.decode(encoded), leases if lease_count else NO_LEASES
            )
        except DECODING_ERRORS as error:
            self._transaction.damage.note("heads", key, error)
            raise self._transaction.damage.unreadable_job([key]) from error


class SqliteJobStates:
    def __init__(
        self,
        transaction: Transaction,
        definitions: SqliteDefinitions,
        counts: Counts,
        recorded_runs: Container[RunKey],
        clock: Clock,
        audit: SqliteAudit,
        failures: SqliteFailures,
        changes: SqliteChangeFeed,
        max_cached: int = MAX_CACHED_STATES,
    ) -> None:
        self._transaction = transaction
        self._damage = transaction.damage
        self._audit = audit
        self._failures = failures
        self._changes = changes
        self._definitions = definitions
        self._counts = counts
        self._clock = clock
        self._recorded_runs = recorded_runs
        self._cache = StateCache(transaction, max_cached)
        self.pending = self._cache.stored_before

    def load(self, keys: Sequence[JobKey]) -> Mapping[JobKey, StoredState]:
        states, unreadable = {}, []
        with self._transaction:
            for key in keys:
                try:
                    cached = self._cache.find(key)
                except Unreadable:
                    unreadable.append(key)
                    continue
                if cached is not None and not self._is_expired(cached[1].state):
                    states[key] = cached[1]
        self._damage.raise_if_unreadable(unreadable)
        return states

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        with self._transaction:
            return [self._swap(swap) for swap in swaps]

    def renew_leases(self, renewals: Sequence[LeaseRenewal]) -> Sequence[JobState | None]:
        with self._transaction:
            return [self._renew(renewal) for renewal in renewals]

    def version_of(self, key: JobKey) -> int:
        """Return the version of a job state within this transaction, or 0 if it is unknown."""
        try:
            cached = self._cache.find(key)
        except Unreadable:
            return 0
        return 0 if cached is None else cached[1].state.version

    def put_definitions(self, definitions: Sequence[DefinitionRow]) -> None:
        self._definitions.put(definitions)

    def load_definitions(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return self._definitions.get(refs)

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        with self._transaction:
            self.flush()
            rows = self._transaction.db.execute(
                f"{_SELECT_STATES} WHERE tenant = ?{' AND job_id < ?' if before else ''} "
                f"AND state <> '' AND {_NOT_EXPIRED} ORDER BY job_id DESC LIMIT ?",
                (tenant, *((before,) if before else ()), to_micros(self._clock()), limit + 1),
            ).fetchall()
            states, unreadable = decode_states(self._damage, rows[:limit])
            refs = [
                (JobKey(tenant, state.job_id), state.current_rules.definition_ref)
                for state in states
            ]
            definitions = self.load_definitions(refs)
        self._damage.raise_if_unreadable(unreadable)
        return JobStatePage.from_rows(states, refs, definitions, len(rows) > limit)

    def upcoming(
        self, tenant: str, after: tuple[datetime, str], end: datetime, limit: int, max_states: int
    ) -> UpcomingStates | None:
        """Return the job states that come next.

        Each read follows the index and ends with the rows it returns.
        """
        with self._transaction:
            self.flush()
            after_values, end_micros = (to_micros(after[0]), after[1]), to_micros(end)
            recurring_rows = self._transaction.db.execute(
                f"{_SELECT_UPCOMING} AND again = 1 AND (coming, job_id) <= (?, ?) LIMIT ?",
                (tenant, end_micros, *after_values, max_states + 1),
            ).fetchall()
            if len(recurring_rows) > max_states:
                return None
            upcoming_rows = [
                row
                for recurs in (0, 1)
                for row in self._transaction.db.execute(
                    f"{_SELECT_UPCOMING} AND again = ? AND (coming, job_id) > (?, ?) "
                    "ORDER BY coming, job_id LIMIT ?",
                    (tenant, end_micros, recurs, *after_values, limit),
                ).fetchall()
            ]
            next_rows = sorted(upcoming_rows)[:limit]
            last_row = next_rows[-1] if len(next_rows) == limit else None
            state_rows = [
                (tenant, job_id, encoded) for _, job_id, encoded in (*recurring_rows, *next_rows)
            ]
            states, unreadable = decode_states(self._damage, state_rows)
        self._damage.raise_if_unreadable(unreadable)
        return UpcomingStates(
            states, None if last_row is None else (from_micros(last_row[0]), last_row[1])
        )

    def scheduled_states(self, tenant: str, end: datetime) -> Iterator[JobState]:
        """Yield the job states with an occurrence before `end`, in the order of the index.

        The next occurrence of a job only moves on. So a job that advances may come twice, and none
        is left out.
        """
        end_micros = to_micros(end)
        for recurs in (0, 1):
            position = (_FIRST_MICROS, "")
            while True:
                with self._transaction:
                    self.flush()
                    rows = self._transaction.db.execute(
                        f"{_SELECT_UPCOMING} AND again = ? AND (coming, job_id) > (?, ?) "
                        "ORDER BY coming, job_id LIMIT ?",
                        (tenant, end_micros, recurs, *position, _SCHEDULED_PAGE_SIZE),
                    ).fetchall()
                    states, unreadable = decode_states(
                        self._damage, [(tenant, job_id, encoded) for _, job_id, encoded in rows]
                    )
                self._damage.raise_if_unreadable(unreadable)
                yield from states
                if len(rows) < _SCHEDULED_PAGE_SIZE:
                    break
                position = rows[-1][:2]

    def active_states(self, tenant: str) -> Iterator[JobState]:
        """Yield the busy job states, each as it is when it is read.

        The order is that of row numbers, which never change. So a job that stays busy is yielded
        once.
        """
        last_row_id, now_micros = 0, to_micros(self._clock())
        while True:
            with self._transaction:
                self.flush()
                rows = self._transaction.db.execute(
                    "SELECT tenant, job_id, head, id FROM heads INDEXED BY heads_of_busy "
                    f"WHERE busy = 1 AND tenant = ? AND id > ? AND {_NOT_EXPIRED} "
                    "ORDER BY id LIMIT ?",
                    (tenant, last_row_id, now_micros, _BUSY_PAGE_SIZE),
                ).fetchall()
                states, unreadable = decode_states(self._damage, [row[:3] for row in rows])
            self._damage.raise_if_unreadable(unreadable)
            yield from states
            if len(rows) < _BUSY_PAGE_SIZE:
                return
            last_row_id = rows[-1][3]

    def walk(self, cursor: str | None, limit: int) -> WalkPage:
        """Return a page of all job states by tenant and job, then of all names."""
        with self._transaction:
            self.flush()
            if cursor is not None and cursor.startswith(NAMES_CURSOR_PREFIX):
                return walk_names(self._transaction, cursor, limit)
            after_key = msgspec.json.decode(cursor, type=JobKey) if cursor else JobKey("", "")
            rows = self._transaction.db.execute(
                f"{_SELECT_STATES} WHERE (tenant, job_id) > (?, ?) AND {_NOT_EXPIRED} "
                "ORDER BY tenant, job_id LIMIT ?",
                (*after_key, to_micros(self._clock()), limit),
            ).fetchall()
            states, unreadable = decode_states(self._damage, rows)
            errors = [(key, "Unreadable") for key in unreadable]
            if len(rows) < limit:
                names = walk_names(self._transaction, NAMES_CURSOR_PREFIX, limit)
                return names._replace(states=states, unreadable=errors)
            last_key = JobKey(*rows[-1][:2])
            return WalkPage(states, msgspec.json.encode(last_key).decode(), errors)

    def end_all_leases(self) -> list[JobKey]:
        """End all leases and return their jobs.

        A start calls this: the lock on the folder proves that their holders are gone.
        """
        with self._transaction:
            self.flush()
            rows = read_rows(
                self._transaction.db,
                "SELECT DISTINCT tenant, job_id FROM leases JOIN heads ON heads.id = leases.head",
            )
            keys = [JobKey(*row) for row in rows]
            if keys:
                self._transaction.begin()
                self._transaction.db.execute("UPDATE leases SET until = ?", (to_micros(EPOCH),))
            for key in keys:
                self._cache.forget(key)
            return keys

    def oldest_queued(self, tenant: str) -> datetime | None:
        """Return when the tenant's earliest queued run was due."""
        with self._transaction:
            self.flush()
            rows = [
                self._transaction.db.execute(
                    "SELECT min(due) FROM queue WHERE slot = ? AND tenant = ? AND priority = ?",
                    (slot_number, tenant, priority),
                ).fetchone()
                for slot_numbers in SLOT_NUMBERS.values()
                for slot_number in slot_numbers
                for priority in Priority
            ]
            return min(
                (from_micros(due_micros) for (due_micros,) in rows if due_micros is not None),
                default=None,
            )

    def forget(self, key: JobKey) -> None:
        """Drop the cached job state, because its rows were removed in this transaction."""
        self._cache.forget(key)
        self._definitions.clear_cache()

    def _is_expired(self, state: JobState) -> bool:
        if state.ended_at is None:
            return False
        expiry = job_expires_at(state)
        return expiry is not None and expiry <= self._clock()

    def _swap(self, swap: Swap) -> bool:
        state, expected_version, lease_changes = swap.state, swap.expected_version, swap.leases
        key = (state.tenant, state.job_id)
        try:
            cached = self._cache.find(key)
        except Unreadable:
            return False  # The swap is lost. The next load raises the reason.
        version, leases = 0, NO_LEASES
        if cached is not None and not self._is_expired(cached[1].state):
            stored, leases = cached[1]
            version = stored.version
            if version != expected_version:
                return has_won(state, stored.version, stored.write_ids)
        if version != expected_version:
            return False
        for run_id, lease in swap.required_leases.items():
            if leases.get(run_id) != lease:
                return False
        if lease_changes:
            leases = merge_leases(leases, lease_changes)
        self._cache.change(key, cached, StoredState(state, leases))
        if swap.note is not None:
            self._audit.note_change(swap.note, state)
        return True

    def _renew(self, renewal: LeaseRenewal) -> JobState | None:
        try:
            cached = self._cache.find(renewal.key)
        except Unreadable:
            return None
        if cached is None or self._is_expired(cached[1].state):
            return None
        state, leases = cached[1]
        lease = leases.get(renewal.run_id)
        if lease is None or lease.token != renewal.token:
            return None
        renewed_lease = lease.renewed(renewal.expires_at, renewal.progress)
        self._cache.change(
            renewal.key, cached, StoredState(state, {**leases, renewal.run_id: renewed_lease})
        )
        return state

    def flush(self) -> None:
        pending_changes = self._cache.take_pending()
        if not pending_changes:
            return
        self._transaction.begin()
        self._changes.add_states(pending_changes)
        writes = JobStateRows(self._counts.changes, self._recorded_runs)
        list_rows = JobListRows(self._transaction, self._definitions)
        for old, (row_number, new) in pending_changes:
            writes.add(row_number, old, new)
            if new.state.status is JobStatus.CANCELLED:
                self._failures.close([JobKey(new.state.tenant, new.state.job_id)])
            list_rows.add(None if old is None else old.state, new.state)
        for statement, rows in writes.statements():
            if statement in (INSERT_STATE, INSERT_QUEUED_RUN):
                insert_rows(self._transaction.db, statement, rows)
            else:
                self._transaction.db.executemany(statement, rows)
        list_rows.write()

    def on_commit(self) -> None:
        self._cache.on_commit()

    def on_rollback(self) -> None:
        self._cache.on_rollback()
