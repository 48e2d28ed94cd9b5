"""The audit on the node.

It is written in the transaction of the change, with many notes in a row.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from punctual.domain.errors import Unreadable
from punctual.domain.job_state import JobState
from punctual.engine.commands.audit import DEFINED, moment_text, newest_first
from punctual.engine.ports.audit_log import AuditFilters, AuditPage, Entry, Note, Noted, Subject
from punctual.engine.queries.cursor import number_in
from punctual.node.files.damage import DECODING
from punctual.node.sqlite.codec import micros, moment
from punctual.node.sqlite.transaction import Transaction

PACK = 512  # subjects or notes in a row
READ = 500  # rows read for one page
_TOGETHER = 32

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Noted]).decode


Place = tuple[str, int, str]  # a subject as a plain tuple, which costs a sixth of the time
Held = tuple[Note, list[Place]]
_Row = tuple[int, int, int, bytes]
_MILLISECOND = 1_000


class SqliteAudit:
    def __init__(self, unit: Transaction) -> None:
        self._unit = unit
        self._held: dict[str, list[Held]] = {}
        self._latest: Note | None = None  # with its tenant, and the list that its subjects go to
        self._tenant = ""
        self._places: list[Place] = []

    def note(self, tenant: str, note: Note) -> None:
        with self._unit:
            self._hold(tenant, note, Subject())

    def changed(self, note: Note, head: JobState) -> None:
        """Note a change of this job state, in the transaction of its swap."""
        ref = head.rules[head.definition].body if note.action in DEFINED else ""
        place = (head.job_id, head.version, ref)
        if note is self._latest and head.tenant == self._tenant and len(self._places) < PACK:
            self._places.append(place)
        else:
            self._hold(head.tenant, note, place)

    def _hold(self, tenant: str, note: Note, place: Place) -> None:
        self._latest, self._tenant, self._places = note, tenant, [place]
        self._held.setdefault(tenant, []).append((note, self._places))

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        """Return a page of the audit.

        `after` holds a row number, and the last entry of that row that was shown.
        """
        filters = filters.kept(now)
        row, last = (2**63 - 1, "") if after is None else (number_in(after[0]), after[1])
        with self._unit:
            self.flush()
            found = self._page(tenant, filters, limit, row, last)
        if isinstance(found, Unreadable):
            raise found
        return found

    def _page(
        self, tenant: str, filters: AuditFilters, limit: int, row: int, last: str
    ) -> AuditPage | Unreadable:
        found: list[Entry] = []
        rows = self._rows(tenant, filters, row)
        for looked, (number, earliest, latest, packed) in enumerate(rows, start=1):
            try:
                entries = newest_first(tenant, _decode(packed), filters)
            except DECODING as error:
                self._unit.damage.note("audit", (tenant, number), error)
                return _unreadable(earliest, latest)
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

    def _rows(self, tenant: str, filters: AuditFilters, row: int) -> Iterator[_Row]:
        """Yield the rows from `row` on that may match, the newest first."""
        start = -1 if filters.start is None else micros(filters.start)
        end = 2**63 - 1 if filters.end is None else micros(filters.end)
        while True:
            some = self._unit.db.execute(
                "SELECT id, earliest, latest, noted FROM audit "
                "WHERE tenant = ? AND id <= ? AND latest >= ? "
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
        self.drop()
        self._unit.db.executemany(
            "INSERT INTO audit (tenant, earliest, latest, noted) VALUES (?, ?, ?, ?)", rows
        )

    def keep(self) -> None:
        pass

    def drop(self) -> None:
        self._held.clear()
        self._latest = None


def _unreadable(earliest: int, latest: int) -> Unreadable:
    """Return the error for an unreadable row.

    A list without its entries would hide the gap, so the error names the ranges that can be read.
    """
    start, end = moment(earliest), moment(latest + _MILLISECOND)
    return Unreadable(
        f"The audit's lines from {moment_text(start)} to {moment_text(end)} cannot be read. Ask "
        f"for those before with to={moment_text(start)}, and for those after with "
        f"from={moment_text(end)}."
    )


def _packs(held: Sequence[Held]) -> Iterator[list[Held]]:
    pack: list[Held] = []
    size = 0
    for note, places in held:
        if pack and size + len(places) > PACK:
            yield pack
            pack, size = [], 0
        pack.append((note, places))
        size += len(places)
    if pack:
        yield pack
