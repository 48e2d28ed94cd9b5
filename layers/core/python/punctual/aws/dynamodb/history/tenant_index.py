"""The list of a tenant's ended runs over all jobs, in compressed rows.

The status function writes it from the stream.
"""

import heapq
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import (
    DynamoClient,
    KeyRange,
    check_layout,
    prefetch,
    split_by_size,
)
from punctual.engine.ports.rows import RunRow

MAX_RUN_INDEX_ROW_BYTES = 262_144  # bytes of runs in one row, before compression
RUN_INDEX_PAGE_SIZE = 16  # rows in a query page

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[RunRow, ...]).decode

_GroupRuns = tuple[str, tuple[RunRow, ...]]


class TenantRunIndex:
    """A list of ended runs. A repeated append does not change the result of a read."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def append(self, tenant: str, rows: Sequence[RunRow]) -> None:
        """Write at least one row for each group of four seconds, by run id."""
        ordered = sorted(rows, key=_run_order)
        items = [
            _to_row(tenant, group, part)
            for group, group_rows in groupby(ordered, key=lambda row: keys.id_group(row.run.run_id))
            for part in split_by_size(
                group_rows, lambda row: len(_encode(row)), MAX_RUN_INDEX_ROW_BYTES
            )
        ]
        self._dynamo.put(self._table, items)

    def page(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        """Return the runs before (run id, job id) `before`, newest first, each run once."""
        high = None if before is None else keys.group_upper_bound(keys.id_group(before[0]))
        parts = self._dynamo.pool.map(
            partial(self._open_part, tenant, high), range(keys.RUN_INDEX_PARTITIONS)
        )
        packed = heapq.merge(*parts, key=itemgetter(0), reverse=True)
        rows = (
            row
            for _, same_group in groupby(packed, key=itemgetter(0))
            for row in _newest_first(same_group)
            if row.expires_at > now and (before is None or _run_order(row) < before)
        )
        return list(islice(rows, limit))

    def _open_part(self, tenant: str, high: str | None, part: int) -> Iterator[_GroupRuns]:
        """Return the rows of a part. The first page is read now."""
        key_range = KeyRange(keys.run_index_partition(tenant, part), high=high, newest_first=True)
        items = self._dynamo.query(self._table, key_range, RUN_INDEX_PAGE_SIZE)
        return (_parse_row(row) for row in prefetch(items))


def _run_order(row: RunRow) -> tuple[str, str]:
    return row.run.run_id, row.job_id


def _newest_first(packed: Iterator[_GroupRuns]) -> list[RunRow]:
    """Return the runs of a group, newest first, each in its latest form.

    An entry for several occurrences may be written more than once as its count grows.
    """
    latest: dict[tuple[str, str], RunRow] = {}
    for row in (row for _, rows in packed for row in rows):
        previous = latest.get(_run_order(row))
        if previous is None or _revision(row) > _revision(previous):
            latest[_run_order(row)] = row
    return [row for _, row in sorted(latest.items(), reverse=True)]


def _revision(row: RunRow) -> tuple[int, datetime]:
    return row.run.occurrence_count, row.run.changed_at


def _to_row(tenant: str, group: str, rows: Sequence[RunRow]) -> Item:
    """Return the row of these runs. Its key is a hash of their names, so a repeat adds no row."""
    names = "\0".join(name for row in rows for name in _run_order(row))
    digest = blake2b(names.encode(), digest_size=8)
    part = digest.digest()[0] % keys.RUN_INDEX_PARTITIONS
    row_key = keys.RowKey(
        keys.run_index_partition(tenant, part), keys.run_index_sort_key(group, digest.hexdigest())
    )
    return {
        **row_key.item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        keys.DATA_ATTR: to_attribute(zlib.compress(_encode(rows))),
        keys.TTL: to_attribute(keys.to_ttl(max(row.expires_at for row in rows))),
    }


def _parse_row(row: Mapping[str, Any]) -> _GroupRuns:
    data = check_layout(row)[keys.DATA_ATTR]["B"]
    return keys.parse_group(row[keys.SK]["S"]), _decode(zlib.decompress(data))
