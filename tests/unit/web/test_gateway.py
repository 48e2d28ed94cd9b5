"""The routes answer events of API Gateway through powertools' resolver."""

import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest

from punctual.engine.queries.views import Output
from punctual.node.features import NODE_FEATURES
from punctual.web.app import build_routes, route_groups
from punctual.web.contract import API_CALLS
from punctual.web.gateway import build_resolver
from punctual.web.http.request import Caller
from punctual.web.services import Services
from punctual.web.views.system import InstallationInfo
from tests.support.web_engine import MemoryEngine

JOB = '{"name":"ä","schedule_type":"IMMEDIATE"}'
CONTEXT: Any = SimpleNamespace(aws_request_id="r1")


class Gateway:
    def __init__(self, stage: str = "v1", most: int | None = None) -> None:
        self.engine = MemoryEngine()
        self.stage = stage
        self.logged: list[str] = []
        jobs, search = self.engine.as_jobs, self.engine.as_search
        about = InstallationInfo("0", ())
        services = Services(
            jobs,
            search,
            self.engine.clock,
            NODE_FEATURES,
            about,
            self.engine.tokens,
            max_response_bytes=most,
        )
        self.services = services
        self.app = build_resolver(
            route_groups(services), self.log, lambda event, _path: Caller(event["tenant"], "me")
        )

    def log(self, event: str, /, **fields: Any) -> None:
        self.logged.append(event)

    def call(
        self, method: str, path: str, body: str | bytes = "", query: str = "", **headers: str
    ) -> dict[str, Any]:
        full = path if self.stage == "$default" else f"/{self.stage}{path}"
        sent = {"content-type": "application/json"} if body else {}
        event = {
            "version": "2.0",
            "tenant": "acme",
            "rawPath": full,
            "rawQueryString": query,
            "headers": sent | {name.replace("_", "-"): text for name, text in headers.items()},
            "requestContext": {
                "stage": self.stage,
                "http": {"method": method, "path": full},
            },
            "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
            "isBase64Encoded": isinstance(body, bytes),
        }
        return self.app.resolve(event, CONTEXT)


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.mark.parametrize("body", [JOB, JOB.encode()])
def test_a_job_is_accepted_for_the_callers_tenant(gateway: Gateway, body: str | bytes) -> None:
    answer = gateway.call("POST", "/jobs", body)
    job = json.loads(answer["body"])
    assert (answer["statusCode"], job["name"], job["created_by"]) == (202, "ä", "me")
    assert answer["isBase64Encoded"] is False
    assert answer["headers"]["location"] == f"/v1/jobs/{job['job_id']}"
    assert answer["headers"]["x-request-id"] == "r1"
    assert answer["headers"]["Content-Type"] == "application/json"
    assert set(gateway.engine.views) == {("acme", job["job_id"])}
    read = gateway.call("GET", f"/jobs/{job['job_id']}")
    assert (read["statusCode"], json.loads(read["body"])) == (200, job)


def test_without_a_stage_addresses_begin_at_the_root() -> None:
    answer = Gateway("$default").call("POST", "/jobs", JOB)
    assert answer["headers"]["location"].startswith("/jobs/")


def test_a_query_reaches_the_call(gateway: Gateway) -> None:
    gateway.call("POST", "/jobs", JOB)
    gateway.call("POST", "/jobs", JOB)
    page = json.loads(gateway.call("GET", "/jobs", query="limit=1")["body"])
    following = json.loads(
        gateway.call("GET", "/jobs", query=f"limit=1&next_token={page['next_token']}")["body"]
    )
    assert following["jobs"][0]["job_id"] < page["jobs"][0]["job_id"]
    assert gateway.call("GET", "/jobs", query="limit=0")["statusCode"] == 422


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("GET", "/nothing", "", {}, 404),
        ("GET", "/artifacts", "", {}, 404),
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
def test_refusals_are_the_same_as_elsewhere(
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


def test_what_nobody_foresaw_is_logged_and_not_told(gateway: Gateway) -> None:
    gateway.engine.error = ZeroDivisionError("secret")
    answer = gateway.call("GET", "/stats")
    assert (answer["statusCode"], gateway.logged) == (500, ["request_failed"])
    assert "secret" not in answer["body"]


def test_bytes_leave_as_bytes(gateway: Gateway) -> None:
    job_id = json.loads(gateway.call("POST", "/jobs", JOB)["body"])["job_id"]
    run_id = json.loads(gateway.call("POST", f"/jobs/{job_id}/runNow")["body"])["run_id"]
    gateway.engine.outputs[run_id] = Output(b"\xff\x00", "image/png")
    answer = gateway.call("GET", f"/jobs/{job_id}/runs/{run_id}/output")
    assert (answer["isBase64Encoded"], base64.b64decode(answer["body"])) == (True, b"\xff\x00")
    assert answer["headers"]["Content-Type"] == "image/png"


def test_an_answer_that_lambda_could_not_give_is_refused(gateway: Gateway) -> None:
    job_id = json.loads(gateway.call("POST", "/jobs", JOB)["body"])["job_id"]
    run_id = json.loads(gateway.call("POST", f"/jobs/{job_id}/runNow")["body"])["run_id"]
    for size, status in ((4_400_000, 200), (4_600_000, 422)):
        gateway.engine.outputs[run_id] = Output(b"x" * size, "image/png")
        answer = gateway.call("GET", f"/jobs/{job_id}/runs/{run_id}/output")
        assert answer["statusCode"] == status
    assert json.loads(answer["body"])["code"] == "ANSWER_TOO_LONG"


def test_logs_come_in_pieces_where_an_answer_is_bounded() -> None:
    gateway = Gateway(most=8)
    job_id = json.loads(gateway.call("POST", "/jobs", JOB)["body"])["job_id"]
    run_id = json.loads(gateway.call("POST", f"/jobs/{job_id}/runNow")["body"])["run_id"]
    gateway.engine.outputs[run_id] = Output(b"abcdefghij", "text/plain")
    pieces, after = [], "0"
    for _ in range(4):
        query = f"after={after}"
        answer = gateway.call("GET", f"/jobs/{job_id}/runs/{run_id}/logs", query=query)
        pieces.append(base64.b64decode(answer["body"] or ""))
        after = answer["headers"]["x-next-offset"]
    assert pieces == [b"abcd", b"efgh", b"ij", b""]


def test_both_ways_know_the_same_routes(gateway: Gateway) -> None:
    declared = build_routes(gateway.services, gateway.log).declared
    assert len(declared) == len(API_CALLS)
    for one in declared:
        path = one.rule.replace("<job_id>", "x").replace("<run_id>", "y")
        answer = gateway.call(one.method, path, "{}" if one.method != "GET" else "")
        assert answer["statusCode"] != 405
