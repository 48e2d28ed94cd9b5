"""The node's HTTP server: an ASGI application over the routes."""

import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from punctual.domain.errors import PunctualError
from punctual.domain.tenants.roles import Role
from punctual.engine.commands.jobs import Jobs
from punctual.engine.commands.tokens import Tokens
from punctual.engine.ports.quotas import LimitsOf, Quotas
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import SlicedWork
from punctual.engine.quotas.limits import unlimited
from punctual.identity import new_id as id_maker
from punctual.node import clock as clocks
from punctual.node.features import FEATURES
from punctual.node.http.authentication import NodeAuthenticator
from punctual.node.http.own_user import LOCAL, OwnUser
from punctual.node.http.parsing import ROOT as ROOT
from punctual.node.http.parsing import Gone, Receive, body_of, headers_of, path_of
from punctual.node.http.peers import Address
from punctual.node.long_work import LongWork, Turn
from punctual.web.app import build_routes
from punctual.web.features import Features
from punctual.web.http.guards import check_body_headers, check_loopback
from punctual.web.http.problems import RequestRejected, internal_error_reply, problem_reply
from punctual.web.http.request import COMMON_HEADERS, Caller, Reply, Request
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routing import Log
from punctual.web.services import ReadWebhookSecret, Services, no_webhook_secret
from punctual.web.views.system import InstallationInfo, Login

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Begun = Reply | SlicedWork[Reply]  # the answer, or the rest of its work

TOGETHER = 100  # jobs of a batch that are stored in one step
HEALTH, LIVE, READY = "/health", "/health/live", "/health/ready"
OWNER = "owner"  # key in the scope's state: the user id that owns the client's socket
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_COMMON = [(name.encode(), value.encode()) for name, value in COMMON_HEADERS]


def application(
    jobs: Jobs,
    search: JobQueries,
    turn: Turn,
    log: Log,
    tokens: Tokens,
    *,
    clock: Callable[[], datetime] = clocks.wall,
    new_id: Callable[[], str] | None = None,
    features: Features = FEATURES,
    access: Callable[..., None] | None = None,
    quotas: Quotas | None = None,
    limits_of: LimitsOf = unlimited,
    door: NodeAuthenticator | None = None,
    own_user: OwnUser | None = None,
    webhook_secret: ReadWebhookSecret = no_webhook_secret,
    sandbox: str | None = None,
    login: Login | None = None,
) -> "Application":
    """Return the ASGI application of the node.

    `access`, if given, is called with the method, path, status and id of each answer. Without a
    `door` no tokens are needed: `own_user` admits the callers, or all are admitted.
    """
    about = InstallationInfo(_version(), tuple(features.task_types), sandbox, login)
    admit = None if quotas is None else quotas.call
    services = Services(
        jobs,
        search,
        clock,
        features,
        about,
        tokens,
        limits_of=limits_of,
        admit=admit,
        webhook_secret=webhook_secret,
        max_jobs_per_write=TOGETHER,
    )
    return Application(services, turn, log, new_id or id_maker(clock), access, door, own_user)


class Application:
    """The ASGI application of the node. A turn of the event loop answers a request."""

    def __init__(
        self,
        services: Services,
        turn: Turn,
        log: Log,
        new_id: Callable[[], str],
        access: Callable[..., None] | None,
        door: NodeAuthenticator | None,
        own_user: OwnUser | None,
    ) -> None:
        self._answer = build_routes(services, log).answer
        reads = ScheduleRoutes(services)
        self._no_answers = {HEALTH: reads.no_answer, READY: reads.not_ready}
        self._turn = turn
        self._long_work = LongWork(turn)
        self._log = log
        self._new_id = new_id
        self._access = access
        self._door = door
        self._own_user = own_user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        request_id = self._new_id()
        try:
            reply = await self._reply(scope, receive, request_id)
        except Gone:
            return
        except Exception as error:
            reply = self._failed(error, "", request_id)
        await _send(send, reply, request_id)
        if self._access is not None:
            names = {"method": scope["method"], "path": scope["path"], "status": reply.status}
            self._access("answered", **names, request_id=request_id)

    def owner(self, client: Address | None, server: Address | None) -> int | None:
        """Return the user that owns the socket at `client`, or None if it is unknown or unused."""
        if self._own_user is None or client is None or server is None:
            return None
        return self._own_user.owner(client, server)

    def refusal(self, error: RequestRejected) -> tuple[Reply, str]:
        """Return the answer to a malformed or incomplete request, and its id."""
        request_id = self._new_id()
        return problem_reply(error, request_id), request_id

    async def _reply(self, scope: Scope, receive: Receive, request_id: str) -> Reply:
        caller = await self._caller(scope)
        headers, query = headers_of(scope["headers"]), scope["query_string"]
        check_loopback(headers)
        path = path_of(scope["raw_path"], query)
        limit = check_body_headers(path, headers)
        body = b""
        if b"content-length" in headers or b"transfer-encoding" in headers:
            body = await body_of(receive, limit)
        text = query.decode("latin-1")
        request = Request(scope["method"], path, text, headers, body, caller, request_id, ROOT)
        begin = partial(self._begin, request)
        try:
            # LIVE does not read the store. It is answered even if every transaction fails.
            answer = begin() if path == LIVE else await self._turn(begin)
            if isinstance(answer, Reply):
                return answer
            return await self._long_work.finish(caller.tenant, answer)
        except Exception as error:
            return self._failed(error, path, request_id)

    async def _caller(self, scope: Scope) -> Caller:
        headers, path = scope["headers"], scope["raw_path"]
        peer = (scope.get("client") or ("",))[0]
        if self._door is not None:
            return await self._door.caller(path, headers, peer)
        if self._own_user is not None:
            owner = (scope.get("state") or {}).get(OWNER)
            return self._own_user.caller(path, headers, peer, owner)
        return _local_admin(peer)

    def _begin(self, request: Request) -> Begun:
        answer = self._answer(request)
        return answer if isinstance(answer, Reply) else self._long_work.begin(answer)

    def _failed(self, error: Exception, path: str, request_id: str) -> Reply:
        """Return the answer to a request after its turn was rolled back."""
        if isinstance(error, PunctualError):
            no_answer = self._no_answers.get(path)
            return problem_reply(error, request_id) if no_answer is None else no_answer()
        self._log("request_failed", request_id=request_id, error=type(error).__name__)
        return internal_error_reply(request_id)


@lru_cache(maxsize=64)
def _local_admin(peer: str) -> Caller:
    return Caller(LOCAL, LOCAL, Role.ADMIN, "", peer)


async def _send(send: Send, reply: Reply, request_id: str) -> None:
    if any(_CONTROL.search(value) for _, value in (*reply.headers, ("", reply.content_type))):
        reply = internal_error_reply(request_id)  # a stored value must not write a header
    headers = [
        (b"content-length", b"%d" % len(reply.body)),
        (b"x-request-id", request_id.encode()),
        *_COMMON,
    ]
    if reply.content_type:
        headers.append((b"content-type", reply.content_type.encode("latin-1")))
    for name, value in reply.headers:
        headers.append((name.encode("latin-1"), value.encode("latin-1")))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _version() -> str:
    try:
        return version("punctual")
    except PackageNotFoundError:
        return "unknown"
