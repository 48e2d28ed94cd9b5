"""A cache of the rows that hold each timer, from the puts and reads of this process."""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.timers.keys import is_shared
from punctual.aws.dynamodb.timers.rows import TimerRow
from punctual.engine.ports.timers import Timer

MAX_CACHED_TIMER_ROWS = 30_000  # pairs of timer and row in one generation


class DeletePlan(NamedTuple):
    """The steps of a delete: whole rows to delete, members to remove, and `unknown` timers.

    The cache has no row of the unknown timers.
    """

    whole_rows: Sequence[RowKey]
    members_by_row: Mapping[RowKey, set[Timer]]
    unknown: Sequence[Timer]


class _Generation:
    __slots__ = ("remaining", "rows", "size")

    def __init__(self) -> None:
        self.size = 0  # number of pairs of timer and row
        self.rows: dict[Timer, tuple[RowKey, ...]] = {}
        self.remaining: dict[RowKey, set[Timer]] = {}  # the members left in each shared row

    def add(self, timer: Timer, key: RowKey) -> None:
        rows = self.rows.get(timer, ())
        if key not in rows:
            self.rows[timer] = (*rows, key)
            self.size += 1


class TimerRowCache:
    """A cache of rows in two generations. When the younger is full, the older is dropped.

    A cached row may be out of date, but a row never gains members.
    """

    def __init__(self, max_pairs: int = MAX_CACHED_TIMER_ROWS) -> None:
        self._max_pairs = max_pairs
        self._young, self._old = _Generation(), _Generation()
        self._lock = Lock()

    def add(self, rows: Iterable[TimerRow]) -> None:
        """Add rows to the cache. A timer that is put twice may stand in two rows."""
        with self._lock:
            for key, timers, _ in rows:
                if self._young.size >= self._max_pairs:
                    self._young, self._old = _Generation(), self._young
                if is_shared(key.sk):
                    self._young.remaining[key] = set(timers)
                for timer in timers:
                    self._young.add(timer, key)

    def plan_delete(self, timers: Iterable[Timer]) -> DeletePlan:
        timers_by_row: dict[RowKey, set[Timer]] = {}
        unknown = []
        with self._lock:
            for timer in timers:
                rows = self._rows_of(timer)
                if not rows:
                    unknown.append(timer)
                for key in rows:
                    timers_by_row.setdefault(key, set()).add(timer)
            members_by_row = {
                key: row_timers
                for key, row_timers in timers_by_row.items()
                if self._may_keep_members(key, row_timers)
            }
        return DeletePlan(
            [key for key in timers_by_row if key not in members_by_row], members_by_row, unknown
        )

    def forget(self, timers: Iterable[Timer], plan: DeletePlan) -> None:
        with self._lock:
            for generation in (self._young, self._old):
                for timer in timers:
                    generation.size -= len(generation.rows.pop(timer, ()))
                for key in plan.whole_rows:
                    generation.remaining.pop(key, None)
                for key, deleted in plan.members_by_row.items():
                    if key in generation.remaining:
                        generation.remaining[key] -= deleted

    def _rows_of(self, timer: Timer) -> tuple[RowKey, ...]:
        young, old = self._young.rows.get(timer, ()), self._old.rows.get(timer, ())
        return (*young, *(key for key in old if key not in young)) if old else young

    def _may_keep_members(self, key: RowKey, deleted: set[Timer]) -> bool:
        """Return whether the row may keep members after `deleted` are removed."""
        if not is_shared(key.sk):
            return False
        remaining = self._young.remaining.get(key)
        if remaining is None:
            remaining = self._old.remaining.get(key)
        return remaining is None or not remaining <= deleted
