"""The audit in DynamoDB. Each row holds the notes of one batch and is written once."""

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
from punctual.aws.dynamodb.audit import keys as audit_keys
from punctual.aws.dynamodb.client import Condition, DynamoClient, Range, known
from punctual.domain.durations import RETENTION
from punctual.engine.commands.audit import newest_first
from punctual.engine.ports.audit_log import AuditFilters, AuditPage, Entry, Note, Noted, Subject

PACK = 1_000  # subjects in a row
READ = 200  # rows after which a page ends, at the next end of a group of four seconds
PAGE = 16
_ABSENT = Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Noted]).decode

_Packed = tuple[str, list[Noted]]


class DynamoAudit:
    """Audit rows, which are never overwritten.

    Repeated notes get the same key, or are merged when they are read.
    """

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def note(self, tenant: str, note: Note) -> None:
        self.append(tenant, [Noted(note, [Subject()])])

    def append(self, tenant: str, noted: Sequence[Noted]) -> None:
        """Write at least one row for each group of four seconds."""
        ordered = sorted(noted, key=_group)
        items = [
            _pack(tenant, group, pack)
            for group, some in groupby(ordered, key=_group)
            for pack in _packs(some)
        ]
        self._dynamo.crew.map(self._put, items)

    def _put(self, item: Item) -> None:
        self._dynamo.put_if(self._table, item, _ABSENT)

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
        begin, last = ("", "") if after is None else (after[0], after[1])
        kept = filters.kept(now)
        found: list[Entry] = []
        looked = 0
        for group, rows in self._groups(tenant, kept, begin, whole=bool(last)):
            looked += len(rows)
            entries = newest_first(tenant, list(chain.from_iterable(rows)), kept)
            if group == begin and last:
                entries = [entry for entry in entries if entry.audit_id < last]
            room = limit - len(found)
            found += entries[:room]
            if len(entries) > room:
                return AuditPage(found, (group, found[-1].audit_id))
            if len(found) == limit or looked >= READ:
                return AuditPage(found, (group, ""))
        return AuditPage(found, None)

    def _groups(
        self, tenant: str, filters: AuditFilters, begin: str, whole: bool
    ) -> Iterator[tuple[str, list[list[Noted]]]]:
        assert filters.start is not None
        low = audit_keys.group_of(filters.start)
        high = None if filters.end is None else audit_keys.through(audit_keys.group_of(filters.end))
        if begin:
            place = audit_keys.through(begin) if whole else begin
            high = place if high is None else min(high, place)
        if high is not None and high < low:
            return
        begun = self._dynamo.crew.map(
            partial(self._begin, tenant, low, high), range(audit_keys.PARTS)
        )
        packed = heapq.merge(*begun, key=itemgetter(0), reverse=True)
        for group, same in groupby(packed, key=itemgetter(0)):
            yield group, [noted for _, noted in same]

    def _begin(self, tenant: str, low: str, high: str | None, part: int) -> Iterator[_Packed]:
        """Return the rows of a part, with the first page read so that parts load in parallel."""
        where = Range(audit_keys.part(tenant, part), low, high, newest_first=True)
        read = self._dynamo.query(self._table, where, PAGE)
        first = list(islice(read, 1))
        return (_unpack(row) for row in chain(first, read))


def row_of(tenant: str, note: Note) -> Item:
    """Return the row of a note without a job, for a write in the same transaction."""
    noted = Noted(note, [Subject()])
    return _pack(tenant, _group(noted), [noted])


def _group(noted: Noted) -> str:
    return audit_keys.group_of(noted.note.at)


def _packs(noted: Iterator[Noted]) -> Iterator[list[Noted]]:
    pack: list[Noted] = []
    size = 0
    for one in noted:
        for at in range(0, len(one.subjects), PACK):
            some = Noted(one.note, one.subjects[at : at + PACK])
            if pack and size + len(some.subjects) > PACK:
                yield pack
                pack, size = [], 0
            pack.append(some)
            size += len(some.subjects)
    if pack:
        yield pack


def _pack(tenant: str, group: str, noted: Sequence[Noted]) -> Item:
    """Return the row of these notes. Its key is a hash of its content, so a repeat adds no row."""
    data = _encode(noted)
    digest = blake2b(data, digest_size=8)
    number = digest.digest()[0] % audit_keys.PARTS
    return {
        **audit_keys.row(tenant, number, group, digest.hexdigest()).item(),
        keys.FORMAT: to_attribute(keys.LAYOUT),
        keys.ROW: to_attribute(zlib.compress(data)),
        keys.TTL: to_attribute(keys.expiry(max(note.at for note, _ in noted) + RETENTION)),
    }


def _unpack(row: Mapping[str, Any]) -> _Packed:
    data = known(row)[keys.ROW]["B"]
    return audit_keys.group_in(row[keys.SK]["S"]), _decode(zlib.decompress(data))
