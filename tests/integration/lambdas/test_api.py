"""The two API functions, called with the events of API Gateway."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from punctual.auth.issuer_config import IssuerConfig
from punctual.domain.identifiers import bucket_of
from punctual.tasks.reach import AllowedTargets, encode_targets
from punctual.web.contract import API_CALLS, CLAIM_PATHS, PREFLIGHT, READ_FUNCTION, WRITE_FUNCTION
from tests.support.aws.moto_adapter import Moto
from tests.support.builders import ManualClock
from tests.support.deployed.drivers.api import Answer, Api, an_api, an_event, route_of

ROOT = Path(__file__).parents[3]
LAYER = ROOT / "layers/core/python"
SCRIPT = {"type": "script", "runtime": "bash", "code": "ls"}
AT_MIDNIGHT = {
    "schedule_type": "FUTURE",
    "schedule_time": "2026-12-01T00:00:00Z",
    "cron_expression": None,
}
DAILY = {"name": "ä", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}


@pytest.fixture
def api() -> Iterator[Api]:
    with an_api() as api:
        yield api


@pytest.fixture
def clock(api: Api) -> ManualClock:
    return api.clock


def a_problem(answer: Answer, status: int, code: str) -> dict[str, Any]:
    problem: dict[str, Any] = answer.json
    assert (answer.status, problem["status"], problem["code"]) == (status, status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["request_id"] == answer.headers["x-request-id"]
    return problem


def test_job_submitted_to_write_function_is_shown_by_read_function(api: Api) -> None:
    taken = api("POST", "/jobs", DAILY)
    job = taken.json
    assert (taken.status, taken.headers["location"]) == (202, f"/v1/jobs/{job['job_id']}")
    assert (job["name"], job["created_by"]) == ("ä", "admin")
    shown = api("GET", f"/jobs/{job['job_id']}")
    assert (shown.status, shown.json) == (200, job)
    listed = api("GET", "/jobs?status=SCHEDULED&status=PAUSED&name_prefix=%C3%A4")
    assert listed.json == {"jobs": [job], "next_token": None}


def test_run_list_over_all_jobs_takes_each_time(api: Api) -> None:
    api("POST", "/jobs", DAILY)
    for by in ("scheduled", "started", "ended"):
        answer = api("GET", f"/runs?by={by}&from=2026-01-01T00:00:00Z")
        assert (answer.status, answer.json["runs"]) == (200, [])


def test_every_route_reaches_its_function(api: Api) -> None:
    job_id = api("POST", "/jobs", DAILY).json["job_id"]
    for route in API_CALLS:
        path = route.path.replace("{job_id}", job_id).replace("{run_id}", job_id)
        assert route_of(route.method, path) == (f"{route.method} {route.path}", route.function)
        sent: Any = None if route.method in ("GET", "DELETE") else {}
        answer = api(route.method, path, sent)
        assert answer.status not in (405, 421, 500), (route, answer)
        if answer.status >= 400:
            assert answer.headers["content-type"] == "application/problem+json", route


def test_job_with_target_outside_tenant_allowlist_is_invalid(api: Api) -> None:
    reach = AllowedTargets({"default": ["orders"], "*": ["task-*"]}, {})
    api.store.settings = replace(api.store.settings, reach=encode_targets(reach))
    limited = Api(api.direct)

    def sent(function: str) -> Answer:
        return limited("POST", "/jobs", {**DAILY, "task": {"type": "lambda", "function": function}})

    assert sent("orders").status == 202
    problem = a_problem(sent("task-a"), 422, "INVALID")
    assert [error["field"] for error in problem["errors"]] == ["task.function"]


def test_job_accepts_calls_from_creation_to_deletion(api: Api) -> None:
    job = f"/jobs/{api('POST', '/jobs', DAILY).json['job_id']}"
    assert api("PATCH", job, {"name": "b"}, headers={"if-match": '"1"'}).json["name"] == "b"
    stale = api("PUT", job, {"name": "c"}, headers={"if-match": '"1"'})
    a_problem(stale, 412, "PRECONDITION_FAILED")
    assert api("POST", f"{job}/pause").json["status"] == "PAUSED"
    run = api("POST", f"{job}/runNow", {"payload": 1}).json
    assert run["status"] == "QUEUED"
    assert api("POST", f"{job}/runs/{run['run_id']}/cancel").status == 202
    assert api("POST", f"{job}/runs/{run['run_id']}/retry").status == 202
    runs = api("GET", f"{job}/runs").json["runs"]
    assert {run["trigger"] for run in runs} == {"RETRY", "RUN_NOW"}
    assert api("GET", f"{job}/status").json["status"] == "PAUSED"
    assert api("POST", f"{job}/resume", {}).json["status"] == "SCHEDULED"
    assert api("DELETE", job).json["status"] == "CANCELLED"
    a_problem(api("POST", f"{job}/runNow", {}), 409, "CONFLICT")


@pytest.mark.parametrize("authorizer", [None, {}, {"lambda": None}, {"lambda": {}}, {"jwt": {}}])
def test_call_without_tenant_is_unauthenticated_and_changes_nothing(
    api: Api, authorizer: Any
) -> None:
    before = api.store.rows(api.store.settings.jobs_table)
    for route in API_CALLS:
        path = route.path.replace("{job_id}", "x").replace("{run_id}", "y")
        sent = None if route.method == "GET" else DAILY
        answer = api(route.method, path, sent, authorizer=authorizer)
        if route.path in CLAIM_PATHS:
            a_problem(answer, 422, "INVALID")
        elif route.is_public:
            assert answer.status in (200, 404, 503)
        else:
            a_problem(answer, 401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"] == 'Bearer realm="punctual"'
    a_problem(api("GET", "/nothing", authorizer=authorizer), 401, "UNAUTHENTICATED")
    assert api.store.rows(api.store.settings.jobs_table) == before == []


INCOMPLETE_CALLERS: list[dict[str, Any]] = [
    {"tenant": ""},
    {"tenant": 1, "caller": "a", "role": "admin"},
    {"caller": "a", "role": "admin"},
    {"tenant": "a", "caller": "a"},
    {"tenant": "default", "caller": "admin"},
    {"tenant": "a", "caller": "a", "role": "root"},
]


@pytest.mark.parametrize("caller", INCOMPLETE_CALLERS)
def test_incomplete_caller_is_unauthenticated(api: Api, caller: dict[str, Any]) -> None:
    answer = api("GET", "/jobs", authorizer={"lambda": caller})
    a_problem(answer, 401, "UNAUTHENTICATED")
    assert "jobs" not in answer.json


def test_unchecked_token_is_unavailable_with_retry_after(api: Api) -> None:
    answer = api("GET", "/jobs", authorizer={"lambda": {"unsure": "yes"}})
    a_problem(answer, 503, "UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"


def test_tenant_sees_only_own_jobs(api: Api) -> None:
    job_id = api("POST", "/jobs", DAILY).json["job_id"]
    other = {"lambda": {"tenant": "other", "caller": "b", "role": "admin"}}
    a_problem(api("GET", f"/jobs/{job_id}", authorizer=other), 404, "NOT_FOUND")
    assert api("GET", "/jobs", authorizer=other).json["jobs"] == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/events", 404),
        ("PUT", "/jobs", 405),
        ("POST", "/health", 405),
        ("OPTIONS", "/jobs/x/pause", 204),
        ("HEAD", "/jobs", 200),
        ("GET", "/jobs/", 200),
    ],
)
def test_path_outside_route_table_gets_correct_status(
    api: Api, method: str, path: str, status: int
) -> None:
    answer = api(method, path)
    assert answer.status == status
    if method == "HEAD":
        assert answer.body == b""
    if (method, path) == ("PUT", "/jobs"):
        assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"
    if method == "OPTIONS":
        assert answer.headers["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("path", ["/jobs", "/jobs/x/pause", "/nothing", "/"])
def test_preflight_without_token_gets_empty_answer(api: Api, path: str) -> None:
    event = an_event("OPTIONS", path, headers={"Origin": "https://a.example"}, authorizer=None)
    assert api.ask(event, READ_FUNCTION).status == 401, (
        "without the preflight route a token is needed"
    )
    answer = api.ask({**event, "routeKey": PREFLIGHT}, READ_FUNCTION)
    assert (answer.status, answer.body) == (204, b"")
    assert "allow" not in answer.headers


def test_trailing_slash_is_redirected_and_wrong_function_is_misrouted(api: Api) -> None:
    answer = api("POST", "/jobs/?x=1", DAILY)
    assert (answer.status, answer.headers["location"]) == (308, "/v1/jobs?x=1")
    strange = api.ask(an_event("POST", "/jobs", body="{}"), READ_FUNCTION)
    a_problem(strange, 421, "MISROUTED")


def test_custom_domain_works_without_stage_in_path(api: Api) -> None:
    answer = api("POST", "/jobs", DAILY, rooted=True)
    location = answer.headers["location"]
    assert (answer.status, location) == (202, f"/jobs/{answer.json['job_id']}")
    assert api("GET", location, rooted=True).status == 200
    assert api("GET", location, stage="$default").status == 200
    assert api("GET", location).status == 200


def test_base64_body_is_decoded(api: Api) -> None:
    answer = api.ask(an_event("POST", "/jobs", body=json.dumps(DAILY).encode()))
    assert (answer.status, answer.json["name"]) == (202, "ä")
    a_problem(api.ask(an_event("POST", "/jobs", body=b"\xff\x00")), 400, "BAD_REQUEST")


def test_body_over_limit_is_too_large(api: Api) -> None:
    long = json.dumps(DAILY) + " " * 524_288
    a_problem(api.ask(an_event("POST", "/jobs", body=long)), 413, "TOO_LARGE")
    batch = {"jobs": [{**DAILY, "name": name} for name in "abc"]}
    taken = api.ask(an_event("POST", "/jobs/batch", body=json.dumps(batch) + " " * 600_000))
    assert [result["status"] for result in taken.json["results"]] == [202] * 3
    wrong = an_event("POST", "/jobs", body="{}", headers={"content-type": "text/plain"})
    a_problem(api.ask(wrong), 415, "UNSUPPORTED_MEDIA_TYPE")


def test_script_over_the_time_of_a_function_is_invalid(api: Api) -> None:
    job = {**DAILY, "task": SCRIPT, "timeout_seconds": 841}
    problem = a_problem(api("POST", "/jobs", job), 422, "INVALID")
    assert [error["field"] for error in problem["errors"]] == ["timeout_seconds"]


def test_task_outside_deployment_is_invalid(api: Api) -> None:
    for task, field in (
        ({"type": "container", "image": "x"}, "task.type"),
        ({**SCRIPT, "interpreter": "/usr/bin/ruby"}, "task.interpreter"),
        ({**SCRIPT, "working_directory": "/srv"}, "task.working_directory"),
        ({**SCRIPT, "resources": {"memory_mb": 513}}, "task.resources.memory_mb"),
    ):
        problem = a_problem(api("POST", "/jobs", {**DAILY, "task": task}), 422, "INVALID")
        assert [error["field"] for error in problem["errors"]] == [field]
    for task in (
        {"type": "event"},
        {"type": "http", "url": "https://example.com/{{secret:token}}"},
        SCRIPT,
    ):
        job = {**DAILY, "name": task["type"], "task": task}
        assert api("POST", "/jobs", job).status == 202


def test_page_ends_before_answer_exceeds_size_limit(api: Api) -> None:
    payload = "x" * 250_000
    job_ids = [
        api("POST", "/jobs", {**DAILY, "name": f"a{n}", "payload": payload}).json["job_id"]
        for n in range(26)
    ]
    first = api("GET", "/jobs?limit=200")
    assert len(first.body) < 6_000_000
    assert 1 < len(first.json["jobs"]) < 26
    rest = api("GET", f"/jobs?limit=200&next_token={first.json['next_token']}")
    listed = [job["job_id"] for page in (first, rest) for job in page.json["jobs"]]
    assert (listed, rest.json["next_token"]) == (job_ids[::-1], None)


def test_health_without_token_is_down_while_planner_is_silent(api: Api, clock: ManualClock) -> None:
    silent = api("GET", "/health", authorizer=None)
    assert (silent.status, silent.json["status"]) == (503, "down")
    buckets = api.store.ports.partitions
    assert buckets.advance_watermark(None, bucket_of(clock.now))
    well = api("GET", "/health", authorizer=None)
    assert (well.status, well.json["status"]) == (200, "ok")
    assert well.json["task_types"] == ["event", "http", "lambda", "script", "sqs"]
    assert well.json["version"] != "unknown"
    clock.advance(timedelta(seconds=7 * 60))
    assert api("GET", "/health").status == 200
    assert api("GET", "/health/ready", authorizer=None).status == 200
    clock.advance(timedelta(seconds=2 * 60))
    assert api("GET", "/health", authorizer=None).json["status"] == "down"
    assert api("GET", "/health/ready", authorizer=None).status == 503
    assert api("GET", "/health/live", authorizer=None).status == 200


def test_overview_is_blind_a_minute_after_the_planner_should_have_spoken(
    api: Api, clock: ManualClock
) -> None:
    assert api.store.ports.partitions.advance_watermark(None, bucket_of(clock.now))
    clock.advance(timedelta(seconds=119))
    assert api("GET", "/overview").json["verdict"] == "OK"
    clock.advance(timedelta(seconds=2))
    blind = api("GET", "/overview").json
    assert blind["verdict"] == "BLIND"
    assert blind["sentence"].startswith("No word from the planner for 2 min.")
    assert api("GET", "/health").status == 200


@pytest.mark.parametrize("client_id", [None, "pages"])
def test_health_shows_trusted_issuer(api: Api, client_id: str | None) -> None:
    assert api("GET", "/health", authorizer=None).json["auth"] is None
    trust = IssuerConfig("https://id.example.com", "punctual", client_id=client_id)
    trusting = Api(api.direct, first_id=1_000, trust=trust)
    told = trusting("GET", "/health", authorizer=None).json["auth"]
    assert told == {"issuer": "https://id.example.com", "client_id": client_id}


def test_health_is_down_while_store_is_unavailable(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url="https://dynamodb")

    dynamodb = api.store.clients.dynamodb
    for name in ("batch_get_item", "query", "get_item"):
        monkeypatch.setattr(dynamodb, name, refuse)
    answer = api("GET", "/health", authorizer=None)
    assert (answer.status, answer.json["status"]) == (503, "down")
    a_problem(api("GET", "/jobs"), 503, "UNAVAILABLE")


def test_stats_without_jobs_have_all_fields(api: Api) -> None:
    assert api("GET", "/stats").json == {
        "jobs": {},
        "runs": {},
        "last_hour": [],
        "list_lag_ms": {"p50": None, "p99": None, "max": None},
        "lateness_ms": {"p50": None, "p99": None, "max": None},
        "queue": {"depth": 0, "oldest_seconds": 0},
        "limits": [
            {"limit": "artifacts", "allowed": 1_000, "used": 0},
            {"limit": "artifact_mb", "allowed": 20_480, "used": 0},
        ],
        "executors": [],
    }


def test_each_answer_is_logged_without_request_contents(api: Api) -> None:
    api("POST", "/jobs", {**DAILY, "payload": "secret"}, headers={"authorization": "Bearer hush"})
    api("GET", "/jobs?name_prefix=hidden", authorizer=None)
    (written,) = api.telemetry[WRITE_FUNCTION].named("answered")
    assert written == {
        "request_id": "request-1",
        "method": "POST",
        "route": "POST /jobs",
        "status": 202,
        "tenant": "default",
    }
    (refused,) = api.telemetry[READ_FUNCTION].named("answered")
    assert (refused["status"], refused["tenant"], refused["route"]) == (401, "", "GET /jobs")
    lines = json.dumps(api.telemetry[WRITE_FUNCTION].events + api.telemetry[READ_FUNCTION].events)
    assert not {word for word in ("secret", "hush", "hidden") if word in lines}


def test_api_calls_make_fixed_number_of_aws_calls(api: Api) -> None:
    """The AWS calls of a warm environment, by operation. The test notices an increase."""
    first_id = api("POST", "/jobs", DAILY).json["job_id"]
    spent: list[dict[str, int]] = []

    def spend(*call: Any) -> Answer:
        answers: list[Answer] = []
        spent.append(api.store.spend(lambda: answers.append(api(*call))))
        return answers[0]

    job_id = spend("POST", "/jobs", {**DAILY, "name": "another"}).json["job_id"]
    assert spent[-1] == {"BatchWriteItem": 2, "PutItem": 2}  # the state, and the row of the name
    spend("POST", "/jobs", {**DAILY, **AT_MIDNIGHT})
    assert spent[-1] == {"BatchWriteItem": 2, "PutItem": 1}
    problem = a_problem(spend("POST", "/jobs", DAILY), 409, "NAME_TAKEN")
    assert problem["job_id"] == first_id
    assert spent[-1] == {"BatchGetItem": 2, "PutItem": 1}
    spend("GET", f"/jobs/{job_id}")
    assert spent[-1] == {"BatchGetItem": 2}
    spend("GET", "/health")
    assert spent[-1] == {"BatchGetItem": 2, "Query": 2}
    spend("GET", "/stats")
    # One batch reads the counters, one the counts of jobs. Four queries are of list slots, one of
    # artifacts, three of the log of counts.
    assert spent[-1] == {"BatchGetItem": 2, "Query": 8}


def imported_by(module: str) -> set[str]:
    code = f"import sys, {module}; print('\\n'.join(sys.modules))"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=LAYER, capture_output=True, text=True, check=True
    )
    return set(process.stdout.split())


def test_read_and_write_functions_import_only_needed_modules() -> None:
    reads = imported_by("punctual.lambdas.job_search.handler")
    deciding = {
        "punctual.engine.commands.jobs",
        "punctual.engine.changes.apply",
        "punctual.domain.decide",
    }
    assert not reads & (
        deciding | {"pydantic", "punctual.web.models.job_rules", "punctual.web.routes.jobs_write"}
    )
    writes = imported_by("punctual.lambdas.job_service.handler")
    assert not writes & {
        "punctual.lambdas.job_search.monitor",
        "punctual.web.routes.jobs_read",
        "punctual.web.routes.runs_read",
        "punctual.web.routes.schedules",
    }
    assert not (reads | writes) & {"punctual.tasks.http.task", "punctual.node"}


@pytest.mark.parametrize("name", [READ_FUNCTION, WRITE_FUNCTION])
def test_handler_module_is_built_from_environment_variables(
    api: Api, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = load(api.store, name, monkeypatch)
    context = SimpleNamespace(aws_request_id="r1")
    answer = handler(
        an_event("GET" if name == READ_FUNCTION else "POST", "/jobs", body="{}"), context
    )
    assert answer["statusCode"] == (200 if name == READ_FUNCTION else 422)
    assert answer["headers"]["x-request-id"] == "r1"


def load(store: Moto, name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    for variable, value in store.settings.to_env().items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    path = ROOT / "functions" / name / "handler.py"
    spec = importlib.util.spec_from_file_location(f"{name}_handler", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.handler


def test_handler_files_have_fewer_than_40_lines() -> None:
    for name in ("authorizer", READ_FUNCTION, WRITE_FUNCTION, "status"):
        lines = (ROOT / "functions" / name / "handler.py").read_text().splitlines()
        assert len(lines) < 40, name
