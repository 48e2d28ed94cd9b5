"""The routes answer events of API Gateway through powertools' resolver."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest

from punctual.engine.ports.rows import Detail
from punctual.web.app import build_routes, route_groups
from punctual.web.contract import API_CALLS
from punctual.web.gateway import build_resolver
from punctual.web.http.request import Caller
from tests.support.web_world import WebWorld

JOB = '{"name":"ä","schedule_type":"IMMEDIATE"}'
CONTEXT: Any = SimpleNamespace(aws_request_id="r1")


class Gateway:
    def __init__(self, stage: str = "v1", max_response_bytes: int | None = None) -> None:
        self.world = WebWorld()
        self.stage = stage
        self.logged: list[str] = []
        self.services = self.world.services(max_response_bytes)
        self.app = build_resolver(
            route_groups(self.services),
            self.log,
            lambda event, _path: Caller(event["tenant"], "me"),
        )

    def log(self, event: str, /, **fields: Any) -> None:
        self.logged.append(event)

    def call(
        self, method: str, path: str, body: str | bytes = "", query: str = "", **headers: str
    ) -> dict[str, Any]:
        full_path = path if self.stage == "$default" else f"/{self.stage}{path}"
        sent = {"content-type": "application/json"} if body else {}
        event = {
            "version": "2.0",
            "tenant": "acme",
            "rawPath": full_path,
            "rawQueryString": query,
            "headers": sent | {name.replace("_", "-"): text for name, text in headers.items()},
            "requestContext": {
                "stage": self.stage,
                "http": {"method": method, "path": full_path},
            },
            "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
            "isBase64Encoded": isinstance(body, bytes),
        }
        return self.app.resolve(event, CONTEXT)

    def finished_run(self, detail: Detail) -> str:
        """Return the path of a run that finished with this result."""
        job_id = json.loads(self.call("POST", "/jobs", JOB)["body"])["job_id"]
        (run,) = json.loads(self.call("GET", f"/jobs/{job_id}/runs")["body"])["runs"]
        self.world.finish_runs(detail)
        return f"/jobs/{job_id}/runs/{run['run_id']}"


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.mark.parametrize("body", [JOB, JOB.encode()])
def test_gateway_accepts_a_job_for_the_tenant_of_the_caller(
    gateway: Gateway, body: str | bytes
) -> None:
    answer = gateway.call("POST", "/jobs", body)
    job = json.loads(answer["body"])
    assert (answer["statusCode"], job["name"], job["created_by"]) == (202, "ä", "me")
    assert answer["isBase64Encoded"] is False
    assert answer["headers"]["location"] == f"/v1/jobs/{job['job_id']}"
    assert answer["headers"]["x-request-id"] == "r1"
    assert answer["headers"]["Content-Type"] == "application/json"
    assert gateway.world.stored_jobs == {("acme", job["job_id"])}
    read = gateway.call("GET", f"/jobs/{job['job_id']}")
    assert (read["statusCode"], json.loads(read["body"])) == (200, job)


def test_gateway_without_a_stage_has_locations_at_the_root() -> None:
    answer = Gateway("$default").call("POST", "/jobs", JOB)
    assert answer["headers"]["location"].startswith("/jobs/")


def test_gateway_passes_the_query_to_the_call(gateway: Gateway) -> None:
    gateway.call("POST", "/jobs", JOB)
    gateway.call("POST", "/jobs", JOB)
    page = json.loads(gateway.call("GET", "/jobs", query="limit=1")["body"])
    next_page = json.loads(
        gateway.call("GET", "/jobs", query=f"limit=1&next_token={page['next_token']}")["body"]
    )
    assert next_page["jobs"][0]["job_id"] < page["jobs"][0]["job_id"]
    assert gateway.call("GET", "/jobs", query="limit=0")["statusCode"] == 422


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nothing", "", {}, 404),
        ("GET", "/events", "", {}, 404),
        ("PUT", "/jobs", JOB, {}, 405),
        ("OPTIONS", "/jobs", "", {}, 204),
        ("HEAD", "/jobs", "", {}, 200),
        ("GET", "/jobs/", "", {}, 200),
        ("GET", "/jobs", "", {"accept": "text/html"}, 406),
        ("GET", "/nothing", "", {"accept": "text/html"}, 404),
        ("POST", "/jobs", "{", {}, 400),
        ("POST", "/jobs", "{}", {}, 422),
        ("POST", "/jobs", JOB, {"content_type": "text/plain"}, 415),
        ("POST", "/jobs", JOB + " " * 524_288, {}, 413),
        ("GET", "/jobs/x", "", {}, 404),
    ],
)
def test_gateway_refusal_has_the_status_of_the_contract(
    gateway: Gateway, method: str, path: str, body: str, headers: dict[str, str], status: int
) -> None:
    answer = gateway.call(method, path, body, **headers)
    assert answer["statusCode"] == status
    if status >= 400:
        problem = json.loads(answer["body"])
        assert (problem["status"], problem["request_id"]) == (status, "r1")
        assert answer["headers"]["Content-Type"] == "application/problem+json"
    if status == 405:
        assert answer["headers"]["allow"] == "GET, HEAD, OPTIONS, POST"


def test_unexpected_error_is_logged_and_not_returned(gateway: Gateway) -> None:
    gateway.world.plan.error = ZeroDivisionError("secret")
    answer = gateway.call("GET", "/stats")
    assert (answer["statusCode"], gateway.logged) == (500, ["request_failed"])
    assert "secret" not in answer["body"]


def test_gateway_returns_bytes_as_bytes(gateway: Gateway) -> None:
    path = gateway.finished_run(Detail(output=b"\xff\x00", output_type="image/png"))
    answer = gateway.call("GET", f"{path}/output")
    assert (answer["isBase64Encoded"], base64.b64decode(answer["body"])) == (True, b"\xff\x00")
    assert answer["headers"]["Content-Type"] == "image/png"


def test_answer_over_the_size_limit_of_lambda_is_refused(gateway: Gateway) -> None:
    path = gateway.finished_run(Detail(output_blob="output", output_type="image/png"))
    for size, status in ((4_400_000, 200), (4_600_000, 422)):
        gateway.world.memory.blobs.put("output", b"x" * size, "image/png")
        answer = gateway.call("GET", f"{path}/output")
        assert answer["statusCode"] == status
    assert json.loads(answer["body"])["code"] == "ANSWER_TOO_LONG"


def test_bounded_answer_returns_logs_in_pieces() -> None:
    gateway = Gateway(max_response_bytes=8)
    path = gateway.finished_run(Detail(log_blob="log", log_size=10))
    gateway.world.memory.blobs.put("log", b"abcdefghij", "text/plain")
    pieces, offset = [], "0"
    for _ in range(4):
        answer = gateway.call("GET", f"{path}/logs", query=f"after={offset}")
        pieces.append(base64.b64decode(answer["body"] or ""))
        offset = answer["headers"]["x-next-offset"]
    assert pieces == [b"abcd", b"efgh", b"ij", b""]


def test_gateway_has_every_declared_route(gateway: Gateway) -> None:
    declared = build_routes(gateway.services, gateway.log).declared
    assert len(declared) == len(API_CALLS)
    for route in declared:
        path = route.rule.replace("<job_id>", "x").replace("<run_id>", "y")
        answer = gateway.call(route.method, path, "{}" if route.method != "GET" else "")
        assert answer["statusCode"] != 405
