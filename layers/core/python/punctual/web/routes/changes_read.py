"""GET /changes: follow the changes of jobs, runs and operations."""

import re

import msgspec
from msgspec import Raw

from punctual.domain.errors import Invalid, Unavailable
from punctual.engine.ports.lists.change_feed import ChangeFilters, ChangeKind
from punctual.engine.queries.changes import CHANGES_PER_STEP, ChangeQueries
from punctual.engine.queries.slices import Sliced
from punctual.web.http.paging import page_cursor, page_token
from punctual.web.http.query import Query
from punctual.web.http.request import ChangeWait, Reply, Request, json_reply
from punctual.web.routing import RouteTable, takes_query
from punctual.web.services import ReadServices, Services
from punctual.web.views.change import change_json

CHANGES_PATH = "/changes"
CHANGE_KINDS = tuple(kind.value for kind in ChangeKind)
MAX_WAIT_SECONDS = 20
_LIST_NAME = "changes"
_CURSOR_FORM = re.compile("[A-Za-z0-9_-]*")
_PARAMETERS = ("after", "job_id", "run_id", "kind", "wait_seconds")
_MAX_CURSOR_PARTS = 80
_encode = msgspec.json.Encoder().encode


class ChangeRoutes:
    def __init__(self, services: ReadServices | Services) -> None:
        self._services = services

    def declare(self, table: RouteTable) -> None:
        table.get(CHANGES_PATH)(self.list_changes)

    @takes_query
    def list_changes(self, request: Request) -> Sliced[Reply]:
        query = Query(request.query, _PARAMETERS, ("kind",))
        kinds = query.choices("kind", CHANGE_KINDS)
        job_id, run_id = query.uuid("job_id"), query.uuid("run_id")
        wait_seconds = query.number("wait_seconds", 0, 0, MAX_WAIT_SECONDS)
        token = query.text("after")
        if not _CURSOR_FORM.fullmatch(token):
            query.add_error("after", "must be a cursor of this feed: letters, digits, - and _")
        query.finish()
        filters = ChangeFilters(job_id, run_id, frozenset(map(ChangeKind, kinds)))
        tenant = request.caller.tenant
        cursor, is_known = _parse_cursor(tenant, token)
        must_pause = self._services.must_pause
        wait = None
        if wait_seconds and cursor is not None and must_pause is not None:
            wait = ChangeWait(tenant, filters, wait_seconds)
            if not request.is_resumed and must_pause(tenant):
                return Reply(204, wait=wait)
        since = yield from self._queries.since(
            tenant, cursor, filters, self._services.clock(), is_known
        )
        changes: list[Raw] = []
        for number, change in enumerate(since.changes, 1):
            changes.append(Raw(_encode(change_json(change, request.root))))
            if number % CHANGES_PER_STEP == 0:
                yield
        answer = {
            "changes": changes,
            "next_cursor": page_token(tenant, _LIST_NAME, {}, since.cursor),
            "gap": since.gap,
            "poll_seconds": since.poll_seconds if must_pause is None or not wait_seconds else 0,
        }
        is_complete = bool(changes) or since.gap or since.has_more
        return json_reply(200, answer)._replace(
            wait=None if is_complete or wait is None else wait._replace(cursor=since.cursor)
        )

    @property
    def _queries(self) -> ChangeQueries:
        changes = self._services.queries.changes
        if changes is None:
            raise Unavailable("This server has no change feed.")
        return changes


def _parse_cursor(tenant: str, token: str) -> tuple[tuple[str, ...] | None, bool]:
    """Return the cursor of a token, and whether it could be read."""
    try:
        return page_cursor(tenant, _LIST_NAME, {}, token, *range(1, _MAX_CURSOR_PARTS)), True
    except Invalid:
        return None, False
