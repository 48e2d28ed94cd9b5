"""The change feed on AWS: rows of changes, one for each batch of the stream and tenant.

A row's key begins with the time of its writing. So a reader goes on from a time. Clocks differ, and
a write takes time, so a row may become visible after rows with later times:

1. A writer takes the time just before it writes. If the write takes long, it writes again.
2. Rows of the last ten seconds are unsettled: an earlier row may still appear among them.
3. A cursor names the time up to which all is settled and read, and the unsettled rows that were
   read. The next read begins at that time, and leaves out these rows.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import msgspec
from msgspec import Struct

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, check_layout, split_by_size
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition, list_partitions, list_slot_of
from punctual.domain.errors import Unavailable
from punctual.domain.operations.operation import Operation
from punctual.domain.timestamps import Moment
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.change_feed import (
    CHANGE_RETENTION,
    MAX_CHANGES_PER_ANSWER,
    Change,
    ChangeFilters,
    ChangeKind,
    ChangePage,
    JobSummary,
)
from punctual.engine.ports.rows import RunRow

UNSETTLED = timedelta(seconds=10)
MAX_WRITE_TIME = timedelta(seconds=4)  # from the time of a row until it is written
MAX_WRITES_OF_A_ROW = 4
MAX_REMEMBERED_ROWS = 64  # unsettled rows that a cursor names
MAX_PAGES_PER_READ = 4  # of 1 MB, over all slots
MAX_FEED_ROW_BYTES = 200_000  # of changes in one row, before compression
FEED_PAGE_SIZE = 1_000  # rows in a query page, which has at most 1 MB
ACTIVE_POLL_SECONDS, IDLE_POLL_SECONDS = 3, 30
ACTIVE_TIME = timedelta(seconds=30)  # after a change, clients ask often
# A row stays longer than a cursor is good for.
FEED_ROW_RETENTION = CHANGE_RETENTION + timedelta(hours=1)
_ROW_NAME_BYTES = 8
_NAMES_PER_PART = 18  # of a cursor, so that a part stays below 200 characters

HasLiveRuns = Callable[[str], bool]


class FeedEntry(Struct, frozen=True, array_like=True, omit_defaults=True):
    """A change as a row holds it. Without content, the job or run is gone."""

    kind: str
    job_id: str
    run_id: str
    version: int
    at: Moment
    job: JobSummary | None = None
    run: RunRow | None = None
    operation: Operation | None = None


class _Row(NamedTuple):
    sort_key: str
    data: bytes

    @property
    def name(self) -> bytes:
        return blake2b(self.sort_key.encode(), digest_size=_ROW_NAME_BYTES).digest()


class _Position(NamedTuple):
    settled: str  # all rows up to this sort key are settled and read
    read: frozenset[bytes]  # the names of the unsettled rows that were read


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[FeedEntry]).decode


class DynamoChangeFeed:
    reads_per_answer = 1  # so an answer reads at most 4 MB

    def __init__(
        self,
        dynamo: DynamoClient,
        table: str,
        slots: int,
        clock: Clock,
        has_live_runs: HasLiveRuns = lambda _tenant: True,
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._slots = slots
        self._clock = clock
        self._has_live_runs = has_live_runs

    def append(self, tenant: str, batch_id: str, entries: Sequence[FeedEntry]) -> None:
        """Write the changes of a batch. A repeated call adds them once more."""
        slot = list_slot_of(batch_id, self._slots)
        partition = list_partition(tenant, ListKind.FEED, slot)
        parts = split_by_size(entries, lambda entry: len(_encode(entry)), MAX_FEED_ROW_BYTES)
        for number, part in enumerate(parts):
            data = zlib.compress(_encode(part))
            self._write(partition, f"{batch_id}#{number:03d}", data)

    def _write(self, partition: str, name: str, data: bytes) -> None:
        for _ in range(MAX_WRITES_OF_A_ROW):
            at = self._clock()
            row: Item = {
                **keys.RowKey(partition, f"{keys.time_key(at)}#{name}").item(),
                **keys.ROW_LAYOUT_ATTRIBUTE,
                keys.DATA_ATTR: to_attribute(data),
                keys.TTL: to_attribute(keys.to_ttl(at + FEED_ROW_RETENTION)),
            }
            self._dynamo.put(self._table, [row])
            if self._clock() - at <= MAX_WRITE_TIME:
                return
        raise Unavailable("Writes to the change feed take too long.")

    def now(self, _tenant: str, now: datetime) -> tuple[str, ...]:
        return _to_cursor(_Position(keys.time_key(now - UNSETTLED), frozenset()))

    def read(
        self, tenant: str, cursor: tuple[str, ...], filters: ChangeFilters, now: datetime
    ) -> ChangePage | None:
        position = _parse_cursor(cursor)
        if position is None or not _is_known(position, now):
            return None
        rows, complete_until = self._rows_after(tenant, position.settled)
        unsettled = keys.time_key(now - UNSETTLED)
        changes: list[Change] = []
        kept = {row.name for row in rows if row.name in position.read}
        settled, is_full = position.settled, False
        for row in rows:
            is_full = len(changes) >= MAX_CHANGES_PER_ANSWER
            if is_full or (complete_until is not None and row.sort_key > complete_until):
                break
            is_unsettled = row.sort_key > unsettled
            if row.name not in position.read:
                if is_unsettled and len(kept) >= MAX_REMEMBERED_ROWS:
                    break  # a busy feed is read when it is settled, so nothing comes twice
                changes += _changes_of(row, filters)
            if is_unsettled:
                kept.add(row.name)
            else:
                settled = row.sort_key
                kept.discard(row.name)
        else:
            if complete_until is None:
                settled = max(settled, unsettled)
        has_more = is_full or (complete_until is not None and complete_until <= unsettled)
        return ChangePage(changes, _to_cursor(_Position(settled, frozenset(kept))), has_more)

    def _rows_after(self, tenant: str, settled: str) -> tuple[list[_Row], str | None]:
        """Return the rows after `settled` in order, and the key up to which they are complete."""
        partitions = list_partitions(tenant, ListKind.FEED, self._slots)
        pages = max(1, MAX_PAGES_PER_READ // self._slots)
        parts = list(self._dynamo.pool.map(partial(self._read_slot, settled, pages), partitions))
        rows = sorted(row for part, _ in parts for row in part if row.sort_key > settled)
        ends = [part[-1].sort_key for part, has_more in parts if has_more and part]
        return rows, min(ends, default=None)

    def _read_slot(self, settled: str, pages: int, partition: str) -> tuple[list[_Row], bool]:
        """Return the rows from `settled` on, and whether there are more."""
        rows: list[_Row] = []
        is_cut = False
        pages_of_slot = self._dynamo.pages(
            self._table, KeyRange(partition, low=settled), FEED_PAGE_SIZE
        )
        for items, has_more in islice(pages_of_slot, pages):
            rows += [
                _Row(item[keys.SK]["S"], check_layout(item)[keys.DATA_ATTR]["B"]) for item in items
            ]
            is_cut = has_more
        return rows, is_cut

    def seconds_to_next_read(self, tenant: str, page: ChangePage, now: datetime) -> int:
        if page.has_more:
            return 0
        is_active = any(change.at > now - ACTIVE_TIME for change in page.changes)
        position = _parse_cursor(page.cursor)
        is_active = is_active or (position is not None and bool(position.read))
        if is_active or self._has_live_runs(tenant):
            return ACTIVE_POLL_SECONDS
        return IDLE_POLL_SECONDS


def _changes_of(row: _Row, filters: ChangeFilters) -> Iterator[Change]:
    for entry in _decode(zlib.decompress(row.data)):
        kind = ChangeKind(entry.kind)
        if filters.matches(kind, entry.job_id, entry.run_id):
            yield Change(
                kind,
                entry.job_id,
                entry.run_id,
                entry.version,
                entry.at,
                job=entry.job,
                run=entry.run,
                operation=entry.operation,
            )


def _is_known(position: _Position, now: datetime) -> bool:
    """Return whether the rows after this position still exist."""
    at = keys.time_key(now - CHANGE_RETENTION - UNSETTLED)
    return at <= position.settled <= keys.time_key(now + UNSETTLED)


def _to_cursor(position: _Position) -> tuple[str, ...]:
    names = sorted(position.read)
    parts = [
        urlsafe_b64encode(b"".join(names[start : start + _NAMES_PER_PART])).decode()
        for start in range(0, len(names), _NAMES_PER_PART)
    ]
    return (position.settled, *parts)


def _parse_cursor(cursor: tuple[str, ...]) -> _Position | None:
    try:
        data = b"".join(urlsafe_b64decode(part.encode("ascii")) for part in cursor[1:])
        keys.parse_time_key(cursor[0].partition("#")[0])
    except ValueError:
        return None
    names = range(0, len(data), _ROW_NAME_BYTES)
    return _Position(cursor[0], frozenset(data[at : at + _ROW_NAME_BYTES] for at in names))
