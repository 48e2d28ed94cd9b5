"""An in-memory audit."""

from datetime import datetime

from punctual.domain.job_state import JobState
from punctual.engine.commands.audit import newest_first, subject_of
from punctual.engine.ports.audit_log import AuditFilters, AuditPage, Note, NoteWithSubjects, Subject


class MemoryAudit:
    def __init__(self) -> None:
        self.noted: dict[str, list[NoteWithSubjects]] = {}

    def add_note(self, tenant: str, note: Note) -> None:
        self.noted.setdefault(tenant, []).append(NoteWithSubjects(note, [Subject()]))

    def changed(self, note: Note, head: JobState) -> None:
        entry = NoteWithSubjects(note, [subject_of(note, head)])
        self.noted.setdefault(head.tenant, []).append(entry)

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> AuditPage:
        entries = newest_first(tenant, self.noted.get(tenant, []), filters.within_retention(now))
        remaining = [entry for entry in entries if after is None or entry.audit_id < after[0]]
        more = len(remaining) > limit
        return AuditPage(remaining[:limit], (remaining[limit - 1].audit_id,) if more else None)
