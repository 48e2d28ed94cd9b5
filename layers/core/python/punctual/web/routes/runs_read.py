"""Runs: list, read, and what they left behind."""

import re

from punctual.domain.run import RunStatus, Trigger
from punctual.engine.queries.jobs import By, RunFilters
from punctual.engine.queries.slices import Sliced
from punctual.web.features import NOT_INSTALLED
from punctual.web.http.query import PAGING_PARAMETERS, Query, filter_parameters, page_request
from punctual.web.http.request import Header, Reply, Request, json_reply
from punctual.web.routing import ANY_TYPE, RouteTable, produces, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.run import listed_run_json, run_json

RUN_STATUSES = tuple(status.value for status in RunStatus)
TRIGGERS = tuple(trigger.value for trigger in Trigger)
TEXT_MEDIA_TYPE = "text/plain"
MAX_LOG_OFFSET = 2**40
TIME_CHOICES = tuple(by.value for by in By)
_RUN_FILTERS = ("status", "trigger", "from", "to", "by")
_CONTENT_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[\x20-\x7e]*)?")
_BINARY_MEDIA_TYPE = "application/octet-stream"
# What a job printed is data: no browser may take it for a page of ours.
_UNTRUSTED_CONTENT_HEADERS: tuple[Header, ...] = (
    ("content-security-policy", "default-src 'none'; sandbox"),
)


class RunReadRoutes:
    def __init__(self, api: ReadServices | Services) -> None:
        self._api = api
        self._piece = api.most and api.most // 2  # bytes travel as base64

    def declare(self, table: RouteTable) -> None:
        table.get("/jobs/<job_id>/runs")(self.of_job)
        table.get("/runs")(self.of_all)
        table.get("/jobs/<job_id>/runs/<run_id>")(self.read)
        table.get("/jobs/<job_id>/runs/<run_id>/output")(self.output)
        table.get("/jobs/<job_id>/runs/<run_id>/logs")(self.logs)

    @takes_query
    def of_job(self, request: Request, job_id: str) -> Sliced[Reply]:
        return self._list(request, parse_id(job_id))

    @takes_query
    def of_all(self, request: Request) -> Sliced[Reply]:
        return self._list(request, None)

    def read(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        view = self._api.search.run(request.caller.tenant, *ids)
        return json_reply(200, run_json(view, request.root))

    @produces(ANY_TYPE)
    def output(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        found = self._api.search.output(request.caller.tenant, *ids)
        if found.link is not None:
            return Reply(302, b"", (("location", found.link),), "")
        kind = (
            found.content_type
            if _CONTENT_TYPE.fullmatch(found.content_type)
            else _BINARY_MEDIA_TYPE
        )
        name = ("content-disposition", f'attachment; filename="{ids[1]}"')
        cut = ("x-output-truncated", "true" if found.truncated else "false")
        return Reply(200, found.data, (name, cut, *_UNTRUSTED_CONTENT_HEADERS), kind)

    @produces(TEXT_MEDIA_TYPE)
    @takes_query
    def logs(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        query = Query(request.query, ("after",))
        after = query.number("after", 0, 0, MAX_LOG_OFFSET)
        query.finish()
        found = self._api.search.logs(request.caller.tenant, *ids, after)
        data = found.data[: self._piece]
        end = after + len(data)
        if found.missing and len(data) == len(found.data):
            data += f"\n[The log is damaged: {found.missing} bytes cannot be read.]\n".encode()
            end += found.missing  # a client that goes on from there is at the end
        following = ("x-next-offset", str(end))
        return Reply(
            200, data, (following, *_UNTRUSTED_CONTENT_HEADERS), f"{TEXT_MEDIA_TYPE}; charset=utf-8"
        )

    def _list(self, request: Request, job_id: str | None) -> Sliced[Reply]:
        query = Query(request.query, (*_RUN_FILTERS, *PAGING_PARAMETERS), ("status",))
        start, end = query.range("from", "to")
        by = query.choice("by", TIME_CHOICES)
        if (
            job_id is None
            and by not in ("", By.SCHEDULED.value)
            and not self._api.lists_by_any_time
        ):
            query.wrong("by", f"over all jobs it is scheduled: the others are {NOT_INSTALLED}")
        filters = RunFilters(
            status=query.choices("status", RUN_STATUSES),
            trigger=query.choice("trigger", TRIGGERS),
            start=start,
            end=end,
            by=By(by) if by in TIME_CHOICES else By.SCHEDULED,
        )
        limit, token = page_request(query)
        query.finish()
        tenant, bound = request.caller.tenant, filter_parameters(request.query)
        listed = f"runs {job_id or ''}"
        after = self._api.pager.after(tenant, listed, bound, token, 1 if job_id else 2)
        page = yield from self._api.search.runs(tenant, job_id, filters, limit, after)
        value = {
            "runs": [listed_run_json(view, request.root) for view in page.items],
            "next_token": self._api.pager.token(tenant, listed, bound, page.after),
        }
        return json_reply(200, value)
