"""The calls on runs over the node's application, with the store in memory."""

import pytest

from punctual.engine.ports.rows import Detail
from tests.support.node.web_requests import a_finished_run, a_job, a_run, is_problem
from tests.support.web_client import Client


def test_run_lists_are_filtered(client: Client) -> None:
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    for path in ("/v1/runs", f"/v1/jobs/{job_id}/runs"):
        query = "status=QUEUED&trigger=RUN_NOW&from=2026-11-18T12:00:00Z&to=2026-11-19T00:00:00Z"
        (run,) = client.get(f"{path}?{query}").json["runs"]
        assert run["run_id"] == run_id
        assert "attempts" not in run
        wrong = client.get(f"{path}?status=WAITING&status=DONE&trigger=ME&from=x&to=1&job=2")
        assert set(wrong.fields) == {"status", "trigger", "from", "to", "job"}


def test_requested_run_is_read_cancelled_and_retried(client: Client) -> None:
    job_id = a_job(client)
    answer = client.post(f"/v1/jobs/{job_id}/runNow", {"payload": None})
    run = answer.json
    path = f"/v1/jobs/{job_id}/runs/{run['run_id']}"
    assert (answer.status, answer.headers["location"]) == (202, path)
    assert (run["trigger"], run["status"], run["payload"]) == ("RUN_NOW", "QUEUED", None)
    assert client.get(path).json == run
    assert is_problem(client.post(f"{path}/retry"), 409, "CONFLICT")
    assert client.post(f"{path}/cancel", {}).json["status"] == "CANCELLED"
    assert is_problem(client.post(f"{path}/cancel"), 409, "CONFLICT")
    retried = client.post(f"{path}/retry")
    assert (retried.status, retried.json["retried_from"]) == (202, run["run_id"])
    assert retried.json["payload"] is None, "a retry has the payload of its run"
    assert retried.headers["location"] == f"/v1/jobs/{job_id}/runs/{retried.json['run_id']}"
    path = f"/v1/jobs/{job_id}/runs/{a_run(client, job_id)}"
    assert client.post(f"{path}/cancel").status == 202
    assert "payload" not in client.post(f"{path}/retry").json, "the payload is that of the job"
    for payload in ({"of": [1]}, None, "x" * 100_000):
        retried = client.post(f"{path}/retry", {"payload": payload}).json
        assert retried["payload"] == payload
        assert client.get(f"/v1/jobs/{job_id}/runs/{retried['run_id']}").json["payload"] == payload


def test_retry_refuses_unknown_fields_and_long_payloads(client: Client) -> None:
    job_id = a_job(client)
    path = f"/v1/jobs/{job_id}/runs/{a_run(client, job_id)}"
    assert client.post(f"{path}/cancel").status == 202
    assert set(client.post(f"{path}/retry", {"colour": 1}).fields) == {"colour"}
    assert set(client.post(f"{path}/retry", {"payload": "x" * 262_143}).fields) == {"payload"}
    assert client.post(f"{path}/retry", {}).status == 202
    assert len(client.get(f"/v1/jobs/{job_id}/runs").json["runs"]) == 2


def test_key_of_a_retry_belongs_to_its_payload(client: Client) -> None:
    job_id = a_job(client)
    path = f"/v1/jobs/{job_id}/runs/{a_run(client, job_id)}"
    assert client.post(f"{path}/cancel").status == 202
    key = {"idempotency-key": "again-1"}
    first = client.post(f"{path}/retry", {"payload": 1}, **key)
    repeated = client.post(f"{path}/retry", {"payload": 1}, **key)
    assert (repeated.status, repeated.json["run_id"]) == (202, first.json["run_id"])
    for body in ({"payload": 2}, {"payload": None}, {}):
        assert client.post(f"{path}/retry", body, **key).status == 422


def test_backfill_dry_run_returns_the_times(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}/backfill"
    body = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}
    dry = client.post(path, {**body, "dry_run": True})
    assert (dry.status, dry.json) == (200, {"runs": 1, "times": ["2026-11-01T00:00:00.000Z"]})
    backfill = client.post(path, body)
    assert (backfill.status, backfill.json) == (202, {"runs": 1})
    repeated = client.post(path, body)
    assert (repeated.status, repeated.json) == (202, {"runs": 0}), "the time has a run already"
    assert set(client.post(path).fields) == {"from", "to"}
    assert set(client.post(path, {"from": "x", "to": 5, "dry": 1}).fields) == {"from", "to", "dry"}
    assert set(client.post(path, {**body, "to": body["from"]}).fields) == {"to"}


def test_output_is_returned_as_attachment_and_log_as_text(client: Client) -> None:
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    path = f"/v1/jobs/{job_id}/runs/{run_id}"
    assert is_problem(client.get(f"{path}/output"), 404, "NOT_FOUND")
    page = b"<script>alert(1)</script>"
    for name in ("output", "log"):
        client.world.memory.blobs.put(name, page, "")
    client.world.finish_runs(
        Detail(
            output_blob="output",
            output_type="text/html; charset=utf-8",
            output_truncated=True,
            log_blob="log",
            log_size=len(page),
        )
    )
    answer = client.get(f"{path}/output", accept="image/png")
    assert (answer.status, answer.body) == (200, page)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="{run_id}"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["x-output-truncated"] == "true"
    logs = client.get(f"{path}/logs?after=8")
    assert (logs.status, logs.body) == (200, page[8:])
    assert logs.headers["content-type"] == "text/plain; charset=utf-8"
    assert logs.headers["x-next-offset"] == str(len(page))
    assert set(client.get(f"{path}/logs?after=-1&x=1").fields) == {"after", "x"}


@pytest.mark.parametrize(
    "content_type", ["text/html\r\nset-cookie: a=b", "", "html", "text/ü", "a/b;\x00"]
)
def test_unsafe_content_type_of_an_output_is_replaced(client: Client, content_type: str) -> None:
    client.world.memory.blobs.put("output", b"x", "")
    path = a_finished_run(client, Detail(output_blob="output", output_type=content_type))
    answer = client.get(f"{path}/output")
    assert (answer.status, answer.body) == (200, b"x")
    assert answer.headers["content-type"] == "application/octet-stream"


def test_output_with_a_link_is_a_redirect(client: Client) -> None:
    client.world.memory.blobs.put("output", b"x", "")
    client.world.memory.blobs.links["output"] = "https://bucket.example/x"
    path = a_finished_run(client, Detail(output_blob="output", output_type="text/plain"))
    answer = client.get(f"{path}/output")
    assert (answer.status, answer.headers["location"]) == (302, "https://bucket.example/x")
