"""The node's HTTP server: an ASGI application over the routes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from datetime import datetime
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from punctual import identity
from punctual.domain.errors import PunctualError
from punctual.domain.task_limits import CONTROL_IN_HEADER
from punctual.domain.tenants.roles import Role
from punctual.engine.commands.artifacts import Artifacts
from punctual.engine.commands.failures import FailureCommands
from punctual.engine.commands.jobs import Jobs
from punctual.engine.commands.secrets import Secrets
from punctual.engine.commands.tokens import Tokens
from punctual.engine.execution.claims import Claims
from punctual.engine.operations.commands import OperationCommands
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import LimitsOf, Quotas
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import SlicedWork
from punctual.engine.queries.views import LongContent
from punctual.engine.quotas.limits import unlimited
from punctual.node.clock import wall
from punctual.node.features import NODE_FEATURES
from punctual.node.files.uploads import UPLOAD_PATH
from punctual.node.http.authentication import NodeAuthenticator
from punctual.node.http.change_waits import ChangeCalls, ChangeWaits
from punctual.node.http.own_user import Address, OwnUser
from punctual.node.http.parsing import (
    API_ROOT,
    ClientDisconnected,
    Receive,
    parse_headers,
    parse_path,
    read_body,
)
from punctual.node.http.public_bodies import PublicBodies
from punctual.node.http.uploads import Uploads, is_upload
from punctual.node.long_work import LongWork, Turn
from punctual.tasks.script.sandbox import LOCAL_TENANT
from punctual.web.app import build_routes
from punctual.web.features import Features
from punctual.web.http.guards import CLOSE_HEADER, check_body_headers, check_loopback
from punctual.web.http.problems import RequestRejected, internal_error_reply, problem_reply
from punctual.web.http.request import COMMON_HEADERS, Caller, Reply, Request
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.services import ReadWebhookSecret, Services, no_webhook_secret
from punctual.web.views.system import InstallationInfo, Login

Scope = Mapping[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
ReplyOrWork = Reply | SlicedWork[Reply]  # the answer, or the work that is left

MAX_JOBS_PER_WRITE = 100  # jobs of a batch that are stored in one step
HEALTH_PATH, LIVE_PATH, READY_PATH = "/health", "/health/live", "/health/ready"
SOCKET_OWNER = "owner"  # key in the scope's state: the user id that owns the client's socket
CONNECTION = "connection"  # key in the scope's state: the transport to the client
_COMMON_HEADERS = [(name.encode(), value.encode()) for name, value in COMMON_HEADERS]


def node_services(
    jobs: Jobs,
    search: JobQueries,
    tokens: Tokens,
    *,
    clock: Callable[[], datetime] = wall,
    features: Features = NODE_FEATURES,
    quotas: Quotas | None = None,
    limits_of: LimitsOf = unlimited,
    webhook_secret: ReadWebhookSecret = no_webhook_secret,
    secrets: Secrets | None = None,
    sandbox: str | None = None,
    login: Login | None = None,
    claims: Claims | None = None,
    artifacts: Artifacts | None = None,
    failures: FailureCommands | None = None,
    operations: OperationCommands | None = None,
) -> Services:
    """Return what the routes of a node call. `sandbox` and `login` are shown by `GET /health`."""
    task_types = tuple(features.task_types)
    return Services(
        jobs,
        search,
        clock,
        features,
        InstallationInfo(_installed_version(), task_types, sandbox, login),
        tokens,
        limits_of=limits_of,
        check_tenant=None if quotas is None else quotas.check_call,
        webhook_secret=webhook_secret,
        secrets=secrets,
        max_jobs_per_write=MAX_JOBS_PER_WRITE,
        claims=claims,
        artifacts=artifacts,
        failures=failures,
        operations=operations,
    )


def build_application(
    services: Services,
    turn: Turn,
    log: Log,
    *,
    new_id: Callable[[], str] | None = None,
    log_access: Log | None = None,
    authenticator: NodeAuthenticator | None = None,
    own_user: OwnUser | None = None,
    uploads: Uploads | None = None,
    change_waits: ChangeWaits | None = None,
) -> "Application":
    """Return the ASGI application of the node.

    `log_access` is called with the method, path, status and id of each answer. Without an
    `authenticator` no token is needed: `own_user` admits the callers, or all are admitted.
    """
    if change_waits is not None:
        services = services._replace(must_pause=change_waits.must_pause)
    return Application(
        services,
        turn,
        log,
        new_id or identity.new_id(services.clock),
        log_access,
        authenticator,
        own_user,
        uploads,
        change_waits,
    )


class Application:
    """The ASGI application of the node. A turn of the event loop answers a request."""

    def __init__(
        self,
        services: Services,
        turn: Turn,
        log: Log,
        new_id: Callable[[], str],
        log_access: Log | None,
        authenticator: NodeAuthenticator | None,
        own_user: OwnUser | None,
        uploads: Uploads | None = None,
        change_waits: ChangeWaits | None = None,
    ) -> None:
        self._uploads = uploads
        self._answer = build_routes(services, log).answer
        self._change_calls: ChangeCalls | None = None
        schedule_routes = ScheduleRoutes(services)
        self._unavailable_replies = {
            HEALTH_PATH: schedule_routes.store_down_reply,
            READY_PATH: schedule_routes.not_ready_reply,
        }
        self._turn = turn
        self._long_work = LongWork(turn)
        if change_waits is not None:
            self._change_calls = ChangeCalls(change_waits, turn, self._answer, self._long_work)
        self._log = log
        self._new_id = new_id
        self._log_access = log_access
        self._authenticator = authenticator
        self._own_user = own_user
        self._public_bodies = PublicBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        request_id = self._new_id()
        try:
            if self._uploads is not None and is_upload(scope["method"], scope["raw_path"]):
                reply = await self._upload(self._uploads, scope, receive, request_id)
            else:
                reply = await self._reply(scope, receive, request_id)
        except ClientDisconnected:
            return
        except Exception as error:
            reply = self._error_reply(error, "", request_id)
        await self._send_reply(scope, send, reply, request_id)
        if self._log_access is not None:
            path = UPLOAD_PATH if is_upload(scope["method"], scope["raw_path"]) else scope["path"]
            fields = {"method": scope["method"], "path": path, "status": reply.status}
            self._log_access("answered", **fields, request_id=request_id)

    async def _send_reply(self, scope: Scope, send: Send, reply: Reply, request_id: str) -> None:
        if any(
            CONTROL_IN_HEADER.search(value)
            for _, value in (*reply.headers, ("", reply.content_type))
        ):
            reply = internal_error_reply(request_id)  # a stored value must not write a header
        await send(_response_start(reply, request_id))
        if reply.content is not None and scope["method"] != "HEAD":
            try:
                await _send_pieces(scope, send, reply.content)
            except PunctualError as error:  # without its end, the client sees that it is cut
                fields = {"request_id": request_id, "error": type(error).__name__}
                self._log("request_failed", **fields)
                return
            except ClientDisconnected:
                return
        await send({"type": "http.response.body", "body": reply.body})

    def socket_owner(self, client: Address | None, server: Address | None) -> int | None:
        """Return the user that owns the socket at `client`, or None if it is unknown or unused."""
        if self._own_user is None or client is None or server is None:
            return None
        return self._own_user.socket_owner(client, server)

    def rejection_reply(self, error: RequestRejected) -> tuple[Reply, str]:
        """Return the answer to a malformed or incomplete request, and its id."""
        request_id = self._new_id()
        return problem_reply(error, request_id), request_id

    async def _reply(self, scope: Scope, receive: Receive, request_id: str) -> Reply:
        caller = await self._caller(scope)
        headers = parse_headers(scope["headers"])
        check_loopback(headers)
        path = parse_path(scope["raw_path"], scope["query_string"])
        limit = check_body_headers(path, headers)
        with ExitStack() as stack:
            body = b""
            if b"content-length" in headers or b"transfer-encoding" in headers:
                if not caller.tenant:
                    size = int(headers.get(b"content-length", limit))
                    stack.enter_context(self._public_bodies.reserve(size))
                body = await read_body(receive, limit)
            return await self._reply_to(scope, path, headers, body, caller, request_id)

    async def _reply_to(
        self,
        scope: Scope,
        path: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        caller: Caller,
        request_id: str,
    ) -> Reply:
        query_text = scope["query_string"].decode("latin-1")
        request = Request(
            scope["method"], path, query_text, headers, body, caller, request_id, API_ROOT
        )
        begin = partial(self._begin, request)
        try:
            # LIVE does not read the store. It is answered even if every transaction fails.
            answer = begin() if path == LIVE_PATH else await self._turn(begin)
            if not isinstance(answer, Reply):
                answer = await self._long_work.finish(caller.tenant, answer)
            if answer.wait is not None and self._change_calls is not None:
                return await self._change_calls.finish(request, answer)
            return answer
        except Exception as error:
            return self._error_reply(error, path, request_id)

    async def _upload(
        self, uploads: Uploads, scope: Scope, receive: Receive, request_id: str
    ) -> Reply:
        """Answer a PUT with a signed link. The link is the right, so no token is needed."""
        try:
            headers = parse_headers(scope["headers"])
            check_loopback(headers)
            path = parse_path(scope["raw_path"], scope["query_string"])
            return await uploads.store(path, headers, receive)
        except ClientDisconnected:
            raise
        except Exception as error:
            return self._closing_reply(error, request_id)

    def _closing_reply(self, error: Exception, request_id: str) -> Reply:
        """Return the error of an upload. The connection ends, because its body was not read."""
        reply = self._error_reply(error, "", request_id)
        if CLOSE_HEADER in reply.headers:
            return reply
        return reply._replace(headers=(*reply.headers, CLOSE_HEADER))

    async def _caller(self, scope: Scope) -> Caller:
        headers, path = scope["headers"], scope["raw_path"]
        peer = (scope.get("client") or ("",))[0]
        if self._authenticator is not None:
            return await self._authenticator.authenticate(path, headers, peer)
        if self._own_user is not None:
            owner = (scope.get("state") or {}).get(SOCKET_OWNER)
            return self._own_user.authenticate(path, headers, peer, owner)
        return _local_admin(peer)

    def _begin(self, request: Request) -> ReplyOrWork:
        answer = self._answer(request)
        return answer if isinstance(answer, Reply) else self._long_work.begin(answer)

    def _error_reply(self, error: Exception, path: str, request_id: str) -> Reply:
        """Return the answer to a request after its turn was rolled back."""
        if isinstance(error, PunctualError):
            unavailable_reply = self._unavailable_replies.get(path)
            return (
                problem_reply(error, request_id)
                if unavailable_reply is None
                else unavailable_reply()
            )
        self._log("request_failed", request_id=request_id, error=type(error).__name__)
        return internal_error_reply(request_id)


@lru_cache(maxsize=64)
def _local_admin(peer: str) -> Caller:
    return Caller(LOCAL_TENANT, LOCAL_TENANT, Role.ADMIN, "", peer)


def _response_start(reply: Reply, request_id: str) -> dict[str, Any]:
    size = len(reply.body) if reply.content is None else reply.content.size
    headers = [
        (b"content-length", b"%d" % size),
        (b"x-request-id", request_id.encode()),
        *_COMMON_HEADERS,
    ]
    if reply.content_type:
        headers.append((b"content-type", reply.content_type.encode("latin-1")))
    for name, value in reply.headers:
        headers.append((name.encode("latin-1"), value.encode("latin-1")))
    return {"type": "http.response.start", "status": reply.status, "headers": headers}


async def _send_pieces(scope: Scope, send: Send, content: LongContent) -> None:
    """Send the content piece by piece, as fast as the client reads. Other requests go on."""
    connection = (scope.get("state") or {}).get(CONNECTION)
    for piece in content.pieces():
        if connection is not None and connection.is_closing():
            await asyncio.sleep(0)  # uvicorn learns of it too, and logs no incomplete answer
            raise ClientDisconnected
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        await asyncio.sleep(0)


def _installed_version() -> str:
    try:
        return version("punctual")
    except PackageNotFoundError:
        return "unknown"
