"""The list of a tenant's ended runs over all jobs, in compressed rows.

The status function writes it from the stream.
"""

import heapq
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, Range, fitting, known
from punctual.engine.ports.rows import RunRow

MOST = 262_144  # bytes of runs in one row, before compression
PAGE = 16  # rows in a query page

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[RunRow, ...]).decode

_Packed = tuple[str, tuple[RunRow, ...]]


class TenantRunIndex:
    """A list of ended runs. A repeated append does not change the result of a read."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def append(self, tenant: str, rows: Sequence[RunRow]) -> None:
        """Write at least one row for each group of four seconds, by run id."""
        ordered = sorted(rows, key=_place)
        items = [
            _pack(tenant, group, part)
            for group, some in groupby(ordered, key=lambda row: keys.run_group(row.run.run_id))
            for part in fitting(some, lambda row: len(_encode(row)), MOST)
        ]
        self._dynamo.put(self._table, items)

    def page(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Return the runs before (run id, job id) `before`, newest first, each run once."""
        high = None if before is None else keys.until_group(keys.run_group(before[0]))
        begun = self._dynamo.crew.map(partial(self._begin, tenant, high), range(keys.RUN_LISTS))
        packed = heapq.merge(*begun, key=itemgetter(0), reverse=True)
        found = (
            row
            for _, same in groupby(packed, key=itemgetter(0))
            for row in _newest_first(same)
            if row.expires_at > now and (before is None or _place(row) < before)
        )
        return list(islice(found, limit))

    def _begin(self, tenant: str, high: str | None, part: int) -> Iterator[_Packed]:
        """Return the rows of a part, with the first page read so that parts load in parallel."""
        where = Range(keys.run_list(tenant, part), high=high, newest_first=True)
        read = self._dynamo.query(self._table, where, PAGE)
        first = list(islice(read, 1))
        return (_unpack(row) for row in chain(first, read))


def _place(row: RunRow) -> tuple[str, str]:
    return row.run.run_id, row.job_id


def _newest_first(packed: Iterator[_Packed]) -> list[RunRow]:
    """Return the runs of a group, newest first, each in its latest form.

    An entry for several occurrences may be written more than once as its count grows.
    """
    once: dict[tuple[str, str], RunRow] = {}
    for row in (row for _, rows in packed for row in rows):
        known_row = once.get(_place(row))
        if known_row is None or _said(row) > _said(known_row):
            once[_place(row)] = row
    return [row for _, row in sorted(once.items(), reverse=True)]


def _said(row: RunRow) -> tuple[int, datetime]:
    return row.run.count, row.run.changed_at


def _pack(tenant: str, group: str, rows: Sequence[RunRow]) -> Item:
    """Return the row of these runs. Its key is a hash of their names, so a repeat adds no row."""
    names = "\0".join(name for row in rows for name in _place(row))
    digest = blake2b(names.encode(), digest_size=8)
    part = digest.digest()[0] % keys.RUN_LISTS
    at = keys.RowKey(keys.run_list(tenant, part), keys.run_list_row(group, digest.hexdigest()))
    return {
        **at.item(),
        keys.FORMAT: to_attribute(keys.LAYOUT),
        keys.ROW: to_attribute(zlib.compress(_encode(rows))),
        keys.TTL: to_attribute(keys.expiry(max(row.expires_at for row in rows))),
    }


def _unpack(row: Mapping[str, Any]) -> _Packed:
    data = known(row)[keys.ROW]["B"]
    return keys.run_group_of(row[keys.SK]["S"]), _decode(zlib.decompress(data))
