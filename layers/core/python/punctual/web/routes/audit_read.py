"""/audit: who changed what."""

from typing import Any

import msgspec

from punctual.domain.errors import NotFound
from punctual.engine.commands.audit import ACTIONS, AuditFilters
from punctual.web.http.query import LISTING, Query, filters_only, listing
from punctual.web.http.request import Reply, Request, json_reply, quoted
from punctual.web.routing import Table, queried
from punctual.web.services import Reads, Services, checked_id
from punctual.web.views.audit import line_json

_FILTERS = ("job_id", "caller", "action", "from", "to")
_LISTED = "audit"
_encode = msgspec.json.Encoder().encode


class AuditReading:
    def __init__(self, api: Reads | Services) -> None:
        self._api = api

    def declare(self, table: Table) -> None:
        table.get("/audit")(self.find)

    @queried
    def find(self, request: Request) -> Reply:
        query = Query(request.query, (*_FILTERS, *LISTING))
        start, end = query.range("from", "to")
        filters = AuditFilters(
            job_id=_job_id(query),
            caller=query.some("caller"),
            action=query.choice("action", ACTIONS),
            start=start,
            end=end,
        )
        limit, token = listing(query)
        query.finish()
        tenant, bound = request.caller.tenant, filters_only(request.query)
        pager, log = self._api.pager, self._api.search.audit
        after, now = pager.after(tenant, _LISTED, bound, token, 2), self._api.clock()
        page = log.page(tenant, filters, limit, after, now)
        shown = [line_json(line) for line in page.items]
        if self._too_long(shown):  # fewer, then: a place is where a page ended
            page = log.page(tenant, filters, max(1, limit // 8), after, now)
            shown = [line_json(line) for line in page.items]
        value = {"entries": shown, "next_token": pager.token(tenant, _LISTED, bound, page.after)}
        return json_reply(200, value)

    def _too_long(self, shown: list[Any]) -> bool:
        most = self._api.most
        return most is not None and sum(quoted(_encode(one)) + 1 for one in shown) > most


def _job_id(query: Query) -> str:
    if not query.all("job_id"):
        return ""
    try:
        return checked_id(query.text("job_id"))
    except NotFound:
        query.wrong("job_id", "must be a job's id")
        return ""
