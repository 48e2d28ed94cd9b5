"""Who changed what, on the node: written in the transaction of the change, many in a row."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from punctual.domain.head import Head
from punctual.engine.audit import (
    AuditFilters,
    AuditPage,
    Entry,
    Note,
    Noted,
    Subject,
    newest_first,
    subject_of,
)
from punctual.local.codec import micros
from punctual.local.unit import Unit

PACK = 512  # subjects, or notes, in a row
READ = 1_000  # rows looked at for one page
_TOGETHER = 32

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Noted]).decode


class SqliteAudit:
    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._held: dict[str, list[tuple[Note, list[Subject]]]] = {}

    def note(self, tenant: str, note: Note) -> None:
        with self._unit:
            self._hold(tenant, note, Subject())

    def changed(self, note: Note, head: Head) -> None:
        """With the swap that wrote this head, and undone with it."""
        self._hold(head.tenant, note, subject_of(note, head))

    def _hold(self, tenant: str, note: Note, subject: Subject) -> None:
        held = self._held.setdefault(tenant, [])
        if held and held[-1][0] is note and len(held[-1][1]) < PACK:
            held[-1][1].append(subject)
        else:
            held.append((note, [subject]))

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        """A place is a row, and the entry of it that was shown last, if any was."""
        filters = filters.kept(now)
        row, last = (2**63 - 1, "") if after is None else (int(after[0]), after[1])
        found: list[Entry] = []
        looked = 0
        with self._unit:
            self.flush()
            for number, packed in self._rows(tenant, filters, row):
                looked += 1
                entries = newest_first(tenant, _decode(packed), filters)
                if number == row and last:
                    entries = [entry for entry in entries if entry.audit_id < last]
                room = limit - len(found)
                found += entries[:room]
                if len(entries) > room:
                    shown = entries[room - 1].audit_id if room else ""
                    return AuditPage(found, (str(number), shown))
                if looked == READ:
                    return AuditPage(found, (str(number - 1), ""))
        return AuditPage(found, None)

    def _rows(self, tenant: str, filters: AuditFilters, row: int) -> Iterator[tuple[int, bytes]]:
        """From this one on, newest first: those that may hold what is asked for."""
        start = -1 if filters.start is None else micros(filters.start)
        end = 2**63 - 1 if filters.end is None else micros(filters.end)
        while True:
            some = self._unit.db.execute(
                "SELECT id, noted FROM audit WHERE tenant = ? AND id <= ? AND latest >= ? "
                "AND earliest < ? ORDER BY id DESC LIMIT ?",
                (tenant, row, start, end, _TOGETHER),
            ).fetchall()
            yield from some
            if len(some) < _TOGETHER:
                return
            row = some[-1][0] - 1

    def flush(self) -> None:
        if not self._held:
            return
        self._unit.begin()
        rows = [
            (tenant, micros(min(moments)), micros(max(moments)), _encode(pack))
            for tenant, held in self._held.items()
            for pack in _packs(held)
            if (moments := [note.at for note, _ in pack])
        ]
        self._held.clear()
        self._unit.db.executemany(
            "INSERT INTO audit (tenant, earliest, latest, noted) VALUES (?, ?, ?, ?)", rows
        )

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._held.clear()


def _packs(
    held: Sequence[tuple[Note, list[Subject]]],
) -> Iterator[list[tuple[Note, list[Subject]]]]:
    pack: list[tuple[Note, list[Subject]]] = []
    size = 0
    for note, subjects in held:
        if pack and size + len(subjects) > PACK:
            yield pack
            pack, size = [], 0
        pack.append((note, subjects))
        size += len(subjects)
    if pack:
        yield pack
