"""The HTTP API from the template: first the authorizer, then the function of the route."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from bench.cost.meter import Unit
from tests.support.deployed.deployed import ACCOUNT, REGION
from tests.support.deployed.template import Stack, resources
from tests.support.deployed.world import World


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Route:
    key: str
    function: str
    open: bool  # a public route without an authorizer

    def serves(self, method: str, path: str) -> Mapping[str, str] | None:
        """Return the parameters of the path, or None if the route does not match."""
        if self.key == "$default":
            return {}
        wanted, template = self.key.split(" ", 1)
        if wanted not in (method, "ANY"):
            return None
        pattern = re.sub(r"\{(\w+)\+\}", r"(?P<\1>.+)", template)
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)
        match = re.fullmatch(pattern, path)
        return None if match is None else match.groupdict()


def routes_of(stacks: Sequence[Stack]) -> list[Route]:
    """Return the routes of the template. They come from there, because moto has no HTTP API."""
    names = {
        key.split("/", 1)[1]: resource["Properties"]["FunctionName"]
        for key, resource in resources(stacks, "AWS::Lambda::Function").items()
        if "FunctionName" in resource["Properties"]
    }
    behind = {
        key.split("/", 1)[1]: names[_function_in(resource["Properties"]["IntegrationUri"], names)]
        for key, resource in resources(stacks, "AWS::ApiGatewayV2::Integration").items()
    }
    return [
        Route(
            resource["Properties"]["RouteKey"],
            behind[_target(resource["Properties"]["Target"])],
            resource["Properties"].get("AuthorizationType", "NONE") == "NONE",
        )
        for resource in resources(stacks, "AWS::ApiGatewayV2::Route").values()
    ]


def authorizer_of(stacks: Sequence[Stack]) -> str:
    names = {
        key.split("/", 1)[1]: resource["Properties"]["FunctionName"]
        for key, resource in resources(stacks, "AWS::Lambda::Function").items()
        if "FunctionName" in resource["Properties"]
    }
    (authorizer,) = resources(stacks, "AWS::ApiGatewayV2::Authorizer").values()
    return str(names[_function_in(authorizer["Properties"]["AuthorizerUri"], names)])


def _function_in(uri: Any, names: Mapping[str, str]) -> str:
    """Return the only function that a URI refers to."""
    words: set[str] = set(re.findall(r"[A-Za-z0-9]+", json.dumps(uri)))
    matches = words & names.keys()
    (name,) = matches
    return name


def _target(target: Any) -> str:
    text = json.dumps(target)
    return str(re.findall(r'"Ref": "([A-Za-z0-9]+)"', text)[-1])


class Gateway:
    def __init__(self, world: World, token: str) -> None:
        self.world = world
        self.token = token
        self._routes = routes_of(world.stacks)
        self._authorizer = authorizer_of(world.stacks)
        (stage,) = resources(world.stacks, "AWS::ApiGatewayV2::Stage").values()
        # A placeholder is about as long as its value.
        self._logged = len(stage["Properties"]["AccessLogSettings"]["Format"])

    def get(self, target: str, **headers: str) -> Answer:
        return self.call("GET", target, None, headers)

    def output(self, job: str, run_id: str) -> bytes:
        """Return a run's output as a client reads it, which follows the link to its object."""
        answer = self.get(f"/jobs/{job}/runs/{run_id}/output")
        if answer.status == 200:
            return answer.body.encode()
        assert answer.status == 302, answer
        key = unquote(urlsplit(answer.headers["location"]).path)
        return self.world.object(key[key.index("outputs/") :])

    def post(self, target: str, value: Any = None, **headers: str) -> Answer:
        return self.call("POST", target, value, headers)

    def call(
        self, method: str, target: str, value: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send one request to stage v1, and return its answer."""
        path, _, query = target.partition("?")
        route, parameters = self._route(method, path)
        sent = {"host": "api.example", "authorization": f"Bearer {self.token}"}
        body = None if value is None else json.dumps(value)
        if body is not None:
            sent["content-type"] = "application/json"
        sent |= {name.replace("_", "-"): text for name, text in (headers or {}).items()}
        event = self._event(route, method, path, query, sent)
        self.world.meter.add_billed_item("gateway", Unit.API, route.key)
        self.world.meter.add_billed_item("gateway", Unit.LOG_BYTE, "access log", self._logged)
        if not route.open:
            decision = self.world.invoke(self._authorizer, {**event, "type": "REQUEST"})
            if not decision or not decision.get("isAuthorized"):
                return Answer(403 if decision else 500, {}, "{}")
            event["requestContext"]["authorizer"] = {"lambda": decision.get("context", {})}
        event |= {"body": body, "isBase64Encoded": False, "pathParameters": dict(parameters)}
        answer = self.world.invoke(
            route.function, {k: v for k, v in event.items() if v is not None}
        )
        return _answer(answer)

    def _route(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Return the most specific route. Fewer parameters win, and `$default` comes last."""
        order = sorted(
            self._routes,
            key=lambda route: (route.key == "$default", "+" in route.key, route.key.count("{")),
        )
        for route in order:
            parameters = route.serves(method, path)
            if parameters is not None:
                return route, parameters
        raise AssertionError(f"no route for {method} {path}")

    def _event(
        self, route: Route, method: str, path: str, query: str, headers: Mapping[str, str]
    ) -> dict[str, Any]:
        now = self.world.clock()
        return {
            "version": "2.0",
            "routeKey": route.key,
            "rawPath": f"/v1{quote(path, safe='/%')}",
            "rawQueryString": query,
            "headers": dict(headers),
            "identitySource": [headers["authorization"]] if headers.get("authorization") else [],
            "routeArn": f"arn:aws:execute-api:{REGION}:{ACCOUNT}:api/v1/{method}{path}",
            "requestContext": {
                "accountId": ACCOUNT,
                "apiId": "api",
                "domainName": "api.example",
                "domainPrefix": "api",
                "http": {
                    "method": method,
                    "path": f"/v1{path}",
                    "protocol": "HTTP/1.1",
                    "sourceIp": "192.0.2.1",
                    "userAgent": "test",
                },
                "requestId": self.world.new_id(),
                "routeKey": route.key,
                "stage": "v1",
                "time": now.strftime("%d/%b/%Y:%H:%M:%S +0000"),
                "timeEpoch": int(now.timestamp() * 1000),
            },
        }


def _answer(answer: Any) -> Answer:
    if answer is None:
        return Answer(500, {}, '{"message":"Internal Server Error"}')
    body = answer.get("body", "")
    if answer.get("isBase64Encoded"):
        body = base64.b64decode(body).decode()
    return Answer(answer["statusCode"], answer.get("headers", {}), body)
