"""All routes together, and their way in from API Gateway."""

from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from punctual.domain.errors import PunctualError
from punctual.web.guards import check_body, check_type, too_large
from punctual.web.problems import problem_reply
from punctual.web.request import COMMON, Caller, Reply, Request
from punctual.web.routes_jobs import JobRoutes
from punctual.web.routes_runs import RunRoutes
from punctual.web.routes_schedules import ScheduleRoutes
from punctual.web.routing import Log, Table
from punctual.web.services import Services

CallerOf = Callable[[Mapping[str, Any]], Caller]


def routes(services: Services, log: Log) -> Table:
    """Every route, declared once."""
    table = Table(_no_gateway, log)
    _declare(table, services)
    return table


def resolver(services: Services, log: Log, caller_of: CallerOf) -> APIGatewayHttpResolver:
    """The same routes, for events of an HTTP API; `caller_of` reads an event's authorizer."""
    table = Table(_Gateway(caller_of).perform, log)
    _declare(table, services)
    app = APIGatewayHttpResolver()
    app.include_router(table)
    app.not_found(lambda _error: table.from_event(table.answer))
    return app


def _declare(table: Table, services: Services) -> None:
    for noun in (JobRoutes(services), RunRoutes(services), ScheduleRoutes(services)):
        noun.declare(table)


def _no_gateway(_table: Table, _perform: Callable[[Request], Reply]) -> Any:
    raise AssertionError("these routes are asked directly")


class _Gateway:
    def __init__(self, caller_of: CallerOf) -> None:
        self._caller_of = caller_of

    def perform(self, table: Table, perform: Callable[[Request], Reply]) -> Response[Any]:
        event = table.current_event
        request = self._request(event, table.lambda_context.aws_request_id)
        try:
            most = check_body(request.path, request.headers)
            if len(request.body) > most:
                raise too_large(most)
            if request.body:
                check_type(request.headers)
            reply = perform(request)
        except PunctualError as error:
            reply = problem_reply(error, request.request_id)
        return _response(reply, request.request_id)

    def _request(self, event: Any, request_id: str) -> Request:
        stage = event.request_context.stage
        body = event.decoded_body if event.is_base64_encoded else event.body
        return Request(
            method=event.http_method.upper(),
            path=event.path,
            query=event.raw_query_string or "",
            headers={
                name.lower().encode("latin-1", "replace"): value.encode("latin-1", "replace")
                for name, value in (event.raw_event.get("headers") or {}).items()
            },
            body=(body or "").encode(),
            caller=self._caller_of(event.raw_event),
            request_id=request_id,
            root="" if stage == "$default" else f"/{stage}",
        )


def _response(reply: Reply, request_id: str) -> Response[Any]:
    is_json = reply.content_type.endswith("json")
    headers = {**dict(COMMON), "x-request-id": request_id, **dict(reply.headers)}
    return Response(
        status_code=reply.status,
        content_type=reply.content_type or None,
        body=reply.body.decode() if is_json or not reply.body else reply.body,
        headers=headers,
    )
