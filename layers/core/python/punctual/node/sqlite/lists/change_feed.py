"""The change feed of the node, written in the commit of the changes.

A row holds the changes of one commit and tenant. It names jobs and ended runs by their ids only,
and a reader loads them. Live runs are in the row as the change left them. Each tenant counts its
own rows, so a cursor tells nothing of other tenants.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from punctual.domain.job_state import DEFAULT_TASK_TYPE, JobState, JobStatus
from punctual.domain.operations.operation import Operation
from punctual.domain.run import Run, WaitingRun
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.lists.change_feed import (
    CHANGE_RETENTION,
    Change,
    ChangeFilters,
    ChangeKind,
    ChangePage,
)
from punctual.engine.ports.rows import JobKey, RunRow
from punctual.engine.queries.run_views import waiting_run
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import Codec, from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

MAX_FEED_BYTES = 256 * 1024 * 1024  # of a tenant; the oldest rows go first
MAX_KNOWN_TENANTS = 1_000  # with their last row in memory
TENANTS_PER_PURGE = 50
MAX_READ_BYTES = 128 * 1024  # of one read, which takes about a millisecond
CHANGES_PER_READ = 100  # a read ends with the row that reaches it
READS_PER_ANSWER = 16
ITEMS_PER_ROW = 128
RUNS_PER_ITEM = 4
CHANGE_POLL_SECONDS = 3  # for clients that do not wait
ISSUE_STEP = timedelta(seconds=10)  # cursors of one moment are equal, so answers can be shared
_ROW_OVERHEAD_BYTES = 200  # of a row besides its changes
_REMOVED_ROWS_PER_COMMIT = 8
_ROWS_PER_QUERY = 32

R = TypeVar("R", Run, WaitingRun)
StateChange = tuple[StoredState | None, tuple[int, StoredState]]
Item = tuple[Any, ...]


class StoredItem(Struct, frozen=True, array_like=True):
    """A changed job with its changed runs, or an operation. Writers leave out the last defaults."""

    job_id: str
    version: int
    ended_run_ids: tuple[str, ...] = ()  # ended or withdrawn: the history knows
    task_type: str = DEFAULT_TASK_TYPE  # of `runs` and `waiting`
    runs: tuple[Run, ...] = ()
    waiting: tuple[WaitingRun, ...] = ()
    is_paused: bool = False
    operation: Operation | None = None


class _LastRow(NamedTuple):
    """The newest row of a tenant. `first_id` is the id before its row 1, or 0 without rows."""

    first_id: int = 0
    number: int = 0
    at_micros: int = 0
    total_bytes: int = 0


_ITEMS_CODEC = Codec(list[StoredItem], packed=True)
CommitListener = Callable[[str, int, Sequence[Item]], None]  # tenant, its last row, its changes
_NUMBER_BITS = 40  # of the id of a row
_INSERT_CHANGES = "INSERT INTO changes (id, at, total, changes) VALUES (?, ?, ?, ?)"


class SqliteChangeFeed:
    """Numbers only grow, because the newest row of a tenant is never removed."""

    reads_per_answer = READS_PER_ANSWER

    def __init__(
        self, transaction: Transaction, clock: Clock, max_bytes: int = MAX_FEED_BYTES
    ) -> None:
        self._transaction = transaction
        self._clock = clock
        self._max_bytes = max_bytes
        self.pending: list[Sequence[StateChange]] = []
        self.pending_rows: list[Sequence[RunRow]] = []  # of the history
        self.pending_items: list[tuple[str, Item]] = []
        self.version_of: Callable[[JobKey], int] = _no_version
        self.flush_others: Callable[[], None] = _flush_nothing
        self.on_change: CommitListener | None = None
        self._committed: dict[str, list[Item]] = {}
        self._last_rows: dict[str, _LastRow] = {}
        self._oldest_totals: dict[str, int] = {}  # `total` before the oldest row of a tenant
        self._purged_key = 0  # the walk over expired rows goes on after it

    @property
    def all_pending(self) -> tuple[Sized, ...]:
        return self.pending, self.pending_rows, self.pending_items

    def add_states(self, changes: Sequence[StateChange]) -> None:
        """Add changed job states: each as it was before, and its present row."""
        self.pending.append(changes)

    def add_history(self, rows: Sequence[RunRow]) -> None:
        self.pending_rows.append(rows)

    def add_removed_job(self, key: JobKey, version: int) -> None:
        self.pending_items.append((key.tenant, (key.job_id, version)))

    def add_operation(self, operation: Operation) -> None:
        item = ("", operation.revision, (), "", (), (), False, operation.without_errors())
        self.pending_items.append((operation.tenant, item))

    def now(self, tenant: str, now: datetime) -> tuple[str, ...]:
        with self._transaction:
            self._flush_all()
            return _cursor(self._load_last(tenant), now)

    def read(
        self, tenant: str, cursor: tuple[str, ...], filters: ChangeFilters, now: datetime
    ) -> ChangePage | None:
        with self._transaction:
            self._flush_all()
            position = _parse_cursor(cursor)
            if position is None or not self._is_known(tenant, *position, now):
                return None
            last = self._load_last(tenant)
            changes: list[Change] = []
            size, row_number = 0, position[0]
            for row_number, at_micros, encoded in self._rows(last, position[0]):
                try:
                    items = _ITEMS_CODEC.decode(encoded)
                except DECODING_ERRORS as error:
                    self._transaction.damage.note("changes", (tenant, row_number), error)
                    return None
                at = from_micros(at_micros)
                changes += [
                    change
                    for item in items
                    for change in _changes_of(item, tenant, at)
                    if filters.matches(change.kind, change.job_id, change.run_id)
                ]
                size += len(encoded)
                if len(changes) >= CHANGES_PER_READ or size >= MAX_READ_BYTES:
                    next_row = _LastRow(last.first_id, row_number, at_micros)
                    return ChangePage(changes, _cursor(next_row, now), has_more=True)
            return ChangePage(changes, _cursor(last, now))

    def seconds_to_next_read(self, _tenant: str, page: ChangePage, _now: datetime) -> int:
        return 0 if page.has_more else CHANGE_POLL_SECONDS

    def _rows(self, last: _LastRow, row_number: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield number, time and changes of the rows after a row."""
        while True:
            rows = self._transaction.db.execute(
                "SELECT id - ?, at, changes FROM changes WHERE id > ? AND id <= ? "
                "ORDER BY id LIMIT ?",
                (
                    last.first_id,
                    last.first_id + row_number,
                    last.first_id + last.number,
                    _ROWS_PER_QUERY,
                ),
            ).fetchall()
            yield from rows
            if len(rows) < _ROWS_PER_QUERY:
                return
            row_number = rows[-1][0]

    def _is_known(
        self, tenant: str, row_number: int, at_micros: int, issued_at: int, now: datetime
    ) -> bool:
        """Return whether the feed still holds all changes of the tenant after this row.

        The row itself must exist with its time. So a cursor of a database that was replaced, for
        example by a backup, is unknown.
        """
        if now.timestamp() - issued_at > CHANGE_RETENTION.total_seconds():
            return False
        last = self._load_last(tenant)
        if row_number == 0 and last.number == 0:
            return at_micros == 0
        # Without a row of its own, a cursor of the beginning needs row 1.
        row = self._transaction.db.execute(
            "SELECT at FROM changes WHERE id = ?", (last.first_id + (row_number or 1),)
        ).fetchone()
        if row is None or row_number > last.number:
            return False
        return at_micros == (row[0] if row_number else 0)

    def _load_last(self, tenant: str) -> _LastRow:
        last = self._last_rows.get(tenant)
        if last is None:
            row = self._transaction.db.execute(
                "SELECT tenant.first_id, changes.id - tenant.first_id, at, total FROM changes, "
                "(SELECT key << 40 AS first_id FROM change_tenants WHERE tenant = ?) tenant "
                "WHERE changes.id > tenant.first_id AND changes.id < tenant.first_id + (1 << 40) "
                "ORDER BY changes.id DESC LIMIT 1",
                (tenant,),
            ).fetchone()
            last = _LastRow() if row is None else _LastRow(*row)
            if len(self._last_rows) >= MAX_KNOWN_TENANTS:
                self._last_rows.clear()
                self._oldest_totals.clear()
            self._last_rows[tenant] = last
        return last

    def _flush_all(self) -> None:
        self.flush_others()
        if self.pending or self.pending_rows or self.pending_items:
            self.flush()

    def flush(self) -> None:
        self._transaction.begin()
        at_micros = to_micros(self._clock())
        execute = self._transaction.db.execute
        for tenant, items in self._take_items().items():
            if not items:
                continue
            committed = self._committed.setdefault(tenant, items)
            if committed is not items:
                committed += items
            first_id, number, _, total = self._load_last(tenant)
            first_id = first_id or self._add_tenant(tenant)
            for start in range(0, len(items), ITEMS_PER_ROW):
                encoded = _ITEMS_CODEC.encode(items[start : start + ITEMS_PER_ROW])
                number += 1
                total += len(encoded) + _ROW_OVERHEAD_BYTES
                execute(_INSERT_CHANGES, (first_id + number, at_micros, total, encoded))
            last = self._last_rows[tenant] = _LastRow(first_id, number, at_micros, total)
            self._remove_oldest(tenant, last)

    def _add_tenant(self, tenant: str) -> int:
        """Return the id before the first row of a tenant that had no changes yet."""
        statement = "INSERT INTO change_tenants (tenant) VALUES (?)"
        key = self._transaction.db.execute(statement, (tenant,)).lastrowid
        assert key is not None
        return key << _NUMBER_BITS

    def _take_items(self) -> dict[str, list[Item]]:
        """Return the pending changes by tenant."""
        history: dict[str, RunRow] = {}
        for rows in self.pending_rows:
            for row in rows:
                history[row.run.run_id] = row
        items_by_tenant: dict[str, list[Item]] = {}
        for changes in self.pending:
            for old, (_, new) in changes:
                state = new.state
                if old is None or old.state is not state:
                    items = items_by_tenant.setdefault(state.tenant, [])
                    _add_items(items, None if old is None else old.state, state, history)
        for tenant, item in self.pending_items:
            items_by_tenant.setdefault(tenant, []).append(item)
        if history:
            self._add_history(items_by_tenant, list(history.values()))
        self.pending.clear()
        self.pending_rows.clear()
        self.pending_items.clear()
        return items_by_tenant

    def _add_history(self, items_by_tenant: dict[str, list[Item]], rows: Sequence[RunRow]) -> None:
        """Add ended runs that no job state held, for example runs that were skipped."""
        for row in rows:
            version = self.version_of(JobKey(row.tenant, row.job_id))
            item = (row.job_id, version, (row.run.run_id,))
            items_by_tenant.setdefault(row.tenant, []).append(item)

    def _remove_oldest(self, tenant: str, last: _LastRow) -> None:
        """Keep the bound on the size of a tenant's feed. A few rows go with each commit."""
        db = self._transaction.db
        oldest_total = self._oldest_totals.get(tenant)
        if oldest_total is None:
            (oldest_total,) = db.execute(
                "SELECT total - length(changes) FROM changes WHERE id > ? ORDER BY id LIMIT 1",
                (last.first_id,),
            ).fetchone()
            self._oldest_totals[tenant] = oldest_total
        total = last.total_bytes
        if total - oldest_total <= self._max_bytes:
            return
        oldest_rows = db.execute(
            "SELECT id, total FROM changes WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
            (last.first_id, last.first_id + last.number, _REMOVED_ROWS_PER_COMMIT),
        ).fetchall()
        removed = [row for row in oldest_rows[:-1] if total - row[1] >= self._max_bytes // 2]
        if removed:
            row_id, self._oldest_totals[tenant] = removed[-1]
            db.execute("DELETE FROM changes WHERE id > ? AND id <= ?", (last.first_id, row_id))

    def remove_expired(self, now: datetime, limit: int) -> bool:
        """Remove expired rows of the next tenants, but never a newest one: its numbers go on.

        Return whether there may be more of them.
        """
        db, expiry = self._transaction.db, to_micros(now - CHANGE_RETENTION)
        tenants = db.execute(
            "SELECT key, tenant FROM change_tenants WHERE key > ? ORDER BY key LIMIT ?",
            (self._purged_key, TENANTS_PER_PURGE),
        ).fetchall()
        for key, tenant in tenants:
            last = self._load_last(tenant)
            removed = db.execute(
                "DELETE FROM changes WHERE id IN (SELECT id FROM changes "
                "WHERE id > ? AND id < ? ORDER BY id LIMIT ?) AND at <= ?",
                (last.first_id, last.first_id + last.number, limit, expiry),
            ).rowcount
            self._oldest_totals.pop(tenant, None)
            if removed >= limit:
                return True
            self._purged_key = key
        if len(tenants) < TENANTS_PER_PURGE:
            self._purged_key = 0
            return False
        return True

    def on_commit(self) -> None:
        if self._committed:
            committed, self._committed = self._committed, {}
            if self.on_change is not None:
                for tenant, items in committed.items():
                    self.on_change(tenant, self._load_last(tenant).number, items)

    def on_rollback(self) -> None:
        self.pending.clear()
        self.pending_rows.clear()
        self.pending_items.clear()
        self._committed.clear()
        self._last_rows.clear()
        self._oldest_totals.clear()


def _add_items(
    items: list[Item], old: JobState | None, state: JobState, history: dict[str, RunRow]
) -> None:
    """Add the items of a changed state, and take its ended runs out of `history`."""
    if state.is_blank:
        return
    if old is None or old.is_blank:
        if not state.runs and not state.wait_queue and not state.unrecorded:
            items.append((state.job_id, state.version))
            return
        old_runs: tuple[Run, ...] = ()
    else:
        old_runs = old.runs
        if not state.wait_queue and not old.wait_queue:
            runs, job_id, version = state.runs, state.job_id, state.version
            has_other_end = bool(state.unrecorded) and _has_other_end(old, state, history)
            if runs is old_runs and not has_other_end:
                items.append((job_id, version))
                return
            if len(runs) == 1 and not has_other_end and _is_same_run(old_runs, runs[0]):
                task_type = state.rules[runs[0].definition].task_type
                items.append((job_id, version, (), task_type, runs))
                return
            if not runs and len(old_runs) == 1 and not has_other_end:
                run_id = old_runs[0].run_id
                history.pop(run_id, None)
                items.append((job_id, version, (run_id,)))
                return
    items.extend(_compared_items(None if old is None or old.is_blank else old, state, history))


def _is_same_run(old_runs: Sequence[Run], run: Run) -> bool:
    """Return whether there was no run before, or this one."""
    return not old_runs or (len(old_runs) == 1 and old_runs[0].run_id == run.run_id)


def _has_other_end(old: JobState, state: JobState, history: Mapping[str, RunRow]) -> bool:
    """Return whether the state holds an ended run that the history of this commit lacks."""
    if state.unrecorded is old.unrecorded:
        return False
    return any(run.run_id not in history for run in state.unrecorded)


def _compared_items(
    old: JobState | None, state: JobState, history: dict[str, RunRow]
) -> Iterator[Item]:
    """Yield the items of a job with several runs. An unchanged run is the same object."""
    is_paused = state.status is JobStatus.PAUSED
    old_live = () if old is None else old.runs
    old_runs = old_live if old is None else (*old_live, *old.unrecorded)
    old_waiting = () if old is None else old.wait_queue
    has_new_reason = old is not None and is_paused != (old.status is JobStatus.PAUSED)
    known = {id(run) for run in old_runs} | {id(waiting) for waiting in old_waiting}
    runs = [run for run in (*state.runs, *state.unrecorded) if id(run) not in known]
    waiting = [entry for entry in state.wait_queue if has_new_reason or id(entry) not in known]
    present = {run.run_id for run in (*state.runs, *state.unrecorded)}
    present.update(entry.run_id for entry in state.wait_queue)
    former_ids = [run.run_id for run in old_live] + [entry.run_id for entry in old_waiting]
    ended_run_ids = [run_id for run_id in former_ids if run_id not in present]
    for run_id in (*ended_run_ids, *(run.run_id for run in state.unrecorded)):
        history.pop(run_id, None)
    job_id, version = state.job_id, state.version
    yield job_id, version
    for start in range(0, len(ended_run_ids), RUNS_PER_ITEM):
        yield job_id, version, ended_run_ids[start : start + RUNS_PER_ITEM]
    for task_type, entries in _by_task_type(state, waiting):
        yield job_id, version, (), task_type, (), entries, is_paused
    for task_type, part in _by_task_type(state, runs):
        yield job_id, version, (), task_type, part


def _by_task_type(state: JobState, runs: Sequence[R]) -> Iterator[tuple[str, Sequence[R]]]:
    """Yield some runs at a time, each time runs of one task type."""
    runs_by_type: dict[str, list[R]] = {}
    for run in runs:
        rules = state.rules.get(run.definition, state.current_rules)
        runs_by_type.setdefault(rules.task_type, []).append(run)
    for task_type, same_type in runs_by_type.items():
        for start in range(0, len(same_type), RUNS_PER_ITEM):
            yield task_type, same_type[start : start + RUNS_PER_ITEM]


def _changes_of(item: StoredItem, tenant: str, at: datetime) -> Iterator[Change]:
    """Yield the changes of an item. The job comes first."""
    job_id, version = item.job_id, item.version
    if item.operation is not None:
        yield Change(ChangeKind.OPERATION, "", "", version, at, operation=item.operation)
        return
    yield Change(ChangeKind.JOB, job_id, "", version, at, is_loaded=False)
    for run_id in item.ended_run_ids:
        yield Change(ChangeKind.RUN, job_id, run_id, version, at, is_loaded=False)
    waiting_runs = (waiting_run(waiting, is_paused=item.is_paused) for waiting in item.waiting)
    for run in (*item.runs, *waiting_runs):
        row = RunRow(tenant, job_id, run, at, TZDATA_VERSION, task_type=item.task_type)
        is_loaded = run.ended_at is None  # else the history has its result
        yield Change(ChangeKind.RUN, job_id, run.run_id, version, at, is_loaded=is_loaded, run=row)


def _cursor(row: _LastRow, now: datetime) -> tuple[str, ...]:
    step_seconds = int(ISSUE_STEP.total_seconds())
    issued_at = int(now.timestamp()) // step_seconds * step_seconds
    return str(row.number), str(row.at_micros), str(issued_at)


def _parse_cursor(cursor: tuple[str, ...]) -> tuple[int, int, int] | None:
    """Return the number and time of the row, and when the cursor was issued."""
    if len(cursor) != 3 or not all(
        part.isascii() and part.isdecimal() and len(part) < 19 for part in cursor
    ):
        return None
    return int(cursor[0]), int(cursor[1]), int(cursor[2])


def _no_version(_key: JobKey) -> int:
    return 0


def _flush_nothing() -> None:
    pass
