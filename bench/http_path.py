"""Measure a request's CPU time between uvicorn and the engine: python -m bench.http_path"""

import asyncio
import base64
import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from types import SimpleNamespace
from typing import Any, cast

from punctual.domain.errors import PunctualError
from punctual.engine.commands.jobs import Jobs, Submission
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.views import JobView
from punctual.node.features import NODE_FEATURES
from punctual.node.http.application import build_application, node_services
from punctual.web.app import build_routes, route_groups
from punctual.web.gateway import build_resolver
from punctual.web.http.json_body import parse_object
from punctual.web.http.request import Caller, Request
from punctual.web.models.job_rules import new_job
from punctual.web.services import Services
from punctual.web.views.system import InstallationInfo
from tests.support.web_world import NOON, WebWorld

ROUNDS = 7
CALLS = 4_000
TOKENS = WebWorld().tokens
BODY = (
    b'{"name":"hello","schedule_type":"FUTURE","schedule_time":"2026-12-01T10:00:00Z",'
    b'"payload":{"customer":1234},"task":{"type":"event"}}'
)
HEADERS = [
    (b"host", b"127.0.0.1:8080"),
    (b"accept", b"*/*"),
    (b"user-agent", b"bench"),
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(BODY)),
]


class AcceptingEngine:
    """An engine that answers each submission with the same job. Only the HTTP path is measured."""

    def __init__(self) -> None:
        world = WebWorld()
        document = new_job(parse_object(BODY), NOON, NODE_FEATURES)
        self._answer = world.jobs.submit("local", "local", [Submission(document)])

    def submit(self, *_: Any) -> Sequence[JobView | PunctualError]:
        return self._answer


def discard_event(_event: str, /, **_fields: Any) -> None: ...


def measure_call(call: Callable[[], object]) -> float:
    """Return the CPU time of one call, as the median of several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        started_at = time.process_time()
        for _ in range(CALLS):
            call()
        rounds.append((time.process_time() - started_at) / CALLS * 1e6)
    return median(rounds)


def build_services() -> Services:
    engine = AcceptingEngine()
    about = InstallationInfo("bench", ("event",))
    return Services(
        cast(Jobs, engine), cast(JobQueries, engine), lambda: NOON, NODE_FEATURES, about, TOKENS
    )


def direct_call() -> Callable[[], object]:
    request = Request("POST", "/jobs", "", dict(HEADERS), BODY, Caller("local", "local"), "id")
    answer = build_routes(build_services(), discard_event).answer
    return lambda: answer(request)


def resolver_call() -> Callable[[], object]:
    app = build_resolver(
        route_groups(build_services()),
        discard_event,
        lambda _event, _path: Caller("local", "local"),
    )
    event = {
        "version": "2.0",
        "rawPath": "/v1/jobs",
        "rawQueryString": "",
        "headers": {name.decode(): value.decode() for name, value in HEADERS},
        "requestContext": {"stage": "v1", "http": {"method": "POST", "path": "/v1/jobs"}},
        "body": base64.b64encode(BODY).decode(),
        "isBase64Encoded": True,
    }
    context: Any = SimpleNamespace(aws_request_id="id")
    return lambda: app.resolve(event, context)


def asgi_calls(loop: asyncio.AbstractEventLoop) -> Callable[[], object]:
    async def turn(request: Callable[[], Any]) -> Any:
        return request()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(_message: dict[str, Any]) -> None: ...

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/jobs",
        "raw_path": b"/v1/jobs",
        "query_string": b"",
        "headers": HEADERS,
    }
    engine = AcceptingEngine()
    app = build_application(
        node_services(
            cast(Jobs, engine),
            cast(JobQueries, engine),
            TOKENS,
            clock=lambda: NOON,
        ),
        turn,
        discard_event,
    )

    async def call_hundred_times() -> None:
        for _ in range(100):
            await app(scope, receive, send)

    return lambda: loop.run_until_complete(call_hundred_times())


def main() -> None:
    loop = asyncio.new_event_loop()
    rows = [
        (
            "parse and validate",
            measure_call(lambda: new_job(parse_object(BODY), NOON, NODE_FEATURES)),
        ),
        ("routes asked directly", measure_call(direct_call())),
        ("the same by powertools' resolver", measure_call(resolver_call())),
    ]
    call_hundred_times = asgi_calls(loop)
    rounds = []
    for _ in range(ROUNDS):
        started_at = time.process_time()
        for _ in range(CALLS // 100):
            call_hundred_times()
        rounds.append((time.process_time() - started_at) / CALLS * 1e6)
    rows.append(("the same by the node's application", median(rounds)))
    loop.close()
    print(f"load {os.getloadavg()[0]:.2f}, CPU time of one small POST /jobs")
    for name, value in rows:
        print(f"  {name:<34} {value:7.1f} µs")


if __name__ == "__main__":
    main()
