"""GET /audit: list the changes that callers made."""

from collections.abc import Sequence
from typing import Any

import msgspec

from punctual.domain.errors import NotFound
from punctual.engine.commands.audit import ACTIONS
from punctual.engine.ports.audit_log import AuditFilters
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply, quoted_size
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.audit import audit_entry_json

_AUDIT_FILTERS = ("job_id", "caller", "action", "from", "to")
_encode = msgspec.json.Encoder().encode


class AuditReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get("/audit")(self.list_entries)

    @takes_query
    def list_entries(self, request: Request) -> Reply:
        query = Query(request.query, (*_AUDIT_FILTERS, *PAGING_PARAMETERS))
        start, end = query.range("from", "to")
        filters = AuditFilters(
            job_id=_job_id(query),
            caller=query.filter_text("caller"),
            action=query.choice("action", ACTIONS),
            start=start,
            end=end,
        )
        paging = Paging.of(request, query, "audit")
        query.finish()
        audit, now = self._services.queries.audit, self._services.clock()
        cursor = paging.cursor(2)
        page = audit.page(paging.tenant, filters, paging.limit, cursor, now)
        entries = [audit_entry_json(entry) for entry in page.items]
        if self._is_too_long(entries):
            # A cursor is the end of a page read from the store, so a shorter page is read.
            page = audit.page(paging.tenant, filters, max(1, paging.limit // 8), cursor, now)
            entries = [audit_entry_json(entry) for entry in page.items]
        return json_reply(
            200, {"entries": entries, "next_token": paging.next_token(page.next_cursor)}
        )

    def _is_too_long(self, entries: Sequence[Any]) -> bool:
        max_bytes = self._services.max_response_bytes
        if max_bytes is None:
            return False
        return sum(quoted_size(_encode(entry)) + 1 for entry in entries) > max_bytes


def _job_id(query: Query) -> str:
    if not query.values("job_id"):
        return ""
    try:
        return parse_id(query.text("job_id"))
    except NotFound:
        query.add_error("job_id", "must be a job's id")
        return ""
