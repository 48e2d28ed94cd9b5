"""GET /jobs: list and read jobs."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from punctual.engine.ports.lists.job_index import JobQuery, JobSort
from punctual.engine.ports.rows import Page
from punctual.engine.queries.job_versions import VersionView
from punctual.engine.queries.recent_runs import MAX_RECENT_RUNS
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import JobView
from punctual.web.http.guards import etag
from punctual.web.http.job_filters import (
    JOB_FILTERS,
    REPEATED_JOB_FILTERS,
    read_job_filters,
    read_job_sort,
)
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Reply, Request, json_reply, quoted_size
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.job import job_json, status_json
from punctual.web.views.version import version_json

MAX_PAGE_BYTES = 64 * 1024 * 1024  # where no gateway limits an answer
_encode = msgspec.json.Encoder().encode


class JobReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get("/jobs")(self.list_jobs)
        table.get("/jobs/<job_id>")(self.read)
        table.get("/jobs/<job_id>/status")(self.status)
        table.get("/jobs/<job_id>/versions")(self.versions)

    @takes_query
    def list_jobs(self, request: Request) -> Sliced[Reply]:
        allowed = (*JOB_FILTERS, "sort", "recent", *PAGING_PARAMETERS)
        query = Query(request.query, allowed, REPEATED_JOB_FILTERS)
        filters, sort = read_job_filters(query), read_job_sort(query)
        recent = query.number("recent", 0, 1, MAX_RECENT_RUNS) or None
        paging = Paging.of(request, query, "jobs")
        query.finish()
        page = yield from self._services.queries.jobs(
            paging.tenant,
            JobQuery(filters, sort),
            paging.limit,
            paging.cursor(1 if sort is JobSort.CREATED else 2),
        )
        now = self._services.clock()
        page, jobs = yield from self._fit(
            page, lambda view: job_json(view, request.root, now, recent), _position_of_job
        )
        return json_reply(200, {"jobs": jobs, "next_token": paging.next_token(page.next_cursor)})

    @takes_query
    def versions(self, request: Request, job_id: str) -> Sliced[Reply]:
        job_id = parse_id(job_id)
        query = Query(request.query, PAGING_PARAMETERS)
        paging = Paging.of(request, query, f"versions {job_id}")
        query.finish()
        page = yield from self._services.queries.versions(
            paging.tenant, job_id, paging.limit, paging.cursor(1)
        )
        page, versions = yield from self._fit(page, version_json, _version_cursor)
        return json_reply(
            200, {"versions": versions, "next_token": paging.next_token(page.next_cursor)}
        )

    def _fit(
        self,
        page: Page,
        to_json: Callable[[Any], dict[str, Any]],
        cursor_of: Callable[[Any], tuple[str, ...]],
    ) -> Sliced[tuple[Page, list[Raw]]]:
        """Return the items that fit into one answer. The next page begins with the others."""
        max_bytes = self._services.max_response_bytes or MAX_PAGE_BYTES
        items: list[Raw] = []
        size = 0
        for index, view in enumerate(page.items):
            item = _encode(to_json(view))
            size += quoted_size(item) + 1
            if size > max_bytes and index:
                return Page(page.items[:index], cursor_of(page.items[index - 1])), items
            items.append(Raw(item))
            yield
        return page, items

    def read(self, request: Request, job_id: str) -> Reply:
        view = self._services.queries.job(request.caller.tenant, parse_id(job_id))
        etag_header = ("etag", etag(view.state.edition))
        return json_reply(200, job_json(view, request.root, self._services.clock()), etag_header)

    def status(self, request: Request, job_id: str) -> Reply:
        view = self._services.queries.job(request.caller.tenant, parse_id(job_id))
        return json_reply(200, status_json(view, request.root, self._services.clock()))


def _position_of_job(view: JobView) -> tuple[str, ...]:
    return view.position


def _version_cursor(view: VersionView) -> tuple[str, ...]:
    return (view.definition.ref,)
