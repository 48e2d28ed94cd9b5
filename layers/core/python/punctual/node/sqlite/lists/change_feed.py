"""The change feed of the node, written in the commit of the changes.

A row holds the changes of one commit and tenant. It names jobs and ended runs by their ids only,
and a reader loads them. Live runs are in the row as the change left them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from datetime import datetime, timedelta
from typing import Any, TypeVar

from msgspec import Struct

from punctual.domain.job_state import DEFAULT_TASK_TYPE, JobState, JobStatus
from punctual.domain.operations import Operation
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

MAX_FEED_BYTES = 256 * 1024 * 1024  # the oldest rows go first
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


class _LastRow(Struct, frozen=True):
    number: int = 0
    at_micros: int = 0
    total_bytes: int = 0


_ITEMS_CODEC = Codec(list[StoredItem], packed=True)
CommitListener = Callable[[int, Mapping[str, Sequence[Item]]], None]


class SqliteChangeFeed:
    """Numbers only grow, because the newest row is never removed."""

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
        self._last: _LastRow | None = None
        self._oldest_total: int | None = None  # `total` before the oldest row

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

    def now(self, now: datetime) -> tuple[str, ...]:
        with self._transaction:
            self._flush_all()
            return _cursor(self._load_last(), now)

    def read(
        self, tenant: str, cursor: tuple[str, ...], filters: ChangeFilters, now: datetime
    ) -> ChangePage | None:
        with self._transaction:
            self._flush_all()
            position = _parse_cursor(cursor)
            if position is None or not self._is_known(*position, now):
                return None
            last = self._load_last()
            changes: list[Change] = []
            size, row_number = 0, position[0]
            for row_number, at_micros, encoded in self._rows(tenant, position[0]):
                try:
                    items = _ITEMS_CODEC.decode(encoded)
                except DECODING_ERRORS as error:
                    self._transaction.damage.note("changes", (row_number,), error)
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
                    next_row = _LastRow(row_number, at_micros)
                    return ChangePage(changes, _cursor(next_row, now), has_more=True)
            return ChangePage(changes, _cursor(last, now))

    def seconds_to_next_read(self, _tenant: str, page: ChangePage, _now: datetime) -> int:
        return 0 if page.has_more else CHANGE_POLL_SECONDS

    def _rows(self, tenant: str, row_number: int) -> Iterator[tuple[int, int, bytes]]:
        while True:
            rows = self._transaction.db.execute(
                "SELECT id, at, changes FROM changes WHERE tenant = ? AND id > ? "
                "ORDER BY id LIMIT ?",
                (tenant, row_number, _ROWS_PER_QUERY),
            ).fetchall()
            yield from rows
            if len(rows) < _ROWS_PER_QUERY:
                return
            row_number = rows[-1][0]

    def _is_known(self, row_number: int, at_micros: int, issued_at: int, now: datetime) -> bool:
        """Return whether the feed still holds all changes after this row.

        The row itself must exist with its time. So a cursor of a database that was replaced, for
        example by a backup, is unknown.
        """
        if now.timestamp() - issued_at > CHANGE_RETENTION.total_seconds():
            return False
        db = self._transaction.db
        if row_number == 0:
            (oldest,) = db.execute("SELECT coalesce(min(id), 1) FROM changes").fetchone()
            return at_micros == 0 and int(oldest) == 1
        row = db.execute("SELECT at FROM changes WHERE id = ?", (row_number,)).fetchone()
        return row is not None and row[0] == at_micros

    def _load_last(self) -> _LastRow:
        if self._last is None:
            row = self._transaction.db.execute(
                "SELECT id, at, total FROM changes ORDER BY id DESC LIMIT 1"
            ).fetchone()
            self._last = _LastRow() if row is None else _LastRow(*row)
        return self._last

    def _flush_all(self) -> None:
        self.flush_others()
        if self.pending or self.pending_rows or self.pending_items:
            self.flush()

    def flush(self) -> None:
        self._transaction.begin()
        items_by_tenant = self._take_items()
        at_micros = to_micros(self._clock())
        last, rows = self._load_last(), []
        number, total = last.number, last.total_bytes
        for tenant, items in items_by_tenant.items():
            self._committed.setdefault(tenant, []).extend(items)
            for start in range(0, len(items), ITEMS_PER_ROW):
                encoded = _ITEMS_CODEC.encode(items[start : start + ITEMS_PER_ROW])
                number += 1
                total += len(encoded) + _ROW_OVERHEAD_BYTES
                rows.append((number, tenant, at_micros, total, encoded))
        if not rows:
            return
        self._transaction.db.executemany(
            "INSERT INTO changes (id, tenant, at, total, changes) VALUES (?, ?, ?, ?, ?)", rows
        )
        self._last = _LastRow(number, at_micros, total)
        self._remove_oldest(total)

    def _take_items(self) -> dict[str, list[Item]]:
        """Return the pending changes by tenant."""
        history = {row.run.run_id: row for rows in self.pending_rows for row in rows}
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

    def _remove_oldest(self, total: int) -> None:
        """Keep the bound on the size of the feed. A few rows go with each commit."""
        db = self._transaction.db
        if self._oldest_total is None:
            row = db.execute(
                "SELECT total - length(changes) FROM changes ORDER BY id LIMIT 1"
            ).fetchone()
            self._oldest_total = int(row[0])
        if total - self._oldest_total <= self._max_bytes:
            return
        oldest_rows = db.execute(
            "SELECT id, total FROM changes ORDER BY id LIMIT ?", (_REMOVED_ROWS_PER_COMMIT,)
        ).fetchall()
        removed = [row for row in oldest_rows[:-1] if total - row[1] >= self._max_bytes // 2]
        if removed:
            db.execute("DELETE FROM changes WHERE id <= ?", (removed[-1][0],))
            self._oldest_total = removed[-1][1]

    def on_commit(self) -> None:
        if self._committed:
            committed, self._committed = self._committed, {}
            if self.on_change is not None:
                self.on_change(self._load_last().number, committed)

    def on_rollback(self) -> None:
        self.pending.clear()
        self.pending_rows.clear()
        self.pending_items.clear()
        self._committed.clear()
        self._last = self._oldest_total = None

    def on_purge(self) -> None:
        self._oldest_total = None


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
            has_other_end = _has_other_end(old, state, history)
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
    if not state.unrecorded or state.unrecorded is old.unrecorded:
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
