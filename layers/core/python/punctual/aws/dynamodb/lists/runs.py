"""The list of a tenant's runs over all jobs, live and ended, in compressed rows.

The status function writes one row for each batch of stream records, tenant and group of run ids. A
row holds each run of the batch in its latest form, with the version of its job state. A run that
lives longer than a batch stands in several rows. A reader takes the form of the highest version.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import groupby
from operator import methodcaller
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, check_layout, split_by_size
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition, list_partitions
from punctual.domain.errors import TooMuchWork
from punctual.domain.timestamps import format_time
from punctual.engine.ports.lists.run_filters import RunFilters, TimeField
from punctual.engine.ports.rows import JobLabel, Page, RunRow
from punctual.engine.queries.run_views import is_fired_early, view_of_row
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import RunView

LIVE_RUN_RETENTION = timedelta(days=3)
"""How long the entry of a live run is kept. The daily walk writes it again."""

MAX_RUN_LIST_ROW_BYTES = 262_144  # bytes of runs in one row, before compression
NO_LABEL = -1
MAX_PAGES_PER_SLOT = 4  # pages of at most 1 MB that one call reads of each slot

_Position = tuple[str, str]


class RunEntry(NamedTuple):
    """A run as the job state of this version left it. A withdrawn run leaves the list."""

    row: RunRow
    version: int
    is_withdrawn: bool = False


class _PackedRun(Struct, frozen=True, array_like=True, gc=False):
    run_id: str
    job_id: str
    version: int
    label: int  # its number in the row
    is_withdrawn: bool
    row: msgspec.Raw

    @property
    def position(self) -> _Position:
        return self.run_id, self.job_id


class _PackedRuns(Struct, frozen=True, array_like=True):
    labels: tuple[JobLabel, ...]
    runs: tuple[_PackedRun, ...]


_encode = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(RunRow).decode
_decode = msgspec.json.Decoder(_PackedRuns).decode


class TenantRunList:
    """Lists of runs. Entries that are appended again, in any order, do not change a list."""

    def __init__(self, dynamo: DynamoClient, table: str, slot_count: int) -> None:
        self._dynamo = dynamo
        self._table = table
        self._slot_count = slot_count

    def append(self, entries: Sequence[RunEntry]) -> None:
        """Write at least one row for each tenant and group of ids."""
        items = [
            self._to_item(tenant, group, part)
            for (tenant, group), group_entries in groupby(
                sorted(entries, key=_entry_order), key=_entry_group
            )
            for part in split_by_size(
                group_entries, lambda entry: len(_encode(entry.row)), MAX_RUN_LIST_ROW_BYTES
            )
        ]
        self._dynamo.put(self._table, items)

    def page(
        self,
        tenant: str,
        filters: RunFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Sliced[Page]:
        yield
        before = (after[0], after[1]) if after else None
        upper_bound = filters.id_upper_bound
        if upper_bound is not None and (before is None or upper_bound < before[0]):
            before = (upper_bound, "")
        return self._page(tenant, filters, limit, before, now)

    def _page(
        self, tenant: str, filters: RunFilters, limit: int, before: _Position | None, now: datetime
    ) -> Page:
        """Return the runs before `before` that match, newest first, each run once.

        A page may be short because a call reads at most `MAX_PAGES_PER_SLOT` of each slot. Groups
        are read whole, since any row of a group may hold the latest form of its runs.
        """
        high = None if before is None else _bound_before(before[0])
        slots = [
            _Slot(self._dynamo, self._table, pk, high)
            for pk in list_partitions(tenant, ListKind.RUNS, self._slot_count)
        ]
        lower_bound = filters.id_lower_bound if filters.excludes_bulk else None
        views: list[RunView] = []
        end: _Position | None = None
        for row_count in self._page_sizes(filters, limit):
            unread = [slot for slot in slots if slot.has_more]
            self._dynamo.pool.map(methodcaller("read", row_count), unread)
            horizon = max((slot.last_group for slot in slots if slot.has_more), default="")
            for group in sorted({g for slot in slots for g in slot.unread(horizon)}, reverse=True):
                end = (group, "")
                packed = [data for slot in slots for data in slot.take(group)]
                for row in _newest_first(packed, before, now):
                    if filters.matches(row.run, row.label):
                        views.append(view_of_row(row))
                        if len(views) == limit:
                            return Page(views, (row.run.run_id, row.job_id))
            if not horizon or (lower_bound is not None and horizon < keys.id_group(lower_bound)):
                return Page(views, None)
        if end is None:
            raise TooMuchWork(
                f"More runs of {format_time(keys.time_of_group(horizon))} than an answer can read: "
                "list the runs of one job, or use `to` to list the runs before."
            )
        return Page(views, end)

    def _page_sizes(self, filters: RunFilters, limit: int) -> Iterator[int | None]:
        """Yield how many rows each page reads. None is as many as AWS returns, which is 1 MB.

        Without filters the first pages are about as small as the list needs them.
        """
        has_filters = filters._replace(time_field=TimeField.SCHEDULED) != RunFilters()
        small = limit // self._slot_count * 2 + 4
        for number in range(MAX_PAGES_PER_SLOT):
            yield None if has_filters or number > 1 else small * 16**number

    def _to_item(self, tenant: str, group: str, entries: Sequence[RunEntry]) -> Item:
        """Return the row of these entries. Its key is a hash of their names and versions.

        So a batch that is written again adds no row, and an older form replaces no newer one.
        """
        names = "\0".join(
            f"{entry.row.run.run_id}\0{entry.row.job_id}\0{entry.version}" for entry in entries
        )
        digest = blake2b(names.encode(), digest_size=8)
        slot = int.from_bytes(digest.digest()[:2], "big") % self._slot_count
        row_key = keys.RowKey(
            list_partition(tenant, ListKind.RUNS, slot),
            keys.group_sort_key(group, digest.hexdigest()),
        )
        return {
            **row_key.item(),
            **keys.ROW_LAYOUT_ATTRIBUTE,
            keys.DATA_ATTR: to_attribute(zlib.compress(_pack(entries))),
            keys.TTL: to_attribute(keys.to_ttl(max(entry.row.expires_at for entry in entries))),
        }


class _Slot:
    """The rows of one slot that are read and not yet taken, by group, newest group first."""

    def __init__(self, dynamo: DynamoClient, table: str, pk: str, high: str | None) -> None:
        self._dynamo = dynamo
        self._table = table
        self._pk = pk
        self._high = high
        self._data: dict[str, list[bytes]] = {}
        self.last_group = ""
        self.has_more = True

    def read(self, row_count: int | None) -> None:
        """Read the next page."""
        key_range = KeyRange(self._pk, high=self._high, excludes_high=True, newest_first=True)
        items, self.has_more = self._dynamo.query_page(self._table, key_range, row_count)
        for item in items:
            self._high = item[keys.SK]["S"]
            self.last_group = keys.parse_group(self._high)
            data = check_layout(item)[keys.DATA_ATTR]["B"]
            self._data.setdefault(self.last_group, []).append(data)

    def unread(self, horizon: str) -> Iterator[str]:
        """Yield the groups after the horizon, which every slot has read whole."""
        return (group for group in self._data if group > horizon)

    def take(self, group: str) -> Sequence[bytes]:
        return self._data.pop(group, ())


def _newest_first(
    packed: Iterable[bytes], before: _Position | None, now: datetime
) -> Iterator[RunRow]:
    """Yield the runs of a group before a position, newest first, each in its latest form."""
    latest: dict[_Position, tuple[_PackedRun, Sequence[JobLabel]]] = {}
    for data in packed:
        unpacked = _decode(zlib.decompress(data))
        for packed_run in unpacked.runs:
            position = packed_run.position
            if before is None or position < before:
                previous = latest.get(position)
                if previous is None or packed_run.version > previous[0].version:
                    latest[position] = packed_run, unpacked.labels
    for _, (packed_run, labels) in sorted(latest.items(), key=_by_position, reverse=True):
        if packed_run.is_withdrawn:
            continue
        row = _decode_row(packed_run.row)
        if row.expires_at > now and not is_fired_early(row.run, now):
            has_label = packed_run.label != NO_LABEL
            yield replace(row, label=labels[packed_run.label]) if has_label else row


def _bound_before(run_id: str) -> str:
    """Return the bound below which rows may have runs before this id.

    A group instead of an id stands for the first id of the group.
    """
    group = keys.id_group(run_id)
    return keys.group_upper_bound(group) if run_id > group else keys.group_sort_key(group, "")


def _by_position(item: tuple[_Position, Any]) -> _Position:
    return item[0]


def _pack(entries: Sequence[RunEntry]) -> bytes:
    """Return the entries as JSON. Runs of one job share its label."""
    labels: dict[bytes, tuple[int, JobLabel]] = {}
    runs = []
    for row, version, is_withdrawn in entries:
        number = NO_LABEL
        if row.label is not None:
            number, _ = labels.setdefault(_encode(row.label), (len(labels), row.label))
        encoded = msgspec.Raw(_encode(replace(row, label=None)))
        runs.append(_PackedRun(row.run.run_id, row.job_id, version, number, is_withdrawn, encoded))
    return _encode(_PackedRuns(tuple(label for _, label in labels.values()), tuple(runs)))


def _entry_order(entry: RunEntry) -> tuple[str, str, str, int]:
    return entry.row.tenant, entry.row.run.run_id, entry.row.job_id, entry.version


def _entry_group(entry: RunEntry) -> tuple[str, str]:
    return entry.row.tenant, keys.id_group(entry.row.run.run_id)
