"""GET runs: list and read runs, their output and their logs."""

import re

from punctual.engine.queries.slices import Sliced
from punctual.web.http.paging import Paging
from punctual.web.http.query import PAGING_PARAMETERS, Query
from punctual.web.http.request import Header, Reply, Request, json_reply
from punctual.web.http.run_filters import (
    JOB_RUN_FILTERS,
    REPEATED_RUN_FILTERS,
    RUN_FILTERS,
    read_run_filters,
)
from punctual.web.routing import ANY_MEDIA_TYPE, RouteTable, produces, takes_query
from punctual.web.services import ReadServices, Services, parse_id
from punctual.web.views.run import listed_run_json, run_json

TEXT_MEDIA_TYPE = "text/plain"
MAX_LOG_OFFSET = 2**40
_CONTENT_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(?:\s*;[\x20-\x7e]*)?")
_BINARY_MEDIA_TYPE = "application/octet-stream"
# Output is data of a user. A browser must not run it as a page of this server.
_UNTRUSTED_CONTENT_HEADERS: tuple[Header, ...] = (
    ("content-security-policy", "default-src 'none'; sandbox"),
)


class RunReadRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services
        max_bytes = services.max_response_bytes
        self._max_log_bytes = max_bytes and max_bytes // 2  # base64 makes them longer

    def declare(self, table: RouteTable) -> None:
        table.get("/jobs/<job_id>/runs")(self.list_of_job)
        table.get("/runs")(self.list_of_tenant)
        table.get("/jobs/<job_id>/runs/<run_id>")(self.read)
        table.get("/jobs/<job_id>/runs/<run_id>/output")(self.output)
        table.get("/jobs/<job_id>/runs/<run_id>/logs")(self.logs)

    @takes_query
    def list_of_job(self, request: Request, job_id: str) -> Sliced[Reply]:
        return self._list(request, parse_id(job_id))

    @takes_query
    def list_of_tenant(self, request: Request) -> Sliced[Reply]:
        return self._list(request, None)

    def read(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        view = self._services.queries.run(request.caller.tenant, *ids)
        return json_reply(200, run_json(view, request.root))

    @produces(ANY_MEDIA_TYPE)
    def output(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        output = self._services.queries.output(request.caller.tenant, *ids)
        truncated = ("x-output-truncated", "true" if output.truncated else "false")
        if output.link is not None:
            return Reply(302, b"", (("location", output.link), truncated), "")
        content_type = output.content_type
        if not _CONTENT_TYPE.fullmatch(content_type):
            content_type = _BINARY_MEDIA_TYPE
        headers = (
            ("content-disposition", f'attachment; filename="{ids[1]}"'),
            truncated,
            *_UNTRUSTED_CONTENT_HEADERS,
        )
        return Reply(200, output.data, headers, content_type, output.content)

    @produces(TEXT_MEDIA_TYPE)
    @takes_query
    def logs(self, request: Request, job_id: str, run_id: str) -> Reply:
        ids = parse_id(job_id), parse_id(run_id, "run")
        query = Query(request.query, ("after",))
        after = query.number("after", 0, 0, MAX_LOG_OFFSET)
        query.finish()
        piece = self._services.queries.logs(request.caller.tenant, *ids, after)
        data = piece.data[: self._max_log_bytes]
        end = after + len(data)
        if piece.missing_bytes and len(data) == len(piece.data):
            data += (
                f"\n[The log is damaged: {piece.missing_bytes} bytes cannot be read.]\n".encode()
            )
            end += piece.missing_bytes  # the next offset is the end of the log
        headers = (("x-next-offset", str(end)), *_UNTRUSTED_CONTENT_HEADERS)
        return Reply(200, data, headers, f"{TEXT_MEDIA_TYPE}; charset=utf-8")

    def _list(self, request: Request, job_id: str | None) -> Sliced[Reply]:
        allowed = RUN_FILTERS if job_id is None else JOB_RUN_FILTERS
        query = Query(request.query, (*allowed, *PAGING_PARAMETERS), REPEATED_RUN_FILTERS)
        filters = read_run_filters(query)
        paging = Paging.of(request, query, f"runs {job_id or ''}")
        query.finish()
        page = yield from self._services.queries.runs(
            paging.tenant, job_id, filters, paging.limit, paging.cursor(1 if job_id else 2)
        )
        runs = [listed_run_json(view, request.root) for view in page.items]
        return json_reply(200, {"runs": runs, "next_token": paging.next_token(page.next_cursor)})
