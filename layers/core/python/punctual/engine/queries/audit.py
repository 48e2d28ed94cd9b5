"""Reads the audit. Each entry comes with the definitions that it is about."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.engine.commands.audit import JOB_UPDATE
from punctual.engine.ports.audit_log import AuditEntry, AuditFilters, AuditLog
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import DefinitionRow, JobKey, Page


class AuditEntryView(NamedTuple):
    """An audit entry. `before` and `after` are definitions if the entry changed one."""

    entry: AuditEntry
    before: DefinitionRow | None = None
    after: DefinitionRow | None = None


class AuditQueries:
    """Reads audit pages.

    Definitions never change and outlive the entries, so each page reads them on demand.
    """

    def __init__(self, audit_log: AuditLog, job_states: JobStates) -> None:
        self._audit_log = audit_log
        self._job_states = job_states

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Page:
        page = self._audit_log.page(tenant, filters, limit, after, now)
        return Page(self._entry_views(tenant, page.entries), page.next_cursor)

    def _entry_views(self, tenant: str, entries: Sequence[AuditEntry]) -> list[AuditEntryView]:
        refs = [
            (JobKey(tenant, entry.subject.job_id), ref)
            for entry in entries
            for ref in (entry.note.replaced_ref, entry.subject.definition_ref)
            if ref
        ]
        definitions = self._job_states.load_definitions(refs) if refs else {}
        views = []
        for entry in entries:
            key = JobKey(tenant, entry.subject.job_id)
            replaced_ref = entry.note.replaced_ref if entry.note.action == JOB_UPDATE else ""
            before = definitions.get((key, replaced_ref))
            after = definitions.get((key, entry.subject.definition_ref))
            views.append(AuditEntryView(entry, before, after))
        return views
