"""The audit in DynamoDB. Each row holds the notes of one batch and is written once."""

import heapq
import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from hashlib import blake2b
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout, prefetch
from punctual.aws.dynamodb.keys import escape
from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import sortable_id
from punctual.engine.commands.audit import newest_first
from punctual.engine.ports.audit_log import (
    AuditEntry,
    AuditFilters,
    AuditPage,
    Note,
    NoteWithSubjects,
    Subject,
)

AUDIT_PARTITIONS = 4
MAX_AUDIT_ROW_SUBJECTS = 1_000  # subjects in a row
# Rows after which a page ends, at the next end of a group of four seconds.
MAX_AUDIT_PAGE_ROWS = 200
AUDIT_QUERY_PAGE_SIZE = 16
_AUDIT_ROW_ABSENT = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[NoteWithSubjects]).decode

_GroupNotes = tuple[str, list[NoteWithSubjects]]


def audit_partition(tenant: str, number: int) -> str:
    """Return the partition key of one part of a tenant's audit.

    >>> audit_partition("acme", 2)
    'acme#2'
    """
    return f"{escape(tenant)}#{number}"


def group_of(at: datetime) -> str:
    """Return the group of a time. Notes of the same four seconds share a group.

    >>> from punctual.domain.utc import EPOCH
    >>> group_of(EPOCH)
    '00000000-0'
    """
    return keys.id_group(sortable_id(at, bytes(10)))


def audit_row_key(tenant: str, number: int, group: str, digest: str) -> keys.RowKey:
    """Return the key of an audit row.

    >>> audit_row_key("acme", 2, "01939f6a-7", "ab")
    RowKey(pk='acme#2', sk='01939f6a-7#ab')
    """
    return keys.RowKey(audit_partition(tenant, number), f"{group}#{digest}")


class DynamoAudit:
    """Audit rows, which are never overwritten.

    Repeated notes get the same key, or are merged when they are read.
    """

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def add_note(self, tenant: str, note: Note) -> None:
        self.append(tenant, [NoteWithSubjects(note, [Subject()])])

    def append(self, tenant: str, notes: Sequence[NoteWithSubjects]) -> None:
        """Write at least one row for each group of four seconds."""
        ordered = sorted(notes, key=_group_of)
        items = [
            _to_row(tenant, group, row_notes)
            for group, group_notes in groupby(ordered, key=_group_of)
            for row_notes in _split_into_rows(group_notes)
        ]
        self._dynamo.pool.map(self._put, items)

    def _put(self, item: Item) -> None:
        self._dynamo.put_if(self._table, item, _AUDIT_ROW_ABSENT)

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        """Return a page of entries, newest first.

        The cursor is a group and the last entry shown of it. An empty entry means that the group
        is complete.
        """
        cursor_group, last_id = ("", "") if after is None else (after[0], after[1])
        bounded_filters = filters.within_retention(now)
        page_entries: list[AuditEntry] = []
        rows_read = 0
        for group, rows in self._groups(
            tenant, bounded_filters, cursor_group, includes_group=bool(last_id)
        ):
            rows_read += len(rows)
            entries = newest_first(tenant, list(chain.from_iterable(rows)), bounded_filters)
            if group == cursor_group and last_id:
                entries = [entry for entry in entries if entry.audit_id < last_id]
            room = limit - len(page_entries)
            page_entries += entries[:room]
            if len(entries) > room:
                return AuditPage(page_entries, (group, page_entries[-1].audit_id))
            if len(page_entries) == limit or rows_read >= MAX_AUDIT_PAGE_ROWS:
                return AuditPage(page_entries, (group, ""))
        return AuditPage(page_entries, None)

    def _groups(
        self, tenant: str, filters: AuditFilters, cursor_group: str, includes_group: bool
    ) -> Iterator[tuple[str, list[list[NoteWithSubjects]]]]:
        assert filters.start is not None
        low = group_of(filters.start)
        high = None if filters.end is None else keys.group_upper_bound(group_of(filters.end))
        if cursor_group:
            bound = keys.group_upper_bound(cursor_group) if includes_group else cursor_group
            high = bound if high is None else min(high, bound)
        if high is not None and high < low:
            return
        parts = self._dynamo.pool.map(
            partial(self._open_part, tenant, low, high), range(AUDIT_PARTITIONS)
        )
        packed = heapq.merge(*parts, key=itemgetter(0), reverse=True)
        for group, same_group in groupby(packed, key=itemgetter(0)):
            yield group, [notes for _, notes in same_group]

    def _open_part(
        self, tenant: str, low: str, high: str | None, part: int
    ) -> Iterator[_GroupNotes]:
        """Return the rows of a part. The first page is read now."""
        key_range = KeyRange(audit_partition(tenant, part), low, high, newest_first=True)
        items = self._dynamo.query(self._table, key_range, AUDIT_QUERY_PAGE_SIZE)
        return (_parse_row(row) for row in prefetch(items))


def audit_row(tenant: str, note: Note) -> Item:
    """Return the row of a note without a job, for a write in the same transaction."""
    noted = NoteWithSubjects(note, [Subject()])
    return _to_row(tenant, _group_of(noted), [noted])


def _group_of(noted: NoteWithSubjects) -> str:
    return group_of(noted.note.at)


def _split_into_rows(notes: Iterator[NoteWithSubjects]) -> Iterator[list[NoteWithSubjects]]:
    row_notes: list[NoteWithSubjects] = []
    size = 0
    for entry in notes:
        for start in range(0, len(entry.subjects), MAX_AUDIT_ROW_SUBJECTS):
            part = NoteWithSubjects(
                entry.note, entry.subjects[start : start + MAX_AUDIT_ROW_SUBJECTS]
            )
            if row_notes and size + len(part.subjects) > MAX_AUDIT_ROW_SUBJECTS:
                yield row_notes
                row_notes, size = [], 0
            row_notes.append(part)
            size += len(part.subjects)
    if row_notes:
        yield row_notes


def _to_row(tenant: str, group: str, notes: Sequence[NoteWithSubjects]) -> Item:
    """Return the row of these notes. Its key is a hash of its content, so a repeat adds no row."""
    data = _encode(notes)
    digest = blake2b(data, digest_size=8)
    part_number = digest.digest()[0] % AUDIT_PARTITIONS
    return {
        **audit_row_key(tenant, part_number, group, digest.hexdigest()).item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        keys.DATA_ATTR: to_attribute(zlib.compress(data)),
        keys.TTL: to_attribute(keys.to_ttl(max(note.at for note, _ in notes) + HISTORY_RETENTION)),
    }


def _parse_row(row: Mapping[str, Any]) -> _GroupNotes:
    data = check_layout(row)[keys.DATA_ATTR]["B"]
    return keys.parse_group(row[keys.SK]["S"]), _decode(zlib.decompress(data))
