"""The node's HTTP server: ASGI, from the socket to the routes and back."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol, TypeVar

from punctual.domain.errors import PunctualError
from punctual.engine.jobs import Jobs
from punctual.engine.limits import LimitsOf, Quotas, unlimited
from punctual.engine.search import Search
from punctual.engine.tokens import Tokens
from punctual.identity import new_id as id_maker
from punctual.local import clock as clocks
from punctual.local.installed import FEATURES
from punctual.web.app import routes
from punctual.web.features import Features
from punctual.web.guards import CLOSE, check_body, check_loopback, too_large
from punctual.web.problems import Refused, problem_reply, unknown_problem
from punctual.web.render_rest import About
from punctual.web.request import COMMON, Caller, Reply, Request
from punctual.web.routes_schedules import ScheduleRoutes
from punctual.web.routing import Log
from punctual.web.services import Services

T = TypeVar("T")
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
RawHeaders = Iterable[tuple[bytes, bytes]]


class Turn(Protocol):
    """Does a request together with the others of its moment; answers when all is durable."""

    def __call__(self, request: Callable[[], T], /) -> Awaitable[T]: ...


class Soon(Protocol):
    """The same for who cannot wait: `done` is called with the answer, or with what went wrong."""

    def __call__(
        self, request: Callable[[], T], done: Callable[[T | Exception], None], /
    ) -> None: ...


ROOT = "/v1"
HEALTH = "/health"
_HEALTH_PATH = f"{ROOT}{HEALTH}".encode()
CALLER = Caller("local", "local")
BODY_SECONDS = 20.0
MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
MAX_TARGET = 8 * 1024
_ONCE = (b"host", b"content-length", b"content-type", b"idempotency-key", b"authorization")
_COMMON = [(name.encode(), value.encode()) for name, value in COMMON]
_TYPES: dict[str, tuple[bytes, bytes]] = {}


def application(
    jobs: Jobs,
    search: Search,
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
) -> "Application":
    """`access`, where given, is called with each answer's method, path, status and id."""
    about = About(_version(), tuple(features.task_types))
    admit = None if quotas is None else quotas.call
    services = Services(
        jobs, search, clock, features, about, tokens, limits_of=limits_of, admit=admit
    )
    return Application(services, turn, log, new_id or id_maker(clock), access, soon)


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
    ) -> None:
        self._answer = routes(services, log).answer
        self._no_health = ScheduleRoutes(services).no_answer
        self._turn = turn
        self._log = log
        self._new_id = new_id
        self._access = access
        self._soon = soon

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
        except _Gone:
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
    ) -> None:
        """Answer a request that has arrived whole: `answer` gets the reply and the request's id."""
        request_id = self._new_id()
        raw_path, _, query = target.partition(b"?")

        def done(reply: Reply | Exception) -> None:
            if isinstance(reply, Exception):
                reply = self._failed(reply, raw_path == _HEALTH_PATH, request_id)
            answer(reply, request_id)
            self._note(method, raw_path.decode("latin-1"), reply, request_id)

        try:
            request, most = self._request(method, raw_path, query, headers, request_id)
            if len(body) > most:
                raise too_large(most)
        except PunctualError as error:
            done(problem_reply(error, request_id))
            return
        except Exception as error:
            done(error)
            return
        assert self._soon is not None
        self._soon(partial(self._answer, request._replace(body=body)), done)

    def _note(self, method: str, path: str, reply: Reply, request_id: str) -> None:
        if self._access is not None:
            status = reply.status
            self._access("answered", method=method, path=path, status=status, request_id=request_id)

    def _request(
        self, method: str, raw_path: bytes, query: bytes, raw: RawHeaders, request_id: str
    ) -> tuple[Request, int]:
        """The request without its body, and how long that may be."""
        headers = _headers(raw)
        check_loopback(headers)
        path = _path(raw_path, query)
        most = check_body(path, headers)
        text = query.decode("latin-1")
        return Request(method, path, text, headers, b"", CALLER, request_id, ROOT), most

    async def _reply(self, scope: Mapping[str, Any], receive: Receive, request_id: str) -> Reply:
        request, most = self._request(
            scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], request_id
        )
        if b"content-length" in request.headers or b"transfer-encoding" in request.headers:
            request = request._replace(body=await _body(receive, most))
        try:
            return await self._turn(partial(self._answer, request))
        except Exception as error:
            return self._failed(error, request.path == HEALTH, request_id)

    def _failed(self, error: Exception, asked_for_health: bool, request_id: str) -> Reply:
        """No answer at all: the turn itself was undone."""
        if isinstance(error, PunctualError):
            return self._no_health() if asked_for_health else problem_reply(error, request_id)
        self._log("request_failed", request_id=request_id, error=type(error).__name__)
        return unknown_problem(request_id)


class _Gone(Exception):
    """The client hung up before its request was whole."""


def _headers(raw: RawHeaders) -> Mapping[bytes, bytes]:
    pairs = list(raw)
    headers = dict(pairs)
    if len(pairs) > MAX_HEADERS or sum(map(len, headers.values())) > MAX_HEADER_BYTES:
        text = f"Send at most {MAX_HEADERS} headers of {MAX_HEADER_BYTES:,} bytes together."
        raise Refused("HEADERS_TOO_LARGE", text, CLOSE)
    return headers if len(headers) == len(pairs) else _joined(pairs)


def _joined(pairs: list[tuple[bytes, bytes]]) -> Mapping[bytes, bytes]:
    """A header that comes twice is a list, unless it says one thing only."""
    headers: dict[bytes, bytes] = {}
    for name, value in pairs:
        if name in headers and name in _ONCE:
            raise Refused("BAD_REQUEST", f"The header {name.decode('latin-1')} came twice.", CLOSE)
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def _path(raw: bytes, query: bytes) -> str:
    """The path below the root, still percent-encoded: a slash in an id is no step."""
    if len(raw) + len(query) > MAX_TARGET:
        raise Refused("URI_TOO_LONG", f"The address is longer than {MAX_TARGET:,} bytes.", CLOSE)
    path = raw.partition(b"?")[0].decode("latin-1")
    if path.startswith(ROOT) and path[len(ROOT) : len(ROOT) + 1] in ("/", ""):
        return path[len(ROOT) :] or "/"
    text = f"There is nothing at this address: all addresses begin with {ROOT}/."
    raise Refused("NOT_FOUND", text)


async def _body(receive: Receive, most: int) -> bytes:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _whole(receive, most)
    except TimeoutError:
        text = f"The body did not arrive within {BODY_SECONDS:g} seconds."
        raise Refused("REQUEST_TIMEOUT", text, CLOSE) from None


async def _whole(receive: Receive, most: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        chunk: bytes = message.get("body", b"")
        if not message.get("more_body", False) and not chunks:
            if len(chunk) > most:
                raise too_large(most)
            return chunk
        size += len(chunk)
        if size > most:
            raise too_large(most)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


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
