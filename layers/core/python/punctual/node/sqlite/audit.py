"""The audit on the node.

It is written in the transaction of the change, with many notes in a row.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from punctual.domain.errors import Unreadable
from punctual.domain.job_state import JobState
from punctual.domain.timestamps import format_time
from punctual.engine.commands.audit import DEFINING_ACTIONS, newest_first
from punctual.engine.ports.audit_log import (
    AuditEntry,
    AuditFilters,
    AuditPage,
    Note,
    NoteWithSubjects,
    Subject,
)
from punctual.engine.queries.cursor import number_in_cursor
from punctual.node.files.damage import DECODING_ERRORS
from punctual.node.sqlite.rows import from_micros, to_micros
from punctual.node.sqlite.transaction import Transaction

MAX_SUBJECTS_PER_ROW = 512  # subjects or notes in a row
MAX_AUDIT_ROWS_READ = 500  # rows read for one page
_AUDIT_QUERY_ROWS = 32

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[NoteWithSubjects]).decode


SubjectTuple = tuple[str, int, str]  # a subject as a plain tuple, which costs a sixth of the time
NotedSubjects = tuple[Note, list[SubjectTuple]]
_AuditRow = tuple[int, int, int, bytes]
_MICROS_PER_MILLISECOND = 1_000


class SqliteAudit:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.pending: dict[str, list[NotedSubjects]] = {}
        self._last_note: Note | None = None  # with its tenant, and the list that its subjects go to
        self._last_tenant = ""
        self._last_subjects: list[SubjectTuple] = []

    def add_note(self, tenant: str, note: Note) -> None:
        with self._transaction:
            self._add(tenant, note, Subject())

    def note_change(self, note: Note, state: JobState) -> None:
        """Note a change of this job state, in the transaction of its swap."""
        ref = (
            state.rules[state.definition].definition_ref if note.action in DEFINING_ACTIONS else ""
        )
        subject = (state.job_id, state.version, ref)
        if (
            note is self._last_note
            and state.tenant == self._last_tenant
            and len(self._last_subjects) < MAX_SUBJECTS_PER_ROW
        ):
            self._last_subjects.append(subject)
        else:
            self._add(state.tenant, note, subject)

    def _add(self, tenant: str, note: Note, subject: SubjectTuple) -> None:
        self._last_note, self._last_tenant, self._last_subjects = note, tenant, [subject]
        self.pending.setdefault(tenant, []).append((note, self._last_subjects))

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
        filters = filters.within_retention(now)
        row_id, last_audit_id = (
            (2**63 - 1, "") if after is None else (number_in_cursor(after[0]), after[1])
        )
        with self._transaction:
            self.flush()
            page = self._page(tenant, filters, limit, row_id, last_audit_id)
        if isinstance(page, Unreadable):
            raise page
        return page

    def _page(
        self, tenant: str, filters: AuditFilters, limit: int, row_id: int, last_audit_id: str
    ) -> AuditPage | Unreadable:
        page_entries: list[AuditEntry] = []
        rows = self._rows(tenant, filters, row_id)
        for rows_read, (id_of_row, earliest, latest, encoded) in enumerate(rows, start=1):
            try:
                entries = newest_first(tenant, _decode(encoded), filters)
            except DECODING_ERRORS as error:
                self._transaction.damage.note("audit", (tenant, id_of_row), error)
                return _unreadable_range(earliest, latest)
            if id_of_row == row_id and last_audit_id:
                entries = [entry for entry in entries if entry.audit_id < last_audit_id]
            room = limit - len(page_entries)
            page_entries += entries[:room]
            if len(entries) > room:
                shown_audit_id = entries[room - 1].audit_id if room else ""
                return AuditPage(page_entries, (str(id_of_row), shown_audit_id))
            if rows_read == MAX_AUDIT_ROWS_READ:
                return AuditPage(page_entries, (str(id_of_row - 1), ""))
        return AuditPage(page_entries, None)

    def _rows(self, tenant: str, filters: AuditFilters, row_id: int) -> Iterator[_AuditRow]:
        """Yield the rows from `row_id` on that may match, the newest first."""
        start_micros = -1 if filters.start is None else to_micros(filters.start)
        end_micros = 2**63 - 1 if filters.end is None else to_micros(filters.end)
        while True:
            rows = self._transaction.db.execute(
                "SELECT id, earliest, latest, noted FROM audit "
                "WHERE tenant = ? AND id <= ? AND latest >= ? "
                "AND earliest < ? ORDER BY id DESC LIMIT ?",
                (tenant, row_id, start_micros, end_micros, _AUDIT_QUERY_ROWS),
            ).fetchall()
            yield from rows
            if len(rows) < _AUDIT_QUERY_ROWS:
                return
            row_id = rows[-1][0] - 1

    def flush(self) -> None:
        if not self.pending:
            return
        self._transaction.begin()
        rows = [
            (tenant, to_micros(min(times)), to_micros(max(times)), _encode(row_notes))
            for tenant, noted in self.pending.items()
            for row_notes in _group_by_row(noted)
            if (times := [note.at for note, _ in row_notes])
        ]
        self.on_rollback()
        self._transaction.db.executemany(
            "INSERT INTO audit (tenant, earliest, latest, noted) VALUES (?, ?, ?, ?)", rows
        )

    def on_rollback(self) -> None:
        self.pending.clear()
        self._last_note = None


def _unreadable_range(earliest: int, latest: int) -> Unreadable:
    """Return the error for an unreadable row.

    A list without its entries would hide the gap, so the error names the ranges that can be read.
    """
    start_at, end_at = from_micros(earliest), from_micros(latest + _MICROS_PER_MILLISECOND)
    return Unreadable(
        f"The audit entries from {format_time(start_at)} to {format_time(end_at)} cannot be read. "
        f"Request those before with to={format_time(start_at)}, and those after with "
        f"from={format_time(end_at)}."
    )


def _group_by_row(noted: Sequence[NotedSubjects]) -> Iterator[list[NotedSubjects]]:
    row_notes: list[NotedSubjects] = []
    size = 0
    for note, subjects in noted:
        if row_notes and size + len(subjects) > MAX_SUBJECTS_PER_ROW:
            yield row_notes
            row_notes, size = [], 0
        row_notes.append((note, subjects))
        size += len(subjects)
    if row_notes:
        yield row_notes
