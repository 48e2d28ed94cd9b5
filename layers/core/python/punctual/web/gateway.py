"""The way in from an HTTP API of API Gateway (payload 2.0), through powertools' resolver."""

import base64
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from aws_lambda_powertools.event_handler import Response
from aws_lambda_powertools.event_handler.api_gateway import APIGatewayHttpResolver

from punctual.domain.errors import PunctualError
from punctual.web.contract import PREFLIGHT
from punctual.web.http.guards import check_body, check_type, too_large
from punctual.web.http.problems import RequestRejected, problem_reply, unknown_problem
from punctual.web.http.request import COMMON, Caller, Reply, Request, quoted
from punctual.web.routing import Log, Table

# The gateway adds which origins, methods and headers; whoever has no token learns nothing more.
NOTHING = Reply(204, b"", (), "")
MOST_ANSWERED = 6_000_000  # bytes; Lambda takes 6 MiB, all headers included

# Who calls; what it raises is the answer.
CallerOf = Callable[[Mapping[str, Any], str], Caller]


class Noun(Protocol):
    def declare(self, table: Table) -> None: ...


def gateway(
    nouns: Iterable[Noun],
    log: Log,
    caller_of: CallerOf,
    elsewhere: Iterable[tuple[str, str]] = (),
    access: Callable[..., None] | None = None,
    bounded: Callable[[], AbstractContextManager[None]] = nullcontext,
    admit: Callable[[str], None] | None = None,
) -> APIGatewayHttpResolver:
    """Answers events by these routes; `elsewhere` are those that another function serves.

    `access`, where given, is called with each answer's method, route, status, tenant and id.
    Each request happens inside one `bounded`; `admit` is asked first, with the caller's tenant.
    """
    table = Table(_Gateway(caller_of, log, access, bounded).perform, log)
    if admit is not None:
        table.admit_by(admit)
    for noun in nouns:
        noun.declare(table)
    for method, rule in elsewhere:
        table.served_elsewhere(method, rule)
    app = APIGatewayHttpResolver()
    app.include_router(table)
    app.not_found(lambda _error: table.from_event(table.whole_answer))
    return app


class _Gateway:
    def __init__(
        self,
        caller_of: CallerOf,
        log: Log,
        access: Callable[..., None] | None,
        bounded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._caller_of = caller_of
        self._log = log
        self._access = access
        self._bounded = bounded

    def perform(self, table: Table, perform: Callable[[Request], Reply]) -> Response[Any]:
        event = table.current_event
        route = event.raw_event.get("routeKey")
        request_id = table.lambda_context.aws_request_id
        tenant = ""
        try:
            if route == PREFLIGHT:
                reply = NOTHING
            else:
                with self._bounded():
                    request = self._request(event, request_id)
                    tenant = request.caller.tenant
                    reply = _bounded(self._answered(perform, request), request_id)
        except PunctualError as error:
            reply = problem_reply(error, request_id)
        except Exception as error:
            self._log("request_not_read", request_id=request_id, error=type(error).__name__)
            reply = unknown_problem(request_id)
        if self._access is not None:
            self._access(
                "answered",
                request_id=request_id,
                method=event.http_method,
                route=route,
                status=reply.status,
                tenant=tenant,
            )
        if event.http_method.upper() == "HEAD":
            reply = reply._replace(body=b"")
        return _response(reply, request_id)

    def _answered(self, perform: Callable[[Request], Reply], request: Request) -> Reply:
        most = check_body(request.path, request.headers)
        if len(request.body) > most:
            raise too_large(most)
        if request.body:
            check_type(request.headers)
        return perform(request)

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
            body=_body(event),
            caller=self._caller_of(event.raw_event, event.path),
            request_id=request_id,
            root="" if stage == "$default" else f"/{stage}",
        )


def _body(event: Any) -> bytes:
    body = event.body or ""
    return base64.b64decode(body) if event.is_base64_encoded else body.encode()


def _bounded(reply: Reply, request_id: str) -> Reply:
    """Lambda would fail a longer answer without a word to whoever waits for it."""
    bytes_only = not reply.content_type.endswith("json")
    size = len(reply.body) * 4 // 3 if bytes_only else quoted(reply.body)
    if size <= MOST_ANSWERED:
        return reply
    text = f"The answer would be longer than {MOST_ANSWERED:,} bytes: ask for less at once."
    return problem_reply(RequestRejected("ANSWER_TOO_LONG", text), request_id)


def _response(reply: Reply, request_id: str) -> Response[Any]:
    is_json = reply.content_type.endswith("json")
    headers = {**dict(COMMON), "x-request-id": request_id, **dict(reply.headers)}
    return Response(
        status_code=reply.status,
        content_type=reply.content_type or None,
        body=reply.body.decode() if is_json or not reply.body else reply.body,
        headers=headers,
    )
