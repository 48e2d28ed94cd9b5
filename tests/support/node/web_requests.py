"""Requests that tests of the node's application share."""

from typing import Any

from punctual.engine.ports.rows import Detail
from tests.support.web_client import Answer, Client

JOB = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}


NO_ID = "01a1ee87-3200-7000-8000-ffffffffffff"


def a_job(client: Client, **fields: Any) -> str:
    answer = client.post("/v1/jobs", {**JOB, **fields})
    assert answer.status == 202, answer.body
    job_id: str = answer.json["job_id"]
    return job_id


def a_run(client: Client, job_id: str, **body: Any) -> str:
    answer = client.post(f"/v1/jobs/{job_id}/runNow", body)
    assert answer.status == 202, answer.body
    run_id: str = answer.json["run_id"]
    return run_id


def a_finished_run(client: Client, detail: Detail) -> str:
    """Return the path of a run that finished with this result."""
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    client.world.finish_runs(detail)
    return f"/v1/jobs/{job_id}/runs/{run_id}"


def is_problem(answer: Answer, status: int, code: str) -> bool:
    problem = answer.json
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["request_id"] == answer.headers["x-request-id"]
    return True
