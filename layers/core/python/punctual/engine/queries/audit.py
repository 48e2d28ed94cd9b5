"""Reads the audit. Each entry comes with the definitions that it is about."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from punctual.engine.commands.audit import JOB_UPDATE
from punctual.engine.ports.audit_log import AuditFilters, AuditLog, Entry
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import DefinitionRow, Key
from punctual.engine.queries.views import Page


class AuditLine(NamedTuple):
    """An audit entry. `before` and `after` are definitions if the entry changed one."""

    entry: Entry
    before: DefinitionRow | None = None
    after: DefinitionRow | None = None


class AuditQueries:
    """Reads audit pages.

    Definitions never change and outlive the entries, so each page reads them on demand.
    """

    def __init__(self, log: AuditLog, heads: JobStates) -> None:
        self._log = log
        self._heads = heads

    def page(
        self,
        tenant: str,
        filters: AuditFilters,
        limit: int,
        after: tuple[str, ...] | None,
        now: datetime,
    ) -> Page:
        found = self._log.page(tenant, filters, limit, after, now)
        return Page(self._lines(tenant, found.entries), found.after)

    def _lines(self, tenant: str, entries: Sequence[Entry]) -> list[AuditLine]:
        wanted = [
            (Key(tenant, entry.subject.job_id), ref)
            for entry in entries
            for ref in (entry.note.former, entry.subject.ref)
            if ref
        ]
        bodies = self._heads.bodies(wanted) if wanted else {}
        lines = []
        for entry in entries:
            key = Key(tenant, entry.subject.job_id)
            former = entry.note.former if entry.note.action == JOB_UPDATE else ""
            before, after = bodies.get((key, former)), bodies.get((key, entry.subject.ref))
            lines.append(AuditLine(entry, before, after))
        return lines
