"""The API functions of a deployment, called with the events of an HTTP API."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

from punctual.auth.issuer_config import IssuerConfig
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.lambdas.api_runtime import respond
from punctual.lambdas.claims.handler import build_claims_api
from punctual.lambdas.job_search.handler import build_read_api
from punctual.lambdas.job_service.handler import build_write_api
from punctual.lambdas.runtime import Runtime
from punctual.web.contract import (
    API_CALLS,
    CLAIM_FUNCTION,
    FALLBACK_FUNCTION,
    READ_FUNCTION,
    WRITE_FUNCTION,
)
from tests.support import openapi_answers
from tests.support.builders import NOON
from tests.support.deployed.drivers.direct import Direct
from tests.support.deployed.drivers.telemetry import RecordedTelemetry
from tests.support.deployed.world import a_world

ADMIN = {"lambda": {"tenant": "default", "caller": "admin", "role": "admin"}}


# Calls that read the rows of jobs. Before these, the driver acts as the status function.
LISTING_PATHS = ("/jobs", "/schedules/upcoming", "/stats")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def route_of(method: str, path: str) -> tuple[str, str]:
    """Return the route key that an HTTP API selects for a call, and its function."""
    parts = path.split("/")
    best: tuple[int, str, str] | None = None
    for route in API_CALLS:
        wanted = route.path.split("/")
        if route.method == method and len(wanted) == len(parts):
            fits = [
                segment == part or segment.startswith("{")
                for segment, part in zip(wanted, parts, strict=True)
            ]
            exact = sum(segment == part for segment, part in zip(wanted, parts, strict=True))
            if all(fits) and all(parts[1:]) and (best is None or exact > best[0]):
                best = exact, f"{method} {route.path}", route.function
    return ("$default", FALLBACK_FUNCTION) if best is None else (best[1], best[2])


def an_event(
    method: str,
    path: str,
    query: str = "",
    body: str | bytes | None = None,
    headers: Mapping[str, str] | None = None,
    authorizer: Any = ADMIN,
    stage: str = "v1",
    rooted: bool = False,
) -> dict[str, Any]:
    """Return an event of API Gateway, payload 2.0. `rooted` leaves the stage out of the path."""
    raw = path if rooted or stage == "$default" else f"/{stage}{path}"
    route, _ = route_of(method, path)
    sent = {"host": "x.execute-api.eu-central-1.amazonaws.com", **(headers or {})}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route,
        "rawPath": raw,
        "rawQueryString": query,
        "headers": {name.lower(): value for name, value in sent.items()},
        "requestContext": {
            "accountId": "123456789012",
            "apiId": "x",
            "domainName": sent["host"],
            "domainPrefix": "x",
            "http": {
                "method": method,
                "path": raw,
                "protocol": "HTTP/1.1",
                "sourceIp": "192.0.2.1",
                "userAgent": "test",
            },
            "requestId": "gateway-1",
            "routeKey": route,
            "stage": stage,
            "time": "02/Mar/2026:12:00:00 +0000",
            "timeEpoch": 1772452800000,
        },
        "isBase64Encoded": isinstance(body, bytes),
    }
    if authorizer is not None:
        event["requestContext"]["authorizer"] = authorizer
    if body is not None:
        event["body"] = base64.b64encode(body).decode() if isinstance(body, bytes) else body
        event["headers"].setdefault("content-type", "application/json")
    return event


class Api:
    """All API functions over one deployment, in environments of their own."""

    def __init__(
        self,
        direct: Direct,
        steady: Callable[[], float] = lambda: 0.0,
        pause: Callable[[float], None] | None = None,
        first_id: int = 1,
        trust: IssuerConfig | None = None,
    ) -> None:
        self.direct = direct
        self.clock = direct.clock
        self.store = direct.aws
        store, pause = self.store, pause or self.store.slept.append
        functions = (READ_FUNCTION, WRITE_FUNCTION, CLAIM_FUNCTION)
        self.telemetry = {function: RecordedTelemetry() for function in functions}
        numbers = count(first_id)

        def new_id() -> str:
            number = next(numbers) * (1 << 44 | 1)
            return sortable_id(self.clock(), number.to_bytes(10, "big"))

        def runtime(function: str) -> Runtime:
            return Runtime(
                store.settings,
                self.telemetry[function],
                store.clients,
                self.clock,
                steady,
                new_id,
                pool=ThreadPool(1),
                retry_policy=RetryPolicy(pause, seed="test", tries=4),
            )

        self.runtimes = {function: runtime(function) for function in functions}
        self._apps = {
            READ_FUNCTION: build_read_api(self.runtimes[READ_FUNCTION], trust),
            WRITE_FUNCTION: build_write_api(self.runtimes[WRITE_FUNCTION]),
            CLAIM_FUNCTION: build_claims_api(self.runtimes[CLAIM_FUNCTION]),
        }
        self._ids = count(1)

    def ask(self, event: dict[str, Any], function: str | None = None) -> Answer:
        path = event["rawPath"].removeprefix("/v1") or "/"
        method = event["requestContext"]["http"]["method"]
        function = function or route_of(method, path)[1]
        if method == "GET" and path in LISTING_PATHS:
            self.direct.job_lists.follow()
        context = SimpleNamespace(aws_request_id=f"request-{next(self._ids)}")
        world = self.direct.world
        with world.meter.as_role(world.name(function.replace("_", "-"))):
            response = respond(self._apps[function], self.telemetry[function], event, context)
        body = response["body"] or ""
        raw = base64.b64decode(body) if response["isBase64Encoded"] else body.encode()
        headers = {name.lower(): value for name, value in response["headers"].items()}
        assert not response.get("cookies")
        openapi_answers.check(method, path, response["statusCode"], headers, raw)
        return Answer(response["statusCode"], headers, raw)

    def __call__(self, method: str, path: str, value: Any = None, **event: Any) -> Answer:
        if value is not None:
            event["body"] = json.dumps(value)
        path, _, query = path.partition("?")
        return self.ask(an_event(method, path, query, **event))


@contextmanager
def an_api(stage: str = "dev", now: datetime = NOON) -> Iterator[Api]:
    with a_world(stage, now) as world:
        yield Api(Direct(world))
