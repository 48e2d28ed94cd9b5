"""The node's HTTP server: ASGI, from the socket to the routes and back."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, TypeVar

from punctual.domain.errors import PunctualError
from punctual.domain.tenants.roles import Role
from punctual.engine.commands.jobs import Jobs
from punctual.engine.commands.tokens import Tokens
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import SlicedWork
from punctual.engine.quotas.limits import LimitsOf, Quotas, unlimited
from punctual.identity import new_id as id_maker
from punctual.node import clock as clocks
from punctual.node.features import FEATURES
from punctual.node.http.authentication import NodeAuthenticator
from punctual.node.http.own_user import LOCAL, OwnUser
from punctual.node.http.parsing import ROOT as ROOT
from punctual.node.http.parsing import Gone, RawHeaders, Receive, body_of, headers_of, path_of
from punctual.node.http.peers import Address
from punctual.node.long_work import LongWork, Turn
from punctual.web.app import build_routes
from punctual.web.features import Features
from punctual.web.http.guards import body_too_large, check_body_headers, check_loopback
from punctual.web.http.problems import RequestRejected, internal_error_reply, problem_reply
from punctual.web.http.request import COMMON_HEADERS, Caller, Reply, Request
from punctual.web.routes.schedules import ScheduleRoutes
from punctual.web.routing import Log
from punctual.web.services import ReadWebhookSecret, Services, no_webhook_secret
from punctual.web.views.system import InstallationInfo, Login

T = TypeVar("T")
Begun = Reply | SlicedWork[Reply]  # the answer, or what is left of the work for it
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Soon(Protocol):
    """The same for who cannot wait: `done` is called with the answer, or with what went wrong."""

    def __call__(
        self, request: Callable[[], T], done: Callable[[T | Exception], None], /
    ) -> None: ...


TOGETHER = 100  # jobs of a batch that are stored in one step
HEALTH, LIVE, READY = "/health", "/health/live", "/health/ready"
OWNER = "owner"  # in the state of a scope: the user id that owns the client's socket
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
    soon: Soon | None = None,
    quotas: Quotas | None = None,
    limits_of: LimitsOf = unlimited,
    door: NodeAuthenticator | None = None,
    own_user: OwnUser | None = None,
    webhook_secret: ReadWebhookSecret = no_webhook_secret,
    sandbox: str | None = None,
    login: Login | None = None,
) -> "Application":
    """`access`, where given, is called with each answer's method, path, status and id.

    Without a `door` no tokens are asked for: `own_user` admits the callers, or all are admitted.
    """
    about = InstallationInfo(_version(), tuple(features.task_types), sandbox, login)
    admit = None if quotas is None else quotas.call
    services = Services(
        *(jobs, search, clock, features, about, tokens),
        limits_of=limits_of,
        admit=admit,
        webhook_secret=webhook_secret,
        max_jobs_per_write=TOGETHER,
    )
    return Application(services, turn, log, new_id or id_maker(clock), access, soon, door, own_user)


class Application:
    """An ASGI application, which also takes a request that has arrived whole without a task."""

    def __init__(
        self,
        services: Services,
        turn: Turn,
        log: Log,
        new_id: Callable[[], str],
        access: Callable[..., None] | None,
        soon: Soon | None,
        door: NodeAuthenticator | None,
        own_user: OwnUser | None,
    ) -> None:
        self._answer = build_routes(services, log).answer
        reads = ScheduleRoutes(services)
        self._no_answers = {HEALTH: reads.no_answer, READY: reads.not_ready}
        self._turn = turn
        self._long_work = LongWork(turn)
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = log
        self._new_id = new_id
        self._access = access
        self._soon = soon
        self._door = door
        self._own_user = own_user

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            return
        request_id = self._new_id()
        try:
            reply = await self._reply(scope, receive, request_id)
        except PunctualError as error:
            reply = problem_reply(error, request_id)
        except Gone:
            return
        await _send(send, reply, request_id)
        self._note(scope["method"], scope["path"], reply, request_id)

    def take(
        self,
        method: str,
        target: bytes,
        headers: RawHeaders,
        body: bytes,
        answer: Callable[[Reply, str], None],
        peer: str = "",
        owner: int | None = None,
    ) -> None:
        """Answer a request that has arrived whole: `answer` gets the reply and the request's id."""
        path = target.partition(b"?")[0]
        taken = partial(self._taken, method, target, headers, body, answer)
        if self._door is None:
            taken(self._without_tokens(path, headers, peer, owner))
        else:
            self._door.ask(path, headers, peer, taken)

    def owner(self, client: Address | None, server: Address | None) -> int | None:
        """The user that owns the socket at `client`, where that is asked for and known."""
        if self._own_user is None or client is None or server is None:
            return None
        return self._own_user.owner(client, server)

    def _without_tokens(
        self, path: bytes, headers: RawHeaders, peer: str, owner: int | None
    ) -> Caller | Exception:
        if self._own_user is None:
            return _everybody(peer)
        return self._own_user.caller(path, headers, peer, owner)

    def refusal(self, error: RequestRejected) -> tuple[Reply, str]:
        """The answer to what is not a whole request, and its id."""
        request_id = self._new_id()
        return problem_reply(error, request_id), request_id

    def _taken(
        self,
        method: str,
        target: bytes,
        headers: RawHeaders,
        body: bytes,
        answer: Callable[[Reply, str], None],
        caller: Caller | Exception,
    ) -> None:
        request_id = self._new_id()
        raw_path, _, query = target.partition(b"?")
        path = ""

        def done(reply: Begun | Exception) -> None:
            if isinstance(reply, SlicedWork):
                self._finish_beside(request, reply, done)
                return
            if isinstance(reply, Exception):
                reply = self._failed(reply, path, request_id)
            answer(reply, request_id)
            self._note(method, raw_path.decode("latin-1"), reply, request_id)

        try:
            request, most = self._request(method, raw_path, query, headers, request_id, caller)
            path = request.path
            if len(body) > most:
                raise body_too_large(most)
        except PunctualError as error:
            done(problem_reply(error, request_id))
            return
        except Exception as error:
            done(error)
            return
        assert self._soon is not None
        asked = partial(self._begin, request._replace(body=body))
        if path == LIVE:  # it asks no store, and must be answered where a transaction fails
            done(asked())
        else:
            self._soon(asked, done)

    def _finish_beside(
        self, request: Request, left: SlicedWork[Reply], done: Callable[[Reply | Exception], None]
    ) -> None:
        """Long work has a task of its own."""

        async def work() -> None:
            try:
                reply: Reply | Exception = await self._whole(request, left)
            except Exception as error:
                reply = error
            done(reply)

        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self, request: Request) -> Begun:
        answer = self._answer(request)
        return answer if isinstance(answer, Reply) else self._long_work.begin(answer)

    async def _whole(self, request: Request, answer: Begun) -> Reply:
        if isinstance(answer, Reply):
            return answer
        return await self._long_work.finish(request.caller.tenant, answer)

    def _note(self, method: str, path: str, reply: Reply, request_id: str) -> None:
        if self._access is not None:
            status = reply.status
            self._access("answered", method=method, path=path, status=status, request_id=request_id)

    def _request(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        raw: RawHeaders,
        request_id: str,
        caller: Caller | Exception,
    ) -> tuple[Request, int]:
        """The request without its body, and how long that may be."""
        if isinstance(caller, Exception):
            raise caller
        headers = headers_of(raw)
        check_loopback(headers)
        path = path_of(raw_path, query)
        most = check_body_headers(path, headers)
        text = query.decode("latin-1")
        return Request(method, path, text, headers, b"", caller, request_id, ROOT), most

    async def _reply(self, scope: Mapping[str, Any], receive: Receive, request_id: str) -> Reply:
        headers, path = scope["headers"], scope["raw_path"]
        owner = (scope.get("state") or {}).get(OWNER)
        caller = await self._caller(path, headers, (scope.get("client") or ("",))[0], owner)
        request, most = self._request(
            scope["method"], path, scope["query_string"], headers, request_id, caller
        )
        if b"content-length" in request.headers or b"transfer-encoding" in request.headers:
            request = request._replace(body=await body_of(receive, most))
        asked = partial(self._begin, request)
        try:
            answer = asked() if request.path == LIVE else await self._turn(asked)
            return await self._whole(request, answer)
        except Exception as error:
            return self._failed(error, request.path, request_id)

    async def _caller(
        self, path: bytes, headers: RawHeaders, peer: str, owner: int | None
    ) -> Caller | Exception:
        if self._door is None:
            return self._without_tokens(path, headers, peer, owner)
        asked: asyncio.Future[Caller | Exception] = asyncio.get_running_loop().create_future()
        self._door.ask(path, headers, peer, partial(_settle, asked))
        return await asked

    def _failed(self, error: Exception, path: str, request_id: str) -> Reply:
        """No answer at all: the turn itself was undone."""
        if isinstance(error, PunctualError):
            no_answer = self._no_answers.get(path)
            return problem_reply(error, request_id) if no_answer is None else no_answer()
        self._log("request_failed", request_id=request_id, error=type(error).__name__)
        return internal_error_reply(request_id)


def _settle(asked: "asyncio.Future[T]", answer: T) -> None:
    if not asked.done():  # else the client hung up meanwhile
        asked.set_result(answer)


@lru_cache(maxsize=64)
def _everybody(peer: str) -> Caller:
    return Caller(LOCAL, LOCAL, Role.ADMIN, "", peer)


async def _send(send: Send, reply: Reply, request_id: str) -> None:
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
