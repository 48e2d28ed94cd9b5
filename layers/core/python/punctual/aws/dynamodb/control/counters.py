"""Counters of a tenant, in total and by minute, which the status function writes.

A stream delivers the changes of one job in order, and the changes of two jobs in any order. It may
deliver each change again. So the position of a change does not show whether it is counted. Instead:

1. Each change belongs to the slice of ten seconds in which it was made.
2. The writer reads which changes of that slice are counted, and drops these.
3. One transaction adds the rest to the counts, and appends a row that names them.

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
from punctual.aws.dynamodb.client import Condition, DynamoClient, Range, known
from punctual.aws.dynamodb.control import counter_keys
from punctual.aws.dynamodb.control.counter_keys import PARTS
from punctual.aws.dynamodb.sort_keys import moment, parse_moment
from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import EPOCH

KEPT = timedelta(hours=3)
KNOWN = timedelta(hours=30)  # longer than a day, for which a stream keeps and repeats a change
SLICE = timedelta(seconds=10)
# Most changes are made around a full minute, so one slice holds them all.
SHIFT = timedelta(seconds=5)
MINUTES = 120  # rows in a query page
NAMING = 1_000  # `counted` rows in a query page

MOST_NAMED = 200  # changes in one row, one batch of Lambda; under two kilobytes
MOST_MINUTES = 90  # a transaction of DynamoDB writes at most 100 rows
_MARK = 8  # bytes that name a change
_TRIES = 6  # after the last try, Lambda delivers the batch again
_OURS = (keys.PK, keys.SK, keys.TTL, keys.FORMAT)

Counts = Mapping[str, int]


class Change(NamedTuple):
    """What one change of a job adds to the totals and to the counts of minutes."""

    mark: bytes
    made_at: datetime  # as the stream says, so each copy has the same time
    totals: Counts
    minutes: Mapping[datetime, Counts] = {}
    moved: Mapping[str, int] = {}  # changes of the counts of job states, positive or negative

    @property
    def counts(self) -> bool:
        found = (self.totals, *self.minutes.values())
        return any(number for counts in found for number in counts.values())


class Minute(NamedTuple):
    at: datetime
    counts: Counts


def mark_of(place: str, job_id: str) -> bytes:
    """Return the id of the change at this position of the stream."""
    return blake2b(f"{place}\0{job_id}".encode(), digest_size=_MARK).digest()


class Counters:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def count(self, tenant: str, changes: Sequence[Change]) -> None:
        """Add each change that is not counted yet."""
        wanted = sorted((one for one in changes if one.counts), key=_made_in)
        for slice_at, some in groupby(wanted, key=_made_in):
            for part in _parts(list(some)):
                self._count(tenant, slice_at, part)

    def moved(self, tenant: str, start: datetime, end: datetime) -> Iterator[Counts]:
        """Yield the `moved` counts of changes made from `start` to `end`; the caller sums them."""
        slices = (moment(_slice_of(start)), moment(_slice_of(end)))
        where = Range(*counter_keys.counted_between(tenant, *slices))
        return (_counts(row) for row in self._dynamo.query(self._table, where, NAMING))

    def totals(self, tenant: str) -> Counts:
        places = [counter_keys.totals(tenant, part) for part in range(PARTS)]
        rows = self._dynamo.read(self._table, places)
        return _sum(_counts(row) for row in rows.values())

    def minutes(self, tenant: str, start: datetime, end: datetime) -> Sequence[Minute]:
        """Return the minutes with counts from `start` to `end`, oldest first."""
        where = counter_keys.minutes(tenant, moment(start), moment(end))
        rows = self._dynamo.query(self._table, Range(*where), MINUTES)
        return [
            Minute(parse_moment(at), _sum(_counts(row) for row in some))
            for at, some in groupby(rows, key=lambda row: counter_keys.minute_of(row[keys.SK]["S"]))
        ]

    def _count(self, tenant: str, slice_at: datetime, changes: Sequence[Change]) -> None:
        """Count the changes of one slice.

        A transaction fails if it meets another one. The next try reads again and adds to other
        rows.
        """
        for attempt in range(_TRIES):
            rows = self._rows(tenant, slice_at)
            counted = {mark for row in rows for mark in _marks(known(row))}
            left = [one for one in changes if one.mark not in counted]
            if not left:
                return
            named = self._named(tenant, slice_at, len(rows), left)
            added = self._added(tenant, left, attempt % PARTS)
            if self._dynamo.transact([named, *added]):
                return
            self._dynamo.wait(attempt, f"{tenant} {slice_at}")
        raise Unavailable(f"The counts of {tenant} change too often.")

    def _rows(self, tenant: str, slice_at: datetime) -> list[Item]:
        """Return the rows that name the counted changes of this slice.

        An unavailable store is tried again for a while. Lambda delivers a batch only a limited
        number of times, and immediate failures would use them up at once.
        """
        at = moment(slice_at)
        where = Range(*counter_keys.counted_between(tenant, at, at))
        for attempt in range(_TRIES):
            try:
                return list(self._dynamo.query(self._table, where, NAMING))
            except Unavailable:
                if attempt == _TRIES - 1:
                    raise
                self._dynamo.wait(attempt, f"{tenant} {slice_at}")
        raise AssertionError("the last attempt returns or raises")

    def _named(
        self, tenant: str, slice_at: datetime, row: int, changes: Sequence[Change]
    ) -> dict[str, Any]:
        """Return the write that appends the row if the row does not exist yet."""
        item = {
            **counter_keys.counted(tenant, moment(slice_at), row).item(),
            keys.FORMAT: to_attribute(keys.LAYOUT),
            keys.TTL: to_attribute(keys.expiry(slice_at + KNOWN)),
            keys.ROW: to_attribute(b"".join(sorted(one.mark for one in changes))),
            **to_item(_sum(one.moved for one in changes)),
        }
        absent = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
        return {"Put": {"TableName": self._table, "Item": item, **absent.arguments()}}

    def _added(self, tenant: str, changes: Sequence[Change], part: int) -> list[dict[str, Any]]:
        """Return the writes that add these changes to the counts."""
        writes = []
        totals = _sum(one.totals for one in changes)
        if totals:
            writes.append(self._adding(counter_keys.totals(tenant, part), totals, {}))
        for at in sorted({at for one in changes for at in one.minutes}):
            counts = _sum(one.minutes.get(at, {}) for one in changes)
            if counts:
                kept = {keys.TTL: to_attribute(keys.expiry(at + KEPT))}
                writes.append(
                    self._adding(counter_keys.minute(tenant, moment(at), part), counts, kept)
                )
        return writes

    def _adding(self, at: keys.RowKey, added: Counts, also: Item) -> dict[str, Any]:
        sets = {**also, keys.FORMAT: to_attribute(keys.LAYOUT)}
        change = "ADD " + ", ".join(f"#a{i} :a{i}" for i in range(len(added)))
        change += " SET " + ", ".join(f"#{name} = :{name}" for name in sets)
        names = {f"#a{i}": name for i, name in enumerate(added)}
        values = {f":a{i}": to_attribute(count) for i, count in enumerate(added.values())}
        return {
            "Update": {
                "TableName": self._table,
                "Key": at.item(),
                "UpdateExpression": change,
                "ExpressionAttributeNames": {**names, **{f"#{name}": name for name in sets}},
                "ExpressionAttributeValues": {
                    **values,
                    **{f":{name}": value for name, value in sets.items()},
                },
            }
        }


def _made_in(change: Change) -> datetime:
    return _slice_of(change.made_at)


def _slice_of(at: datetime) -> datetime:
    """Return the start of the slice: second 5, 15, 25 and so on of a minute."""
    return EPOCH - SHIFT + (at - EPOCH + SHIFT) // SLICE * SLICE


def _parts(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Yield parts that each fit into one row of ids and one transaction."""
    part: list[Change] = []
    minutes: set[datetime] = set()
    for one in changes:
        full = len(part) == MOST_NAMED or len(minutes | one.minutes.keys()) > MOST_MINUTES
        if part and full:
            yield part
            part, minutes = [], set()
        part.append(one)
        minutes |= one.minutes.keys()
    if part:
        yield part


def _sum(several: Iterable[Counts]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for counts in several:
        found.update(counts)
    return {name: count for name, count in sorted(found.items()) if count}


def _marks(row: Mapping[str, Any]) -> Iterator[bytes]:
    packed = bytes(row[keys.ROW]["B"])
    return (packed[at : at + _MARK] for at in range(0, len(packed), _MARK))


def _counts(row: Item) -> dict[str, int]:
    return {
        name: int(value["N"])
        for name, value in known(row).items()
        if "N" in value and name not in _OURS
    }
