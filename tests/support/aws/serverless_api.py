"""The deployed API on moto. It turns events of an HTTP API into answers of its functions."""

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any, NamedTuple

from punctual.auth.issuer_config import IssuerConfig
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.lambdas.api_runtime import respond
from punctual.lambdas.job_search.handler import build_read_api
from punctual.lambdas.job_service.handler import build_write_api
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric
from punctual.web.contract import API_CALLS, FALLBACK_FUNCTION, READER, WRITER
from tests.support import openapi_answers
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON

ADMIN = {"lambda": {"tenant": "default", "caller": "admin", "role": "admin"}}


class Hand:
    """A manual clock."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Told:
    """Keeps the log lines and metrics of a function."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.measured: Counter[Metric] = Counter()

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})

    def error(self, event: str, /, **fields: Any) -> None:
        self.lines.append({"event": event, "problem": True, **fields})

    def metric(self, metric: Metric, value: float = 1) -> None:
        self.measured[metric] += int(value)

    @contextmanager
    def invocation(self) -> Iterator[None]:
        yield

    def named(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]


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
                one == part or one.startswith("{") for one, part in zip(wanted, parts, strict=True)
            ]
            exact = sum(one == part for one, part in zip(wanted, parts, strict=True))
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


class Deployed:
    """Both API functions over one store."""

    def __init__(
        self,
        store: Moto,
        clock: Callable[[], datetime],
        steady: Callable[[], float] = lambda: 0.0,
        pause: Callable[[float], None] | None = None,
        crew: int = 1,
        first_id: int = 1,
        trust: IssuerConfig | None = None,
    ) -> None:
        self.store = store
        pause = pause or store.slept.append
        self.told = {READER: Told(), WRITER: Told()}
        numbers = count(first_id)

        def new_id() -> str:
            return sortable_id(clock(), (next(numbers) * (1 << 44 | 1)).to_bytes(10, "big"))

        def runtime(function: str) -> Runtime:
            return Runtime(
                store.settings,
                self.told[function],
                store.clients,
                clock,
                steady,
                new_id,
                crew=ThreadPool(crew),
                patience=RetryPolicy(pause, seed="test", tries=4),
            )

        self.runtimes = {function: runtime(function) for function in (READER, WRITER)}
        reader, writer = (
            build_read_api(self.runtimes[READER], trust),
            build_write_api(self.runtimes[WRITER]),
        )
        self._apps = {READER: reader, WRITER: writer}
        self._ids = count(1)

    def ask(self, event: dict[str, Any], function: str | None = None) -> Answer:
        path = event["rawPath"].removeprefix("/v1") or "/"
        method = event["requestContext"]["http"]["method"]
        function = function or route_of(method, path)[1]
        context = SimpleNamespace(aws_request_id=f"request-{next(self._ids)}")
        said = respond(self._apps[function], self.told[function], event, context)
        body = said["body"] or ""
        raw = base64.b64decode(body) if said["isBase64Encoded"] else body.encode()
        headers = {name.lower(): value for name, value in said["headers"].items()}
        assert not said.get("cookies")
        openapi_answers.check(method, path, said["statusCode"], headers, raw)
        return Answer(said["statusCode"], headers, raw)

    def __call__(self, method: str, path: str, value: Any = None, **event: Any) -> Answer:
        if value is not None:
            event["body"] = json.dumps(value)
        path, _, query = path.partition("?")
        return self.ask(an_event(method, path, query, **event))


@contextmanager
def deployed(clock: Callable[[], datetime]) -> Iterator[Deployed]:
    with moto(clock) as store:
        yield Deployed(store, clock)
