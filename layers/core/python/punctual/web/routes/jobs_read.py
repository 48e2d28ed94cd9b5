"""/jobs: list and read."""

import msgspec
from msgspec import Raw

from punctual.domain.job_state import JobStatus, Kind
from punctual.engine.queries.jobs import JobFilters
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Page
from punctual.web.http.conditions import etag
from punctual.web.http.query import PAGING_PARAMETERS, Query, filter_parameters, page_request
from punctual.web.http.request import Reply, Request, json_reply, quoted_size
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.job import job_json, status_json

JOB_STATUSES = tuple(state.value for state in JobStatus)
SCHEDULE_TYPES = tuple(kind.value for kind in Kind)
_encode = msgspec.json.Encoder().encode
_JOB_FILTERS = ("status", "schedule_type", "name_prefix", "created_by", "tag")


class JobReadRoutes:
    def __init__(self, api: ReadServices | Services) -> None:
        self._api = api

    def declare(self, table: RouteTable) -> None:
        table.get("/jobs")(self.find)
        table.get("/jobs/<job_id>")(self.read)
        table.get("/jobs/<job_id>/status")(self.status)

    @takes_query
    def find(self, request: Request) -> Sliced[Reply]:
        query = Query(request.query, (*_JOB_FILTERS, *PAGING_PARAMETERS), ("status", "tag"))
        filters = JobFilters(
            status=query.choices("status", JOB_STATUSES),
            schedule_type=query.choice("schedule_type", SCHEDULE_TYPES),
            name_prefix=query.text("name_prefix"),
            created_by=query.some("created_by"),
            tags=query.tags(),
        )
        limit, token = page_request(query)
        query.finish()
        tenant, bound = request.caller.tenant, filter_parameters(request.query)
        after = self._api.pager.after(tenant, "jobs", bound, token, 1)
        page = yield from self._api.search.jobs(tenant, filters, limit, after)
        page, shown = yield from self._fitting(page, request)
        value = {
            "jobs": shown,
            "next_token": self._api.pager.token(tenant, "jobs", bound, page.after),
        }
        return json_reply(200, value)

    def _fitting(self, page: Page, request: Request) -> Sliced[tuple[Page, list[Raw]]]:
        """Payloads may be long: what does not fit into one answer comes with the next page."""
        now, most = self._api.clock(), self._api.most
        shown: list[Raw] = []
        weight = 0
        for number, view in enumerate(page.items):
            job = _encode(job_json(view, request.root, now))
            if most is not None:
                weight += quoted_size(job) + 1
                if weight > most and number:
                    last = page.items[number - 1].head.job_id
                    return Page(page.items[:number], (last,)), shown
            shown.append(Raw(job))
            yield
        return page, shown

    def read(self, request: Request, job_id: str) -> Reply:
        view = self._api.search.job(request.caller.tenant, parse_id(job_id))
        tag = ("etag", etag(view.head.edition))
        return json_reply(200, job_json(view, request.root, self._api.clock()), tag)

    def status(self, request: Request, job_id: str) -> Reply:
        view = self._api.search.job(request.caller.tenant, parse_id(job_id))
        return json_reply(200, status_json(view, request.root, self._api.clock()))
