"""Counters of a tenant, in total and by minute, which the status function writes.

A stream may deliver each change again, in other batches, to other processes at the same time:

1. Each change belongs to the slice of ten seconds in which it was made.
2. A writer appends its changes to the log of the slice. The same changes make the same row.
3. It then marks the slice as unfolded. Later one process reads the log of the slice, each change
   once, writes the sums of the slice, and adds their difference to the totals.

So writers meet on no row. A crash before the mark repeats the batch. A change that comes days late
only marks its slice again. Readers add what is not folded yet.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import (
    Condition,
    DynamoClient,
    KeyRange,
    check_layout,
    chunked,
    key_of,
)
from punctual.aws.dynamodb.control.count_log import (
    COUNT_LOG_RETENTION,
    COUNT_SLICE,
    MAX_CHANGES_PER_COUNTED_ROW,
    CountChange,
    Counts,
    SliceCounts,
    counts_of_log,
    fold_claim_key,
    folded_attribute,
    folded_key,
    log_item,
    log_range,
    parse_folded,
    parse_slice,
    slice_start,
    sum_of_minutes,
    unfolded_key,
)
from punctual.aws.dynamodb.keys import LAST_CHAR, RowKey, join_parts, parse_time_key, time_key
from punctual.domain.errors import Unavailable
from punctual.engine.ports.clock import Clock

# Patterns of the partition keys of these rows, for policies.
TOTALS_KEY_PATTERN, FOLDED_KEY_PATTERN = "*#totals", "*#counted"
COUNT_LOG_KEY_PATTERN, UNFOLDED_KEY_PATTERN = "*#counted#log", "*#uncounted"

MINUTES_AHEAD = timedelta(minutes=5)  # a change counts in minutes up to so long after it
FOLDED_ROW_PAGE_SIZE = 1_000
# After its end a slice waits so long, for writes under way and for clocks that differ.
FOLD_DELAY = timedelta(seconds=20)
MARK_VALIDITY = timedelta(seconds=10)  # after the end of a slice, its mark may be folded already
FOLD_INTERVAL = timedelta(seconds=10)  # between two looks of a process for slices to fold
FOLD_CLAIM = timedelta(seconds=30)  # how long one process folds a large slice alone
MAX_FOLDED_SLICES = 4  # of one look
MAX_FOLD_LOOKS = 1_000  # of the daily walk for one tenant
MAX_UNFOLDED_SLICES = 12  # that a reader adds
SMALL_LOG_ROWS = 80  # A reader leaves a larger log of a slice out until it is folded
LOG_PAGE_SIZE = 1_000
MAX_FOLD_TRIES = 4  # after the last one, a later process folds the slice
_NON_COUNT_ATTRS = (keys.PK, keys.SK, keys.TTL, keys.LAYOUT_ATTR)
_NONCE_ATTR, _CLAIM_ATTR = keys.WRITE_IDS_ATTR, keys.UNTIL_ATTR


class MinuteCounts(NamedTuple):
    minute_at: datetime
    counts: Counts


class _Mark(NamedTuple):
    slice_text: str
    nonce: str


class Counters:
    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._marked: set[tuple[str, datetime]] = set()  # slices that this process has marked
        self._next_fold_at: dict[str, datetime] = {}  # by tenant

    def count(self, tenant: str, changes: Sequence[CountChange]) -> None:
        """Add each change once, however often it comes."""
        relevant = {change.change_id: change for change in changes if change.has_counts}
        by_slice = groupby(sorted(relevant.values(), key=_slice_of_change), key=_slice_of_change)
        items_by_slice = {
            slice_at: [
                log_item(tenant, slice_at, part)
                for part in chunked(slice_changes, MAX_CHANGES_PER_COUNTED_ROW)
            ]
            for slice_at, slice_changes in by_slice
        }
        if not items_by_slice:
            return
        self._dynamo.put(self._table, [item for items in items_by_slice.values() for item in items])
        self._mark(tenant, items_by_slice)
        self._fold_sometimes(tenant)

    def fold(self, tenant: str) -> None:
        """Fold all slices that are old enough."""
        now = self._clock()
        for _ in range(MAX_FOLD_LOOKS):
            if self._fold_marked(tenant, now) < MAX_FOLDED_SLICES:
                return

    def moved_counts(self, tenant: str, start: datetime, end: datetime) -> Iterator[Counts]:
        """Yield the `moved_counts` of the changes from `start` to `end`. The caller sums them."""
        low, high = (time_key(slice_start(at)) for at in (start, end))
        pk = folded_key(tenant, low).pk
        rows = self._dynamo.query(self._table, KeyRange(pk, low, high), FOLDED_ROW_PAGE_SIZE)
        for row in rows:
            yield parse_folded(row).moved
        for slice_text, counts in self._unfolded(tenant):
            if low <= slice_text <= high:
                yield counts.moved

    def totals(self, tenant: str) -> Counts:
        row = self._read(totals_key(tenant))
        counts = SliceCounts(_parse_counts(row) if row else {}).minus(SliceCounts())
        for _, unfolded in self._unfolded(tenant):
            counts = counts.plus(unfolded)
        return counts.totals

    def minutes(self, tenant: str, start: datetime, end: datetime) -> Sequence[MinuteCounts]:
        """Return the minutes with counts from `start` to `end`, oldest first."""
        first_slice = time_key(slice_start(start - MINUTES_AHEAD))
        key_range = KeyRange(folded_key(tenant, "").pk, low=first_slice)
        rows = self._dynamo.query(self._table, key_range, FOLDED_ROW_PAGE_SIZE)
        slices = [parse_folded(row) for row in rows]
        slices += [counts for _, counts in self._unfolded(tenant)]
        return [
            MinuteCounts(parse_time_key(minute_text), counts)
            for minute_text, counts in sorted(sum_of_minutes(slices).items())
            if time_key(start) <= minute_text <= time_key(end)
        ]

    # Marks

    def _mark(self, tenant: str, items_by_slice: dict[datetime, list[Item]]) -> None:
        """Mark the slices as unfolded, after the rows are written.

        A slice that this process has marked stays marked until some time after its end.
        """
        now = self._clock()
        self._marked = {
            (name, at) for name, at in self._marked if now < at + COUNT_SLICE + MARK_VALIDITY
        }
        unmarked = [at for at in items_by_slice if (tenant, at) not in self._marked]
        self._dynamo.put(
            self._table,
            [_mark_item(tenant, at, _nonce_of(items_by_slice[at])) for at in unmarked],
        )
        self._marked.update((tenant, at) for at in unmarked)

    def _marks(self, tenant: str, high: str, limit: int) -> list[_Mark]:
        """Return the oldest marked slices up to `high`."""
        pk = unfolded_key(tenant, "").pk
        items, _ = self._dynamo.query_page(self._table, KeyRange(pk, high=high), limit)
        return [_Mark(item[keys.SK]["S"], check_layout(item)[_NONCE_ATTR]["S"]) for item in items]

    # Folds

    def _fold_sometimes(self, tenant: str) -> None:
        """Fold old slices from time to time. A failure is left to the next process."""
        now = self._clock()
        if now < self._next_fold_at.get(tenant, now):
            return
        self._next_fold_at = {name: at for name, at in self._next_fold_at.items() if at > now} | {
            tenant: now + FOLD_INTERVAL
        }
        try:
            self._fold_marked(tenant, now)
        except Unavailable:
            return

    def _fold_marked(self, tenant: str, now: datetime) -> int:
        """Fold the oldest slices. Return how many were tried."""
        high = time_key(slice_start(now - FOLD_DELAY - COUNT_SLICE))
        marks = self._marks(tenant, high, MAX_FOLDED_SLICES)
        folded = [mark for mark in marks if self._fold_slice(tenant, mark, now)]
        return len(folded)

    def _fold_slice(self, tenant: str, mark: _Mark, now: datetime) -> bool:
        """Add what the log of a slice has more than is folded. Return whether all is folded.

        The folded counts are read before the log. A transaction that met another one reads again.
        """
        mark_key = unfolded_key(tenant, mark.slice_text)
        for attempt in range(MAX_FOLD_TRIES):
            item = self._read(folded_key(tenant, mark.slice_text))
            age = now - parse_slice(mark.slice_text)
            if item and age > COUNT_LOG_RETENTION - timedelta(days=1):
                break  # some rows of the log may have expired, so their sum may be too low
            rows = self._small_log(tenant, mark.slice_text)
            if rows is None:
                if not attempt and not self._claim(tenant, now):
                    return False
                key_range = log_range(tenant, mark.slice_text)
                rows = list(self._dynamo.query(self._table, key_range, LOG_PAGE_SIZE))
            folded, counts = parse_folded(item), counts_of_log(rows)
            missing = counts.minus(folded)
            if not missing:
                break
            writes = self._fold_writes(tenant, mark.slice_text, item, counts, missing.totals)
            if self._dynamo.transact(writes):
                break
            self._dynamo.wait(attempt, f"{tenant} {mark.slice_text}")
        else:
            return False
        own = Condition(
            "#nonce = :nonce", "", {"#nonce": _NONCE_ATTR}, {":nonce": {"S": mark.nonce}}
        )
        return self._dynamo.delete_if(self._table, mark_key, own) is None

    def _claim(self, tenant: str, now: datetime) -> bool:
        """Take large slices for a while, so that no other process reads their logs as well."""
        condition = Condition(
            "attribute_not_exists(#claim) OR #claim <= :now",
            names={"#claim": _CLAIM_ATTR},
            values={":now": {"S": time_key(now)}},
        )
        item = {
            **fold_claim_key(tenant).item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            _CLAIM_ATTR: {"S": time_key(now + FOLD_CLAIM)},
            keys.TTL: to_attribute(keys.to_ttl(now + COUNT_LOG_RETENTION)),
        }
        return self._dynamo.put_if(self._table, item, condition) is None

    def _small_log(self, tenant: str, slice_text: str) -> list[Item] | None:
        """Return the log of a slice, or None if it is large."""
        key_range = log_range(tenant, slice_text)
        items, has_more = self._dynamo.query_page(self._table, key_range, SMALL_LOG_ROWS)
        return None if has_more else items

    def _fold_writes(
        self, tenant: str, slice_text: str, item: Item, counts: SliceCounts, missing: Counts
    ) -> list[dict[str, Any]]:
        """Return the writes of a slice and its missing totals, if no other has folded since."""
        version = int(item[keys.VERSION_ATTR]["N"]) if item else 0
        expires_at = parse_slice(slice_text) + COUNT_LOG_RETENTION
        row = {
            **folded_key(tenant, slice_text).item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.VERSION_ATTR: to_attribute(version + 1),
            keys.DATA_ATTR: folded_attribute(counts),
            keys.TTL: to_attribute(keys.to_ttl(expires_at)),
        }
        condition = Condition("attribute_not_exists(#version)", "", {"#version": keys.VERSION_ATTR})
        if version:
            values = {":version": to_attribute(version)}
            condition = Condition("#version = :version", "", condition.names, values)
        writes = [{"Put": {"TableName": self._table, "Item": row, **condition.arguments()}}]
        return [*writes, self._add_write(totals_key(tenant), missing)] if missing else writes

    def _add_write(self, row_key: RowKey, counts: Counts) -> dict[str, Any]:
        expression = "ADD " + ", ".join(f"#a{i} :a{i}" for i in range(len(counts)))
        names = {f"#a{i}": name for i, name in enumerate(counts)}
        values = {f":a{i}": to_attribute(count) for i, count in enumerate(counts.values())}
        return {
            "Update": {
                "TableName": self._table,
                "Key": row_key.item(),
                "UpdateExpression": f"{expression} SET #f = :f",
                "ExpressionAttributeNames": {**names, "#f": keys.LAYOUT_ATTR},
                "ExpressionAttributeValues": {**values, ":f": to_attribute(keys.ROW_LAYOUT)},
            }
        }

    # Reads

    def _unfolded(self, tenant: str) -> list[tuple[str, SliceCounts]]:
        """Return what small logs have more than is folded, by slice.

        A large log belongs to a busy tenant, which folds it within a minute.
        """
        unfolded = []
        for mark in self._marks(tenant, LAST_CHAR, MAX_UNFOLDED_SLICES):
            folded = parse_folded(self._read(folded_key(tenant, mark.slice_text)))
            rows = self._small_log(tenant, mark.slice_text)
            if rows is not None:
                unfolded.append((mark.slice_text, counts_of_log(rows).minus(folded)))
        return unfolded

    def _read(self, row_key: RowKey) -> Item:
        return self._dynamo.read(self._table, [row_key]).get(row_key, {})


def _slice_of_change(change: CountChange) -> datetime:
    return slice_start(change.changed_at)


def _nonce_of(items: Sequence[Item]) -> str:
    """Return the nonce of a mark, which names the rows after which it is written."""
    names = "\0".join(key_of(item).sk for item in items)
    return blake2b(names.encode(), digest_size=8).hexdigest()


def _mark_item(tenant: str, slice_at: datetime, nonce: str) -> Item:
    return {
        **unfolded_key(tenant, time_key(slice_at)).item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        _NONCE_ATTR: {"S": nonce},
        keys.TTL: to_attribute(keys.to_ttl(slice_at + COUNT_LOG_RETENTION)),
    }


def _parse_counts(row: Item) -> dict[str, int]:
    return {
        name: int(value["N"])
        for name, value in check_layout(row).items()
        if "N" in value and name not in _NON_COUNT_ATTRS
    }


def totals_key(tenant: str) -> RowKey:
    """Return the key of a tenant's totals.

    >>> totals_key("acme")
    RowKey(pk='acme#totals', sk='-')
    """
    return RowKey(join_parts(tenant, "totals"), "-")
