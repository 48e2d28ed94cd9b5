"""GET /failures: list what failed and has not succeeded since."""

from punctual.engine.ports.rows import JobKey, Page
from punctual.engine.queries.overview.failures import FailureQueries
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, installed, parse_id
from punctual.web.views.failure import failure_json

CURSOR_PARTS, JOB_CURSOR_PARTS = 3, 2


class FailureReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get("/failures")(self.list_failures)

    @takes_query
    def list_failures(self, request: Request) -> Reply:
        query = Query(request.query, ("job_id", *PAGING_PARAMETERS))
        paging = Paging.of(request, query, "failures")
        job_id = query.filter_text("job_id")
        query.finish()
        page = self._page(paging, parse_id(job_id) if job_id else None)
        failures = [failure_json(view) for view in page.items]
        next_token = paging.next_token(page.next_cursor)
        return json_reply(200, {"failures": failures, "next_token": next_token})

    def _page(self, paging: Paging, job_id: str | None) -> Page:
        if job_id is None:
            return self._queries().page(paging.tenant, paging.limit, paging.cursor(CURSOR_PARTS))
        key, after = JobKey(paging.tenant, job_id), paging.cursor(JOB_CURSOR_PARTS)
        return self._queries().page_of_job(key, paging.limit, after)

    def _queries(self) -> FailureQueries:
        return installed(self._services.failure_queries, "/failures")
