"""Converts a changed job state to the fewest changes of rows in SQLite."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from punctual.domain.draft import job_expires_at
from punctual.domain.job_state import JobState, Lane, Rules
from punctual.domain.run import Lease, Progress, RunStatus
from punctual.domain.schedules.upcoming import may_repeat, upcoming_at
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import JobKey, RunKey
from punctual.node.files.damage import DECODING_ERRORS, Damage
from punctual.node.sqlite.counts import JOB_KIND, RUN_KIND
from punctual.node.sqlite.rows import Codec, from_micros, to_micros
from punctual.tasks.limits import DEFAULT_MEMORY_MB

# Runs of one slot compete for the same threads.
INLINE_SLOT = "inline"  # the node's own thread: an `event` task takes no worker
# The numbers of each slot in rows. Scripts of the long lane have a number of their own, so that
# other runs pass those that wait for memory.
SCRIPT_NUMBER = 3
SLOT_NUMBERS: dict[str, tuple[int, ...]] = {
    INLINE_SLOT: (0,),
    Lane.QUICK: (1,),
    Lane.LONG: (2, SCRIPT_NUMBER),
}

STATE_CODEC = Codec(JobState, packed=True)
_PROGRESS_DECODER = msgspec.json.Decoder(Progress)
NO_LEASES: Mapping[str, Lease] = {}

_BUSY_COLUMNS = ("leased", "busy")
_IDLE_VALUES = (0, False)
_STATUS_COLUMNS = ("state", "expires")
_UPCOMING_COLUMNS = ("coming", "again")
_STATE_COLUMNS = (
    "head",
    *_STATUS_COLUMNS,
    *_BUSY_COLUMNS,
    *_UPCOMING_COLUMNS,
    "id",
    "tenant",
    "job_id",
)
INSERT_STATE = (
    f"INSERT INTO heads ({', '.join(_STATE_COLUMNS)}) "
    f"VALUES ({', '.join('?' * len(_STATE_COLUMNS))})"
)
_UPSERT_LEASE = (
    "INSERT INTO leases (head, run_id, token, until, beaten, progress) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET token = excluded.token, until = excluded.until, "
    "beaten = excluded.beaten, progress = excluded.progress"
)
_DELETE_LEASE = "DELETE FROM leases WHERE head = ? AND run_id = ?"
INSERT_QUEUED_RUN = (
    "INSERT OR IGNORE INTO queue (slot, tenant, priority, due, job_id, run_id, memory_mb) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_DELETE_QUEUED_RUN = (
    "DELETE FROM queue WHERE slot = ? AND tenant = ? AND priority = ? AND due = ? "
    "AND job_id = ? AND run_id = ?"
)

_QUEUE_KEY_COLUMNS = 6
RowValues = tuple[Any, ...]


@cache
def _update_statement(
    has_status: bool, has_busy: bool, has_upcoming: bool, clears_upcoming: bool
) -> str:
    """Return the UPDATE for the columns that changed.

    An UPDATE rewrites the indexes of every column that it names, changed or not.

    If nothing comes next, the statement has the constant NULL, so SQLite skips the check for an
    index entry.
    """
    columns = [
        "head",
        *(_STATUS_COLUMNS * has_status),
        *(_BUSY_COLUMNS * has_busy),
        *(_UPCOMING_COLUMNS * has_upcoming),
    ]
    assignments = [f"{column} = ?" for column in columns]
    if clears_upcoming:
        assignments += ["coming = NULL", "again = 0"]
    return f"UPDATE heads SET {', '.join(assignments)} WHERE id = ?"


class JobStateRows:
    """Collects the writes of one flush, and their changes of the counts."""

    def __init__(
        self, counts: Counter[tuple[str, str, str]], recorded_runs: Container[RunKey] = ()
    ) -> None:
        self._counts = counts
        self._recorded_runs = recorded_runs
        self._inserts: list[RowValues] = []
        self._updates: dict[tuple[bool, bool, bool, bool], list[RowValues]] = {}
        self._leases: list[RowValues] = []
        self._dropped_leases: list[RowValues] = []
        self._queued_runs: list[RowValues] = []
        self._dequeued_runs: list[RowValues] = []
        self._status_changes: Counter[tuple[str, str, str]] = Counter()
        self._ended_at: datetime | None = None
        self._expires_micros: int | None = None

    def add(self, row_number: int, old: StoredState | None, new: StoredState) -> None:
        """Add the writes for a changed job state. `row_number` is the number of its row."""
        state = new.state
        if old is None:
            self._count_state_and_runs(state, 1)
            columns = (
                *self._status_values(state),
                *self._busy_values(new),
                *_upcoming_values(state),
            )
            self._inserts.append(
                (STATE_CODEC.encode(state), *columns, row_number, state.tenant, state.job_id)
            )
            self._queued_runs += queue_rows(state)
        elif state is not old.state:
            self._change(row_number, old, new)
        old_leases = NO_LEASES if old is None else old.leases
        if old_leases is not new.leases:
            self._add_leases(row_number, old_leases, new.leases)

    def _change(self, row_number: int, old: StoredState, new: StoredState) -> None:
        old_state, state = old.state, new.state
        has_same_status = (
            old_state.status is state.status and not old_state.is_blank and not state.is_blank
        )
        if not has_same_status:
            self._status_changes[old_state.tenant, _status_of(old_state), _status_of(state)] += 1
        is_idle = _is_idle(old) and _is_idle(new)
        if not is_idle:
            self._count_runs(old_state, -1)
            self._count_runs(state, 1)
            self._change_queue(queue_rows(old_state), queue_rows(state))
        status_values = (
            ()
            if has_same_status and old_state.ended_at == state.ended_at
            else self._status_values(state)
        )
        busy_values = () if is_idle else self._busy_values(new)
        next_at = upcoming_at(state)
        keeps_upcoming = next_at == upcoming_at(old_state) and (
            next_at is None or may_repeat(state) == may_repeat(old_state)
        )
        upcoming_values = (
            () if keeps_upcoming or next_at is None else (to_micros(next_at), may_repeat(state))
        )
        changed_columns = (
            bool(status_values),
            bool(busy_values),
            bool(upcoming_values),
            not keeps_upcoming and next_at is None,
        )
        row = (
            STATE_CODEC.encode(state),
            *status_values,
            *busy_values,
            *upcoming_values,
            row_number,
        )
        self._updates.setdefault(changed_columns, []).append(row)

    def _change_queue(self, old: Sequence[RowValues], new: Sequence[RowValues]) -> None:
        """Change the rows of the run queue. A job has few or none."""
        if old != new:
            self._dequeued_runs += [row[:_QUEUE_KEY_COLUMNS] for row in old if row not in new]
            self._queued_runs += [row for row in new if row not in old]

    def statements(self) -> Iterator[tuple[str, Sequence[RowValues]]]:
        for (tenant, old_status, new_status), job_count in self._status_changes.items():
            if old_status:
                self._counts[tenant, JOB_KIND, old_status] -= job_count
            if new_status:
                self._counts[tenant, JOB_KIND, new_status] += job_count
        self._status_changes.clear()
        if self._inserts:
            yield INSERT_STATE, self._inserts
        for changed_columns, rows in self._updates.items():
            yield _update_statement(*changed_columns), rows
        if self._leases:
            yield _UPSERT_LEASE, self._leases
        if self._dropped_leases:
            yield _DELETE_LEASE, self._dropped_leases
        if self._dequeued_runs:
            yield _DELETE_QUEUED_RUN, self._dequeued_runs
        if self._queued_runs:
            yield INSERT_QUEUED_RUN, self._queued_runs

    def _status_values(self, state: JobState) -> RowValues:
        ended_at = state.ended_at
        if ended_at is not self._ended_at:  # jobs of one batch share it
            expiry = job_expires_at(state)
            self._expires_micros = None if expiry is None else to_micros(expiry)
            self._ended_at = ended_at
        return _status_of(state), self._expires_micros

    def _busy_values(self, new: StoredState) -> RowValues:
        """Return the number of leases, and whether the job has live, waiting or unrecorded runs."""
        if _is_idle(new):
            return _IDLE_VALUES
        state = new.state
        is_busy = bool(
            state.runs or state.wait_queue or (state.unrecorded and self._is_unrecorded(state))
        )
        return len(new.leases), is_busy

    def _is_unrecorded(self, state: JobState) -> bool:
        """Return whether an ended run is still missing from the history.

        Runs that this commit records are not missing.
        """
        tenant, job_id = state.tenant, state.job_id
        return any(
            RunKey(tenant, job_id, run.run_id) not in self._recorded_runs
            for run in state.unrecorded
        )

    def _add_leases(
        self, row_number: int, before: Mapping[str, Lease], after: Mapping[str, Lease]
    ) -> None:
        for run_id, lease in after.items():
            if before.get(run_id) != lease:
                self._leases.append((row_number, run_id, *lease_columns(lease)))
        for run_id in before:
            if run_id not in after:
                self._dropped_leases.append((row_number, run_id))

    def _count_state_and_runs(self, state: JobState, change: int) -> None:
        self._count_state(state, change)
        if state.runs or state.wait_queue:
            self._count_runs(state, change)

    def _count_state(self, state: JobState, change: int) -> None:
        if not state.is_blank:
            self._counts[state.tenant, JOB_KIND, state.status._value_] += change

    def _count_runs(self, state: JobState, change: int) -> None:
        for run in state.runs:
            self._counts[state.tenant, RUN_KIND, run.status._value_] += change
        if state.wait_queue:
            self._counts[state.tenant, RUN_KIND, RunStatus.WAITING.value] += change * len(
                state.wait_queue
            )


def decode_states(
    damage: Damage, rows: Iterable[tuple[str, str, bytes]]
) -> tuple[list[JobState], list[JobKey]]:
    """Return the job states of rows (tenant, job, state), and the jobs with an unreadable state."""
    states: list[JobState] = []
    unreadable: list[JobKey] = []
    for tenant, job_id, encoded in rows:
        try:
            states.append(STATE_CODEC.decode(encoded))
        except DECODING_ERRORS as error:
            damage.note("heads", (tenant, job_id), error)
            unreadable.append(JobKey(tenant, job_id))
    return states, unreadable


def subtract_counts(states: Iterable[JobState], counts: Counter[tuple[str, str, str]]) -> None:
    """Subtract job states from the counts, because their rows are removed."""
    rows = JobStateRows(counts)
    for state in states:
        rows._count_state_and_runs(state, -1)


def _status_of(state: JobState) -> str:
    return "" if state.is_blank else state.status._value_


def _is_idle(stored: StoredState) -> bool:
    """Return whether the columns of `_BUSY_COLUMNS` are `_IDLE_VALUES`."""
    state = stored.state
    return not (state.runs or state.wait_queue or state.unrecorded or stored.leases)


def _upcoming_values(state: JobState) -> RowValues:
    next_at = upcoming_at(state)
    return (None, False) if next_at is None else (to_micros(next_at), may_repeat(state))


def slot_number(rules: Rules) -> int:
    """Return the number of the slot that a run by these rules waits for."""
    if rules.task_type == "script":
        return SCRIPT_NUMBER
    return SLOT_NUMBERS[INLINE_SLOT if rules.task_type == "event" else rules.lane][0]


def memory_mb_of(rules: Rules) -> int:
    """Return the megabytes that a run by these rules reserves, or 0 if it is not a script."""
    if rules.task_type != "script":
        return 0
    return rules.memory_mb or DEFAULT_MEMORY_MB


def queue_rows(state: JobState) -> list[RowValues]:
    """Return the rows of the run queue for the QUEUED runs of this job state."""
    return [
        (
            slot_number(rules),
            state.tenant,
            int(rules.priority),
            to_micros(run.due_at),
            state.job_id,
            run.run_id,
            memory_mb_of(rules),
        )
        for run in state.runs
        if run.status is RunStatus.QUEUED
        for rules in [state.rules[run.definition]]
    ]


def lease_columns(lease: Lease) -> tuple[int, int, bool, bytes | None]:
    progress = None if lease.progress is None else msgspec.json.encode(lease.progress)
    return lease.token, to_micros(lease.until), lease.is_renewed, progress


def parse_lease(token: int, until: int, beaten: int, progress: bytes | None) -> Lease:
    """Return the lease of a row, as `lease_columns` wrote it."""
    reported = None if progress is None else _PROGRESS_DECODER.decode(progress)
    return Lease(token, from_micros(until), bool(beaten), reported)


def merge_leases(
    leases: Mapping[str, Lease], changes: Mapping[str, Lease | None]
) -> Mapping[str, Lease]:
    if not changes or not (leases or any(changes.values())):
        return leases
    merged_leases: dict[str, Lease] = dict(leases)
    for run_id, lease in changes.items():
        if lease is None:
            merged_leases.pop(run_id, None)
        else:
            merged_leases[run_id] = lease
    return merged_leases or NO_LEASES
