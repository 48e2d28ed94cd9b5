"""/audit: who changed what."""

from typing import Any

import msgspec

from punctual.domain.errors import NotFound
from punctual.engine.commands.audit import ACTIONS, AuditFilters
from punctual.web.http.query import PAGING_PARAMETERS, Query, filter_parameters, page_request
from punctual.web.http.request import Reply, Request, json_reply, quoted_size
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.audit import audit_entry_json

_AUDIT_FILTERS = ("job_id", "caller", "action", "from", "to")
_PAGING_SCOPE = "audit"
_encode = msgspec.json.Encoder().encode


class AuditReadRoutes:
    def __init__(self, api: ReadServices | Services) -> None:
        self._api = api

    def declare(self, table: RouteTable) -> None:
        table.get("/audit")(self.find)

    @takes_query
    def find(self, request: Request) -> Reply:
        query = Query(request.query, (*_AUDIT_FILTERS, *PAGING_PARAMETERS))
        start, end = query.range("from", "to")
        filters = AuditFilters(
            job_id=_job_id(query),
            caller=query.some("caller"),
            action=query.choice("action", ACTIONS),
            start=start,
            end=end,
        )
        limit, token = page_request(query)
        query.finish()
        tenant, bound = request.caller.tenant, filter_parameters(request.query)
        pager, log = self._api.pager, self._api.search.audit
        after, now = pager.after(tenant, _PAGING_SCOPE, bound, token, 2), self._api.clock()
        page = log.page(tenant, filters, limit, after, now)
        shown = [audit_entry_json(line) for line in page.items]
        if self._too_long(shown):  # fewer, then: a place is where a page ended
            page = log.page(tenant, filters, max(1, limit // 8), after, now)
            shown = [audit_entry_json(line) for line in page.items]
        value = {
            "entries": shown,
            "next_token": pager.token(tenant, _PAGING_SCOPE, bound, page.after),
        }
        return json_reply(200, value)

    def _too_long(self, shown: list[Any]) -> bool:
        most = self._api.most
        return most is not None and sum(quoted_size(_encode(one)) + 1 for one in shown) > most


def _job_id(query: Query) -> str:
    if not query.all("job_id"):
        return ""
    try:
        return parse_id(query.text("job_id"))
    except NotFound:
        query.wrong("job_id", "must be a job's id")
        return ""
