"""Converts a changed job state to the fewest changes of rows in SQLite."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from punctual.domain.draft import expires_at
from punctual.domain.job_state import JobState
from punctual.domain.run import Lease, RunStatus
from punctual.domain.schedules.upcoming import comes_again, first_coming
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.rows import Key, RunKey
from punctual.node.files.damage import DECODING, Damage
from punctual.node.run_queue.slots import slot_number
from punctual.node.sqlite.codec import Packed, micros
from punctual.node.sqlite.counts import JOB, RUN

HEAD = Packed(JobState)
NO_LEASES: Mapping[str, Lease] = {}

_BUSY = ("leased", "busy")
_CALM = (0, False)
_OVER = ("state", "expires")
_COMING = ("coming", "again")
_NAMES = ("head", *_OVER, *_BUSY, *_COMING, "id", "tenant", "job_id")
INSERT = f"INSERT INTO heads ({', '.join(_NAMES)}) VALUES ({', '.join('?' * len(_NAMES))})"
_LEASE = (
    "INSERT INTO leases (head, run_id, token, until, beaten) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET token = excluded.token, until = excluded.until, "
    "beaten = excluded.beaten"
)
_NO_LEASE = "DELETE FROM leases WHERE head = ? AND run_id = ?"
QUEUE = (
    "INSERT OR IGNORE INTO queue (slot, tenant, priority, due, job_id, run_id) "
    "VALUES (?, ?, ?, ?, ?, ?)"
)
_NO_QUEUE = (
    "DELETE FROM queue WHERE slot = ? AND tenant = ? AND priority = ? AND due = ? "
    "AND job_id = ? AND run_id = ?"
)

Row = tuple[Any, ...]


@cache
def _update(over: bool, busy: bool, coming: bool, none_comes: bool) -> str:
    """Return the UPDATE for the columns that changed.

    An UPDATE rewrites the indexes of every column that it names, changed or not.

    If nothing comes next, the statement has the constant NULL, so SQLite skips the check for an
    index entry.
    """
    names = ["head", *(_OVER * over), *(_BUSY * busy), *(_COMING * coming)]
    sets = [f"{name} = ?" for name in names]
    if none_comes:
        sets += ["coming = NULL", "again = 0"]
    return f"UPDATE heads SET {', '.join(sets)} WHERE id = ?"


class JobStateRows:
    """Collects the writes of one flush, and their changes of the counts."""

    def __init__(
        self, counts: Counter[tuple[str, str, str]], recorded: Container[RunKey] = ()
    ) -> None:
        self._counts = counts
        self._recorded = recorded
        self._inserts: list[Row] = []
        self._updates: dict[tuple[bool, bool, bool, bool], list[Row]] = {}
        self._leases: list[Row] = []
        self._dropped: list[Row] = []
        self._queued: list[Row] = []
        self._unqueued: list[Row] = []
        self._moves: Counter[tuple[str, str, str]] = Counter()
        self._ended_at: datetime | None = None
        self._expires: int | None = None

    def add(self, number: int, old: StoredState | None, new: StoredState) -> None:
        """Add the writes for a changed job state. `number` is the number of its row."""
        head = new.head
        if old is None:
            self._count(head, 1)
            columns = (*self._over(head), *self._busy(new), *_coming(head))
            self._inserts.append((HEAD.encode(head), *columns, number, head.tenant, head.job_id))
            self._queued += queued_in(head)
        elif head is not old.head:
            self._change(number, old, new)
        before = NO_LEASES if old is None else old.leases
        if before is not new.leases:
            self._add_leases(number, before, new.leases)

    def _change(self, number: int, old: StoredState, new: StoredState) -> None:
        was, head = old.head, new.head
        alike = was.state is head.state and not was.blank and not head.blank
        if not alike:
            self._moves[was.tenant, _state(was), _state(head)] += 1
        calm = _is_calm(old) and _is_calm(new)
        if not calm:
            self._count_runs(was, -1)
            self._count_runs(head, 1)
            self._queue(queued_in(was), queued_in(head))
        over = () if alike and was.ended_at == head.ended_at else self._over(head)
        busy = () if calm else self._busy(new)
        at = first_coming(head)
        stays = at == first_coming(was) and (at is None or comes_again(head) == comes_again(was))
        coming = () if stays or at is None else (micros(at), comes_again(head))
        kind = bool(over), bool(busy), bool(coming), not stays and at is None
        row = (HEAD.encode(head), *over, *busy, *coming, number)
        self._updates.setdefault(kind, []).append(row)

    def _queue(self, old: Sequence[Row], new: Sequence[Row]) -> None:
        """Change the rows of the run queue. A job has few or none."""
        if old != new:
            self._unqueued += [row for row in old if row not in new]
            self._queued += [row for row in new if row not in old]

    def statements(self) -> Iterator[tuple[str, Sequence[Row]]]:
        for (tenant, was, state), heads in self._moves.items():
            if was:
                self._counts[tenant, JOB, was] -= heads
            if state:
                self._counts[tenant, JOB, state] += heads
        self._moves.clear()
        if self._inserts:
            yield INSERT, self._inserts
        for kind, rows in self._updates.items():
            yield _update(*kind), rows
        if self._leases:
            yield _LEASE, self._leases
        if self._dropped:
            yield _NO_LEASE, self._dropped
        if self._unqueued:
            yield _NO_QUEUE, self._unqueued
        if self._queued:
            yield QUEUE, self._queued

    def _over(self, head: JobState) -> Row:
        at = head.ended_at
        if at is not self._ended_at:  # jobs of one batch share it
            expires = expires_at(head)
            self._expires = None if expires is None else micros(expires)
            self._ended_at = at
        return _state(head), self._expires

    def _busy(self, new: StoredState) -> Row:
        """Return the number of leases, and whether the job has live, waiting or unrecorded runs."""
        if _is_calm(new):
            return _CALM
        head = new.head
        busy = bool(head.runs or head.line or (head.ended and self._is_unrecorded(head)))
        return len(new.leases), busy

    def _is_unrecorded(self, head: JobState) -> bool:
        """Return whether an ended run is still missing from the history.

        Runs that this commit records are not missing.
        """
        tenant, job_id = head.tenant, head.job_id
        return any(RunKey(tenant, job_id, run.run_id) not in self._recorded for run in head.ended)

    def _add_leases(
        self, number: int, before: Mapping[str, Lease], after: Mapping[str, Lease]
    ) -> None:
        for run_id, lease in after.items():
            if before.get(run_id) != lease:
                self._leases.append(
                    (number, run_id, lease.token, micros(lease.until), lease.beaten)
                )
        for run_id in before:
            if run_id not in after:
                self._dropped.append((number, run_id))

    def _count(self, head: JobState, by: int) -> None:
        self._count_state(head, by)
        if head.runs or head.line:
            self._count_runs(head, by)

    def _count_state(self, head: JobState, by: int) -> None:
        if not head.blank:
            self._counts[head.tenant, JOB, head.state._value_] += by

    def _count_runs(self, head: JobState, by: int) -> None:
        for run in head.runs:
            self._counts[head.tenant, RUN, run.status._value_] += by
        if head.line:
            self._counts[head.tenant, RUN, RunStatus.WAITING.value] += by * len(head.line)


def read_heads(
    damage: Damage, rows: Iterable[tuple[str, str, bytes]]
) -> tuple[list[JobState], list[Key]]:
    """Return the job states of rows (tenant, job, state), and the jobs with an unreadable state."""
    heads: list[JobState] = []
    unread: list[Key] = []
    for tenant, job_id, row in rows:
        try:
            heads.append(HEAD.decode(row))
        except DECODING as error:
            damage.note("heads", (tenant, job_id), error)
            unread.append(Key(tenant, job_id))
    return heads, unread


def uncount(heads: Iterable[JobState], counts: Counter[tuple[str, str, str]]) -> None:
    """Subtract job states from the counts, because their rows are removed."""
    rows = JobStateRows(counts)
    for head in heads:
        rows._count(head, -1)


def _state(head: JobState) -> str:
    return "" if head.blank else head.state._value_


def _is_calm(stored: StoredState) -> bool:
    """Return whether the columns of `_BUSY` are `_CALM`."""
    head = stored.head
    return not (head.runs or head.line or head.ended or stored.leases)


def _coming(head: JobState) -> Row:
    at = first_coming(head)
    return (None, False) if at is None else (micros(at), comes_again(head))


def queued_in(head: JobState) -> list[Row]:
    """Return the rows of the run queue for the QUEUED runs of this job state."""
    return [
        (
            slot_number(rules),
            head.tenant,
            int(rules.priority),
            micros(run.due_at),
            head.job_id,
            run.run_id,
        )
        for run in head.runs
        if run.status is RunStatus.QUEUED
        for rules in [head.rules[run.definition]]
    ]


def merged(leases: Mapping[str, Lease], changes: Mapping[str, Lease | None]) -> Mapping[str, Lease]:
    if not changes or not (leases or any(changes.values())):
        return leases
    new: dict[str, Lease] = dict(leases)
    for run_id, lease in changes.items():
        if lease is None:
            new.pop(run_id, None)
        else:
            new[run_id] = lease
    return new or NO_LEASES
