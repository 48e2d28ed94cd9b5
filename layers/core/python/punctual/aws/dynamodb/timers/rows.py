"""Conversion between timers and their rows, and a cache of the rows that hold each timer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from threading import Lock
from typing import Any, NamedTuple

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import check_layout, key_of
from punctual.aws.dynamodb.keys import LAYOUT_ATTR, PK, SHARED_TIMERS_LAYOUT, SK, RowKey
from punctual.aws.dynamodb.timers import keys
from punctual.aws.dynamodb.timers.keys import MEMBERS_ATTR, is_shared
from punctual.engine.ports.timers import Timer

# Bytes as DynamoDB counts them, so that each write of a row costs one write unit.
MAX_SHARED_ROW_BYTES = 1_000
# 2: the layout number.
_ATTR_NAME_BYTES = len(PK) + len(SK) + len(LAYOUT_ATTR) + 2 + len(MEMBERS_ATTR)
_NO_MEMBERS: Mapping[str, Any] = {"SS": ()}
_timer_order = attrgetter("sort_key")
MAX_CACHED_TIMER_ROWS = 30_000  # pairs of timer and row in one generation


class TimerRow(NamedTuple):
    """A row with its timers. `members` is the encoding of the timers in a shared row."""

    key: RowKey
    timers: Sequence[Timer]
    members: Sequence[str] = ()

    def item(self) -> Item:
        if not self.members:
            return dict(self.key.item())
        layout = {"N": str(SHARED_TIMERS_LAYOUT)}
        return {**self.key.item(), LAYOUT_ATTR: layout, MEMBERS_ATTR: {"SS": list(self.members)}}


def build_rows(timers: Iterable[Timer], write_id: str) -> Iterator[TimerRow]:
    """Yield the fewest rows that hold the timers, sorted by job within one time.

    Timers of one row are due at the same time, and are mostly deleted together.
    """
    groups: dict[tuple[datetime, int, datetime], dict[Timer, None]] = {}
    for timer in timers:
        groups.setdefault(timer[:3], {})[timer] = None
    for group in groups.values():
        yield from _group_rows(sorted(group, key=_timer_order), write_id)


def _group_rows(group: Sequence[Timer], write_id: str) -> Iterator[TimerRow]:
    members = [member_text(timer) for timer in group]
    start = 0
    while start < len(group):
        single_key = keys.timer_key(*group[start])
        key = keys.shared_row_key(single_key, write_id)
        end, size = start, _ATTR_NAME_BYTES + _utf8_size(key.pk) + _utf8_size(key.sk)
        while (
            end < len(group) and (size := size + _utf8_size(members[end])) <= MAX_SHARED_ROW_BYTES
        ):
            end += 1
        if end - start > 1:
            yield TimerRow(key, group[start:end], members[start:end])
            start = end
        else:
            yield TimerRow(single_key, group[start : start + 1])
            start += 1


def _utf8_size(text: str) -> int:
    return len(text.encode())


def member_text(timer: Timer) -> str:
    return keys.member_text(timer.tenant, timer.job_id, timer.version)


def read_members(row: Mapping[str, Any]) -> Sequence[str]:
    """Return the members of a shared row. An operator may have removed the attribute by hand."""
    members: Sequence[str] = check_layout(row, SHARED_TIMERS_LAYOUT).get(MEMBERS_ATTR, _NO_MEMBERS)[
        "SS"
    ]
    return members


def is_later_layout(row: Mapping[str, Any]) -> bool:
    """Return whether only a later version can read the row."""
    return LAYOUT_ATTR in row and int(row[LAYOUT_ATTR]["N"]) > SHARED_TIMERS_LAYOUT


def parse_rows(rows: Iterable[Mapping[str, Any]]) -> list[TimerRow]:
    return [parse_row(row) for row in rows if not is_later_layout(row)]


def parse_row(row: Mapping[str, Any]) -> TimerRow:
    key = key_of(row)
    if LAYOUT_ATTR not in row:  # a single timer: the key holds all fields
        return TimerRow(key, (Timer(*keys.parse_timer_key(key)),))
    members = read_members(row)
    bucket, shard = keys.parse_partition(key.pk)
    timer_at = keys.time_of(key.sk)
    timers = [Timer(bucket, shard, timer_at, *keys.parse_member(text)) for text in members]
    return TimerRow(key, timers, members)


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
    """A cache of the rows that this process put or read, in two generations.

    When the younger is full, the older is dropped.

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
