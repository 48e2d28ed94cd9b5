"""Answer events of an HTTP API of API Gateway (payload 2.0) through powertools' resolver."""

import base64
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import APIGatewayHttpResolver

from punctual.domain.errors import PunctualError
from punctual.engine.ports.log import Log
from punctual.web.contract import PREFLIGHT
from punctual.web.http.guards import body_too_large, check_body_headers, check_content_type
from punctual.web.http.problems import RequestRejected, internal_error_reply, problem_reply
from punctual.web.http.request import COMMON_HEADERS, Caller, Reply, Request, quoted_size
from punctual.web.routing import RouteTable

# API Gateway adds the allowed origins, methods and headers to the answer to a preflight.
NO_CONTENT = Reply(204, b"", (), "")
MAX_RESPONSE_BYTES = 6_000_000  # Lambda allows 6 MiB, with all headers

# Returns the caller of an event and path, or raises the error to answer with.
ReadCaller = Callable[[Mapping[str, Any], str], Caller]


class RouteGroup(Protocol):
    def declare(self, table: RouteTable) -> None: ...


def build_resolver(
    groups: Iterable[RouteGroup],
    log: Log,
    read_caller: ReadCaller,
    foreign_routes: Iterable[tuple[str, str]] = (),
    log_access: Log | None = None,
    time_limit: Callable[[], AbstractContextManager[None]] = nullcontext,
    check_tenant: Callable[[str], None] | None = None,
) -> APIGatewayHttpResolver:
    """Return a resolver that answers events by the routes of `groups`.

    Another function serves the (method, rule) pairs of `foreign_routes`.
    `log_access` is called with each answer's method, route, status, tenant and request id.
    Each request runs inside one `time_limit`. `check_tenant` gets the caller's tenant first.
    """
    table = RouteTable(
        log, _Gateway(read_caller, log, log_access, time_limit).perform, check_tenant
    )
    for group in groups:
        group.declare(table)
    for method, rule in foreign_routes:
        table.add_foreign(method, rule)
    app = APIGatewayHttpResolver()
    app.include_router(table)
    app.not_found(lambda _error: table.answer_event(table.answer_whole))
    return app


class _Gateway:
    def __init__(
        self,
        read_caller: ReadCaller,
        log: Log,
        log_access: Log | None,
        time_limit: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._read_caller = read_caller
        self._log = log
        self._log_access = log_access
        self._time_limit = time_limit

    def perform(self, table: RouteTable, perform: Callable[[Request], Reply]) -> Response[Any]:
        event = table.current_event
        route = event.raw_event.get("routeKey")
        request_id = table.lambda_context.aws_request_id
        tenant = ""
        try:
            if route == PREFLIGHT:
                reply = NO_CONTENT
            else:
                with self._time_limit():
                    request = self._request(event, request_id)
                    tenant = request.caller.tenant
                    reply = _check_size(_checked_reply(perform, request), request_id)
        except PunctualError as error:
            reply = problem_reply(error, request_id)
        except Exception as error:
            self._log("request_not_read", request_id=request_id, error=type(error).__name__)
            reply = internal_error_reply(request_id)
        if self._log_access is not None:
            self._log_access(
                "answered",
                request_id=request_id,
                method=event.http_method,
                route=route,
                status=reply.status,
                tenant=tenant,
            )
        if event.http_method.upper() == "HEAD":
            reply = reply._replace(body=b"")
        return _lambda_response(reply, request_id)

    def _request(self, event: Any, request_id: str) -> Request:
        stage = event.request_context.stage
        return Request(
            method=event.http_method.upper(),
            path=event.path or "/",
            query=event.raw_query_string or "",
            headers={
                name.lower().encode("latin-1", "replace"): value.encode("latin-1", "replace")
                for name, value in (event.raw_event.get("headers") or {}).items()
            },
            body=_decode_body(event),
            caller=self._read_caller(event.raw_event, event.path),
            request_id=request_id,
            root="" if stage == "$default" else f"/{stage}",
        )


def _checked_reply(perform: Callable[[Request], Reply], request: Request) -> Reply:
    max_bytes = check_body_headers(request.path, request.headers)
    if len(request.body) > max_bytes:
        raise body_too_large(max_bytes)
    if request.body:
        check_content_type(request.headers)
    return perform(request)


def _decode_body(event: Any) -> bytes:
    body = event.body or ""
    return base64.b64decode(body) if event.is_base64_encoded else body.encode()


def _check_size(reply: Reply, request_id: str) -> Reply:
    """Return the reply, or an error where Lambda would fail without an answer to the client."""
    is_binary = not reply.content_type.endswith("json")
    size = len(reply.body) * 4 // 3 if is_binary else quoted_size(reply.body)
    if size <= MAX_RESPONSE_BYTES:
        return reply
    text = f"The answer would be longer than {MAX_RESPONSE_BYTES:,} bytes: ask for less at once."
    return problem_reply(RequestRejected("ANSWER_TOO_LONG", text), request_id)


def _lambda_response(reply: Reply, request_id: str) -> Response[Any]:
    is_json = reply.content_type.endswith("json")
    headers = {**dict(COMMON_HEADERS), "x-request-id": request_id, **dict(reply.headers)}
    return Response(
        status_code=reply.status,
        content_type=reply.content_type or None,
        body=reply.body.decode() if is_json or not reply.body else reply.body,
        headers=headers,
    )
