"""What a changed head means for SQLite's rows: the fewest that say it."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from punctual.domain.coming import comes_again, first_coming
from punctual.domain.draft import expires_at
from punctual.domain.head import Head
from punctual.domain.run import Lease, Status
from punctual.engine.ports import RunKey, Stored
from punctual.local.codec import Codec, micros
from punctual.local.counts import JOB, RUN

HEAD = Codec(Head)
NO_LEASES: Mapping[str, Lease] = {}

_INSERT = (
    "INSERT INTO heads (state, expires, leased, busy, queued, queued_priority, queued_due, head, "
    "coming, again, id, tenant, job_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE heads SET state = ?, expires = ?, leased = ?, busy = ?, queued = ?, "
    "queued_priority = ?, queued_due = ?, head = ? WHERE id = ?"
)
# A statement of its own: one that names a column writes its index again, changed or not.
_MOVE = _UPDATE.replace("head = ?", "head = ?, coming = ?, again = ?")
_LEASE = (
    "INSERT INTO leases (head, run_id, token, until, beaten) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT DO UPDATE SET token = excluded.token, until = excluded.until, "
    "beaten = excluded.beaten"
)
_NO_LEASE = "DELETE FROM leases WHERE head = ? AND run_id = ?"

Row = tuple[Any, ...]


class HeadRows:
    """Collects the writes of one flush, and what they change in the counts."""

    def __init__(
        self, counts: Counter[tuple[str, str, str]], recorded: Container[RunKey] = ()
    ) -> None:
        self._counts = counts
        self._recorded = recorded
        self._inserts: list[Row] = []
        self._updates: list[Row] = []
        self._moves: list[Row] = []
        self._leases: list[Row] = []
        self._dropped: list[Row] = []

    def add(self, number: int, old: Stored | None, new: Stored) -> None:
        """`number` is the row's own."""
        head = new.head
        if old is None:
            self._count(head, 1)
            columns = self._columns(head, len(new.leases))
            named = (number, head.tenant, head.job_id)
            self._inserts.append((*columns, *_coming(head), *named))
        elif head is not old.head:
            if old.head.state is not head.state or old.head.blank or head.blank:
                self._count_state(old.head, -1)
                self._count_state(head, 1)
            if old.head.runs or head.runs or old.head.line or head.line:
                self._count_runs(old.head, -1)
                self._count_runs(head, 1)
            columns, place = self._columns(head, len(new.leases)), _coming(head)
            if place == _coming(old.head):
                self._updates.append((*columns, number))
            else:
                self._moves.append((*columns, *place, number))
        before = NO_LEASES if old is None else old.leases
        if before is not new.leases:
            self._add_leases(number, before, new.leases)

    def statements(self) -> Iterator[tuple[str, Sequence[Row]]]:
        yield from (
            (statement, rows)
            for statement, rows in (
                (_INSERT, self._inserts),
                (_UPDATE, self._updates),
                (_MOVE, self._moves),
                (_LEASE, self._leases),
                (_NO_LEASE, self._dropped),
            )
            if rows
        )

    def _columns(self, head: Head, leased: int) -> Row:
        expires = None if head.ended_at is None else expires_at(head)
        queued, priority, due = _queued(head) if head.runs else (0, None, None)
        return (
            "" if head.blank else head.state.value,
            None if expires is None else micros(expires),
            leased,
            bool(head.runs or head.line or (head.ended and self._is_unrecorded(head))),
            queued,
            priority,
            due,
            HEAD.encode(head),
        )

    def _is_unrecorded(self, head: Head) -> bool:
        """Unless this very commit records all that ended: then nobody need look for it here."""
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

    def _count(self, head: Head, by: int) -> None:
        self._count_state(head, by)
        self._count_runs(head, by)

    def _count_state(self, head: Head, by: int) -> None:
        if not head.blank:
            self._counts[head.tenant, JOB, head.state.value] += by

    def _count_runs(self, head: Head, by: int) -> None:
        for run in head.runs:
            self._counts[head.tenant, RUN, run.status.value] += by
        if head.line:
            self._counts[head.tenant, RUN, Status.WAITING.value] += by * len(head.line)


def uncount(heads: Iterable[Head], counts: Counter[tuple[str, str, str]]) -> None:
    """Take heads out of the counts whose rows go."""
    rows = HeadRows(counts)
    for head in heads:
        rows._count(head, -1)


def _coming(head: Head) -> tuple[int | None, bool]:
    at = first_coming(head)
    return (None, False) if at is None else (micros(at), comes_again(head))


def _queued(head: Head) -> tuple[int, int | None, int | None]:
    """How many runs are queued, and the priority and time of the earliest.

    The earliest by time, not by priority: one of high priority that comes later must not hide it.
    """
    found = [
        (micros(run.due_at), int(head.rules[run.definition].priority))
        for run in head.runs
        if run.status is Status.QUEUED
    ]
    if not found:
        return 0, None, None
    due, priority = min(found)
    return len(found), priority, due


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
