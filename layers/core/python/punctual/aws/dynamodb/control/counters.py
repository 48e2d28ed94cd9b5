"""Counters of a tenant, in total and by minute, which the status function writes.

A stream delivers the changes of one job in order, and the changes of two jobs in any order. It may
deliver each change again. So the position of a change does not show whether it is counted. Instead:

1. Each change belongs to the slice of ten seconds in which it was made.
2. The writer reads which changes of that slice are counted, and drops these.
3. One transaction adds the others to the counts, and appends a row that names them.

A crash before the transaction changes nothing. After it, the row names the counted changes.

The rows of a slice are numbered without a gap. A writer numbers its new row by the number of rows
that it read. The transaction fails if that row exists. So of two transactions after the same read
only one succeeds, and the other writer reads again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout
from punctual.aws.dynamodb.keys import (
    LAST_CHAR,
    RowKey,
    join_parts,
    number_key,
    parse_time_key,
    time_key,
)
from punctual.domain.errors import Unavailable
from punctual.domain.utc import EPOCH

# Rows of a tenant's counts; a reader that loses a transaction on one uses the next.
COUNTER_PARTITIONS = 4
# Patterns of the partition keys of these rows, for policies.
TOTALS_KEY_PATTERNS = ("*#totals",)
COUNTED_KEY_PATTERNS = ("*#counted",)


MINUTE_COUNTS_RETENTION = timedelta(hours=3)
# Longer than a day, for which a stream keeps and repeats a change.
COUNTED_CHANGES_RETENTION = timedelta(hours=30)
COUNT_SLICE = timedelta(seconds=10)
# Most changes are made around a full minute, so one slice holds them all.
COUNT_SLICE_OFFSET = timedelta(seconds=5)
MINUTE_ROW_PAGE_SIZE = 120  # rows in a query page
COUNTED_ROW_PAGE_SIZE = 1_000  # `counted_key` rows in a query page

MAX_CHANGES_PER_COUNTED_ROW = 200  # changes in one row, one batch of Lambda; under two kilobytes
MAX_MINUTES_PER_TRANSACTION = 90  # a transaction of DynamoDB writes at most 100 rows
_CHANGE_ID_BYTES = 8  # bytes that name a change
_MAX_COUNT_TRIES = 6  # after the last try, Lambda delivers the batch again
_NON_COUNT_ATTRS = (keys.PK, keys.SK, keys.TTL, keys.LAYOUT_ATTR)

Counts = Mapping[str, int]


class CountChange(NamedTuple):
    """What one change of a job adds to the totals and to the counts of minutes."""

    change_id: bytes
    changed_at: datetime  # as the stream says, so each copy has the same time
    totals: Counts
    minutes: Mapping[datetime, Counts] = {}
    moved_counts: Mapping[
        str, int
    ] = {}  # changes of the counts of job states, positive or negative

    @property
    def has_counts(self) -> bool:
        all_counts = (self.totals, *self.minutes.values())
        return any(number for counts in all_counts for number in counts.values())


class MinuteCounts(NamedTuple):
    minute_at: datetime
    counts: Counts


def change_id_of(position: str, job_id: str) -> bytes:
    """Return the id of the change at this position of the stream."""
    return blake2b(f"{position}\0{job_id}".encode(), digest_size=_CHANGE_ID_BYTES).digest()


class Counters:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def count(self, tenant: str, changes: Sequence[CountChange]) -> None:
        """Add each change that is not counted yet."""
        relevant_changes = sorted(
            (change for change in changes if change.has_counts), key=_slice_of_change
        )
        for slice_at, slice_changes in groupby(relevant_changes, key=_slice_of_change):
            for part in _split_changes(list(slice_changes)):
                self._count_slice(tenant, slice_at, part)

    def moved_counts(self, tenant: str, start: datetime, end: datetime) -> Iterator[Counts]:
        """Yield the `moved_counts` of the changes from `start` to `end`. The caller sums them."""
        slices = (time_key(_slice_start(start)), time_key(_slice_start(end)))
        key_range = KeyRange(*counted_bounds(tenant, *slices))
        return (
            _parse_counts(row)
            for row in self._dynamo.query(self._table, key_range, COUNTED_ROW_PAGE_SIZE)
        )

    def totals(self, tenant: str) -> Counts:
        row_keys = [totals_key(tenant, part) for part in range(COUNTER_PARTITIONS)]
        rows = self._dynamo.read(self._table, row_keys)
        return _sum_counts(_parse_counts(row) for row in rows.values())

    def minutes(self, tenant: str, start: datetime, end: datetime) -> Sequence[MinuteCounts]:
        """Return the minutes with counts from `start` to `end`, oldest first."""
        bounds = minutes_bounds(tenant, time_key(start), time_key(end))
        rows = self._dynamo.query(self._table, KeyRange(*bounds), MINUTE_ROW_PAGE_SIZE)
        return [
            MinuteCounts(
                parse_time_key(minute_text), _sum_counts(_parse_counts(row) for row in minute_rows)
            )
            for minute_text, minute_rows in groupby(
                rows, key=lambda row: parse_minute(row[keys.SK]["S"])
            )
        ]

    def _count_slice(self, tenant: str, slice_at: datetime, changes: Sequence[CountChange]) -> None:
        """Count the changes of one slice.

        A transaction fails if it meets another one. The next try reads again and adds to other
        rows.
        """
        for attempt in range(_MAX_COUNT_TRIES):
            rows = self._counted_rows(tenant, slice_at)
            counted = {
                change_id for row in rows for change_id in _parse_change_ids(check_layout(row))
            }
            uncounted = [change for change in changes if change.change_id not in counted]
            if not uncounted:
                return
            row_write = self._counted_row_write(tenant, slice_at, len(rows), uncounted)
            count_writes = self._count_writes(tenant, uncounted, attempt % COUNTER_PARTITIONS)
            if self._dynamo.transact([row_write, *count_writes]):
                return
            self._dynamo.wait(attempt, f"{tenant} {slice_at}")
        raise Unavailable(f"The counts of {tenant} change too often.")

    def _counted_rows(self, tenant: str, slice_at: datetime) -> list[Item]:
        """Return the rows that name the counted changes of this slice.

        An unavailable store is tried again for a while. Lambda delivers a batch only a limited
        number of times, and immediate failures would use them up at once.
        """
        slice_text = time_key(slice_at)
        key_range = KeyRange(*counted_bounds(tenant, slice_text, slice_text))
        for attempt in range(_MAX_COUNT_TRIES):
            try:
                return list(self._dynamo.query(self._table, key_range, COUNTED_ROW_PAGE_SIZE))
            except Unavailable:
                if attempt == _MAX_COUNT_TRIES - 1:
                    raise
                self._dynamo.wait(attempt, f"{tenant} {slice_at}")
        raise AssertionError("the last attempt returns or raises")

    def _counted_row_write(
        self, tenant: str, slice_at: datetime, row_number: int, changes: Sequence[CountChange]
    ) -> dict[str, Any]:
        """Return the write that appends the row if the row does not exist yet."""
        item = {
            **counted_key(tenant, time_key(slice_at), row_number).item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.TTL: to_attribute(keys.to_ttl(slice_at + COUNTED_CHANGES_RETENTION)),
            keys.DATA_ATTR: to_attribute(b"".join(sorted(change.change_id for change in changes))),
            **to_item(_sum_counts(change.moved_counts for change in changes)),
        }
        absent = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
        return {"Put": {"TableName": self._table, "Item": item, **absent.arguments()}}

    def _count_writes(
        self, tenant: str, changes: Sequence[CountChange], part: int
    ) -> list[dict[str, Any]]:
        """Return the writes that add these changes to the counts."""
        writes = []
        totals = _sum_counts(change.totals for change in changes)
        if totals:
            writes.append(self._add_write(totals_key(tenant, part), totals, {}))
        for minute_at in sorted({minute_at for change in changes for minute_at in change.minutes}):
            counts = _sum_counts(change.minutes.get(minute_at, {}) for change in changes)
            if counts:
                ttl_attrs = {
                    keys.TTL: to_attribute(keys.to_ttl(minute_at + MINUTE_COUNTS_RETENTION))
                }
                writes.append(
                    self._add_write(
                        minute_key(tenant, time_key(minute_at), part),
                        counts,
                        ttl_attrs,
                    )
                )
        return writes

    def _add_write(self, row_key: keys.RowKey, counts: Counts, attrs: Item) -> dict[str, Any]:
        set_attrs = {**attrs, **keys.ROW_LAYOUT_ATTRIBUTE}
        expression = "ADD " + ", ".join(f"#a{i} :a{i}" for i in range(len(counts)))
        expression += " SET " + ", ".join(f"#{name} = :{name}" for name in set_attrs)
        names = {f"#a{i}": name for i, name in enumerate(counts)}
        values = {f":a{i}": to_attribute(count) for i, count in enumerate(counts.values())}
        return {
            "Update": {
                "TableName": self._table,
                "Key": row_key.item(),
                "UpdateExpression": expression,
                "ExpressionAttributeNames": {**names, **{f"#{name}": name for name in set_attrs}},
                "ExpressionAttributeValues": {
                    **values,
                    **{f":{name}": value for name, value in set_attrs.items()},
                },
            }
        }


def _slice_of_change(change: CountChange) -> datetime:
    return _slice_start(change.changed_at)


def _slice_start(at: datetime) -> datetime:
    """Return the start of the slice: second 5, 15, 25 and so on of a minute."""
    return (
        EPOCH - COUNT_SLICE_OFFSET + (at - EPOCH + COUNT_SLICE_OFFSET) // COUNT_SLICE * COUNT_SLICE
    )


def _split_changes(changes: Sequence[CountChange]) -> Iterator[list[CountChange]]:
    """Yield parts that each fit into one row of ids and one transaction."""
    part: list[CountChange] = []
    minutes: set[datetime] = set()
    for change in changes:
        is_full = (
            len(part) == MAX_CHANGES_PER_COUNTED_ROW
            or len(minutes | change.minutes.keys()) > MAX_MINUTES_PER_TRANSACTION
        )
        if part and is_full:
            yield part
            part, minutes = [], set()
        part.append(change)
        minutes |= change.minutes.keys()
    if part:
        yield part


def _sum_counts(all_counts: Iterable[Counts]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for counts in all_counts:
        sums.update(counts)
    return {name: count for name, count in sorted(sums.items()) if count}


def _parse_change_ids(row: Mapping[str, Any]) -> Iterator[bytes]:
    packed = bytes(row[keys.DATA_ATTR]["B"])
    return (
        packed[start : start + _CHANGE_ID_BYTES]
        for start in range(0, len(packed), _CHANGE_ID_BYTES)
    )


def _parse_counts(row: Item) -> dict[str, int]:
    return {
        name: int(value["N"])
        for name, value in check_layout(row).items()
        if "N" in value and name not in _NON_COUNT_ATTRS
    }


def totals_key(tenant: str, part: int) -> RowKey:
    """Return the key of one part of a tenant's totals.

    >>> totals_key("acme", 0), totals_key("acme", 2).sk
    (RowKey(pk='acme#totals', sk='-'), '-2')
    """
    return RowKey(join_parts(tenant, "totals"), f"-{part or ''}")


def minute_key(tenant: str, minute_text: str, part: int) -> RowKey:
    """Return the key of one part of a tenant's counts of a minute.

    >>> minute_key("acme", "2026-12-01T10:00:00.000000Z", 0)
    RowKey(pk='acme#minutes', sk='2026-12-01T10:00:00.000000Z')
    """
    return RowKey(join_parts(tenant, "minutes"), f"{minute_text}#{part}" if part else minute_text)


def parse_minute(sk: str) -> str:
    """Return the minute of a sort key.

    >>> parse_minute(minute_key("acme", "2026-12-01T10:00:00.000000Z", 3).sk)
    '2026-12-01T10:00:00.000000Z'
    """
    return sk.partition("#")[0]


def minutes_bounds(tenant: str, start: str, end: str) -> tuple[str, str, str]:
    """Return the partition key of a tenant's minutes, and the bounds from `start` to `end`."""
    return join_parts(tenant, "minutes"), start, f"{end}#{LAST_CHAR}"


def counted_key(tenant: str, slice_at: str, row_number: int) -> RowKey:
    """Return the key of a row that names counted changes of this slice; rows count from 0.

    >>> counted_key("acme", "2026-12-01T10:00:05.000000Z", 7).sk
    '2026-12-01T10:00:05.000000Z#000000000007'
    """
    return RowKey(join_parts(tenant, "counted"), f"{slice_at}#{number_key(row_number)}")


def counted_bounds(tenant: str, start: str, end: str) -> tuple[str, str, str]:
    """Return the partition key of the `counted_key` rows, and the bounds from `start` to `end`.

    >>> low, high = counted_bounds("acme", "a", "b")[1:]
    >>> low < counted_key("acme", "a", 0).sk < counted_key("acme", "b", 10**9).sk < high
    True
    """
    return join_parts(tenant, "counted"), start, f"{end}#{LAST_CHAR}"
