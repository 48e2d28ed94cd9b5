"""/jobs: list and read."""

from typing import Any

import msgspec

from punctual.domain.head import Kind, State
from punctual.engine.search import JobFilters
from punctual.engine.views import Page
from punctual.web.conditions import etag
from punctual.web.query import LISTING, Query, filters_only, listing
from punctual.web.render_job import job_json, status_json
from punctual.web.request import Reply, Request, json_reply, quoted
from punctual.web.routing import Table, queried
from punctual.web.services import Reads, Services, checked_id

STATES = tuple(state.value for state in State)
KINDS = tuple(kind.value for kind in Kind)
_encode = msgspec.json.Encoder().encode
_FILTERS = ("status", "schedule_type", "name_prefix", "created_by", "tag")


class JobReading:
    def __init__(self, api: Reads | Services) -> None:
        self._api = api

    def declare(self, table: Table) -> None:
        table.get("/jobs")(self.find)
        table.get("/jobs/<job_id>")(self.read)
        table.get("/jobs/<job_id>/status")(self.status)

    @queried
    def find(self, request: Request) -> Reply:
        query = Query(request.query, (*_FILTERS, *LISTING), ("status", "tag"))
        filters = JobFilters(
            status=query.choices("status", STATES),
            schedule_type=query.choice("schedule_type", KINDS),
            name_prefix=query.text("name_prefix"),
            created_by=query.some("created_by"),
            tags=query.tags(),
        )
        limit, token = listing(query)
        query.finish()
        tenant, bound = request.caller.tenant, filters_only(request.query)
        after = self._api.pager.after(tenant, "jobs", bound, token, 1)
        page = self._api.search.jobs(tenant, filters, limit, after)
        now = self._api.clock()
        page, shown = self._fitting(page, [job_json(v, request.root, now) for v in page.items])
        value = {
            "jobs": shown,
            "next_token": self._api.pager.token(tenant, "jobs", bound, page.after),
        }
        return json_reply(200, value)

    def _fitting(self, page: Page, shown: list[Any]) -> tuple[Page, list[Any]]:
        """Payloads may be long: what does not fit into one answer comes with the next page."""
        if self._api.most is None:
            return page, shown
        weight = 0
        for number, job in enumerate(shown):
            weight += quoted(_encode(job)) + 1
            if weight > self._api.most and number:
                last = page.items[number - 1].head.job_id
                return Page(page.items[:number], (last,)), shown[:number]
        return page, shown

    def read(self, request: Request, job_id: str) -> Reply:
        view = self._api.search.job(request.caller.tenant, checked_id(job_id))
        tag = ("etag", etag(view.head.edition))
        return json_reply(200, job_json(view, request.root, self._api.clock()), tag)

    def status(self, request: Request, job_id: str) -> Reply:
        view = self._api.search.job(request.caller.tenant, checked_id(job_id))
        return json_reply(200, status_json(view, request.root, self._api.clock()))
