"""Health, errors, log lines and ids of calls over the node's application."""

import pytest

from punctual.domain.errors import Unavailable
from tests.support.node.web_requests import JOB, NO_ID, a_job, is_problem
from tests.support.web_client import Client


def test_stats_and_health_have_their_fields(client: Client) -> None:
    stats = client.get("/v1/stats").json
    names = {"jobs", "runs", "last_hour", "lateness_ms", "queue", "limits", "executors"}
    assert set(stats) == names | {"list_lag_ms"}
    assert stats["last_hour"][0]["minute"] == "2026-11-18T12:00:00.000Z"
    health = client.get("/v1/health")
    assert (health.status, health.json["status"]) == (200, "ok")
    assert set(health.json) == {
        "status",
        "lateness_ms_p99",
        "watermark",
        "planner_heartbeat",
        "version",
        "tzdata",
        "task_types",
        "guarantee",
        "margin_seconds",
        "sandbox",
        "auth",
        "warnings",
    }


def test_health_is_down_while_the_store_does_not_answer(client: Client) -> None:
    client.world.plan.error = Unavailable("The store does not answer.")
    health = client.get("/v1/health")
    assert (health.status, health.json["status"]) == (503, "down")
    ready = client.get("/v1/health/ready")
    assert (ready.status, ready.json) == (503, {"status": "down"})
    assert client.get("/v1/health/live").status == 200
    answer = client.get("/v1/jobs")
    assert is_problem(answer, 503, "UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"


def test_failed_commit_is_answered_with_an_error(client: Client) -> None:
    client.turn_error = Unavailable("The disk is full.")
    assert is_problem(client.post("/v1/jobs", JOB), 503, "UNAVAILABLE")
    assert client.get("/v1/health").json["status"] == "down"
    assert client.get("/v1/health/ready").status == 503
    live = client.get("/v1/health/live")
    assert (live.status, live.json) == (200, {"status": "ok"}), "it needs no commit"
    client.turn_error = OSError("secret path")
    answer = client.post("/v1/jobs", JOB)
    assert is_problem(answer, 500, "INTERNAL")
    assert b"secret" not in answer.body


def test_unexpected_error_is_logged_without_its_text(client: Client) -> None:
    client.world.plan.error = ZeroDivisionError("secret")
    answer = client.get("/v1/jobs")
    assert is_problem(answer, 500, "INTERNAL")
    assert b"secret" not in answer.body
    logged = next(line for line in client.logged if line["event"] == "request_failed")
    assert logged["request_id"] == answer.headers["x-request-id"]
    assert logged["error"] == "ZeroDivisionError"
    assert "web_world.py" in logged["where"]
    assert "secret" not in str(logged)


def test_answer_is_logged(client: Client) -> None:
    answer = client.get("/v1/nothing")
    assert client.logged == [
        {
            "event": "answered",
            "method": "GET",
            "path": "/v1/nothing",
            "status": 404,
            "request_id": answer.headers["x-request-id"],
        }
    ]


@pytest.mark.parametrize("kind", ["pause", "resume", "runNow", "status", "runs", "explain", ""])
def test_malformed_or_unknown_job_id_is_not_found(client: Client, kind: str) -> None:
    for job_id in (NO_ID, "x", "..", "%2e%2e", "a%2Fb", "%ff", "01a1ee87320070008000ffffffffffff"):
        path = f"/v1/jobs/{job_id}/{kind}".rstrip("/")
        method = "POST" if kind in ("pause", "resume", "runNow") else "GET"
        suffix = "?at=2026-11-19T00:00:00Z" if kind == "explain" else ""
        assert is_problem(client.call(method, path + suffix), 404, "NOT_FOUND")


def test_job_of_another_tenant_is_answered_as_unknown(client: Client) -> None:
    other = client.world.submit("other", **JOB).state.job_id
    unknown = client.get(f"/v1/jobs/{NO_ID}")
    answer = client.get(f"/v1/jobs/{other}")
    assert is_problem(answer, 404, "NOT_FOUND")
    assert (answer.status, answer.json["detail"]) == (unknown.status, unknown.json["detail"])


def test_job_id_may_be_upper_case_or_percent_encoded(client: Client) -> None:
    job_id = a_job(client)
    assert client.get(f"/v1/jobs/{job_id.upper()}").json["job_id"] == job_id
    assert client.get(f"/v1/jobs/%{ord(job_id[0]):x}{job_id[1:]}").json["job_id"] == job_id
    assert client.get(f"/v1/jobs/{job_id}/").status == 200
