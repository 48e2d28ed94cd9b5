"""Every call of the contract over the node's application, with the store in memory."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.timestamps import format_time
from punctual.engine.commands.audit import JOB_PAUSE, JOB_RESUME
from punctual.engine.ports.rows import Detail
from tests.support.web_client import Answer, Client

JOB = {"name": "a", "schedule_type": "CRON", "cron_expression": "0 0 * * *"}
NO_ID = "01a1ee87-3200-7000-8000-ffffffffffff"


@pytest.fixture
def client() -> Client:
    return Client()


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


def test_submitted_job_is_shown_with_its_defaults(client: Client) -> None:
    answer = client.post("/v1/jobs", {**JOB, "payload": {"x": [1]}, "tags": {"team": "data"}})
    job = answer.json
    assert answer.status == 202
    assert answer.headers["location"] == f"/v1/jobs/{job['job_id']}"
    assert answer.headers["etag"] == '"1"'
    assert (job["name"], job["payload"], job["tags"]) == ("a", {"x": [1]}, {"team": "data"})
    assert (job["status"], job["version"], job["created_by"]) == ("SCHEDULED", 1, "local")
    assert job["next_run_time"] == "2026-11-19T00:00:00.000Z"
    assert job["retry"] == {
        "backoff_seconds": 5,
        "max_backoff_seconds": 300,
        "multiplier": 2,
        "jitter": True,
    }
    assert job["task"] == {"type": "event", "detail_type": "Job Run"}
    read = client.get(answer.headers["location"])
    assert (read.status, read.json, read.headers["etag"]) == (200, job, '"1"')


def test_shown_job_can_be_sent_back_without_fields_of_the_server(client: Client) -> None:
    bodies: list[dict[str, Any]] = [
        JOB,
        {"name": "b", "schedule_type": "IMMEDIATE"},
        {"name": "c", "schedule_type": "FUTURE", "schedule_time": "2026-12-01T10:00:00Z"},
        {"name": "d", "schedule_type": "INTERVAL", "interval_seconds": 5},
    ]
    ours = {"job_id", "status", "next_run_time", "latest_run", "created_at", "created_by"}
    ours |= {"updated_at", "version", "pause", "usual_duration_ms"}
    for body in bodies:
        shown = client.post("/v1/jobs", body).json
        sent = {name: value for name, value in shown.items() if name not in ours}
        assert client.post("/v1/jobs", {**sent, "name": f"{body['name']} 2"}).status == 202
        answer = client.call("PUT", f"/v1/jobs/{shown['job_id']}", msgspec.json.encode(sent))
        assert (answer.status, answer.json["name"]) == (200, body["name"])


def test_defaults_depend_on_schedule_and_delivery(client: Client) -> None:
    shown = client.post(
        "/v1/jobs", {**JOB, "name": "b", "cron_expression": "cron(0 0 * * ? *)"}
    ).json
    assert (shown["dst_gap"], shown["dst_fold"]) == ("SKIP", "FIRST")
    shown = client.post("/v1/jobs", JOB).json
    assert (shown["dst_gap"], shown["dst_fold"], shown["timezone"]) == ("NEXT", "FIRST", "UTC")
    once = {"name": "a", "schedule_type": "IMMEDIATE", "delivery": "AT_MOST_ONCE"}
    shown = client.post("/v1/jobs", once).json
    assert (shown["max_retries"], shown["timezone"], shown["exclude"]) == (0, None, [])


def test_repeated_key_and_body_return_the_same_job(client: Client) -> None:
    keyed = {"idempotency_key": "k1"}
    first = client.post("/v1/jobs", JOB, **keyed)
    again = client.call(
        "POST",
        "/v1/jobs",
        b' { "cron_expression" : "0 0 * * *", "name": "\\u0061",  "schedule_type": "CRON"} ',
        {"idempotency-key": "k1"},
    )
    assert (again.status, again.json["job_id"]) == (202, first.json["job_id"])
    other = client.post("/v1/jobs", {**JOB, "name": "b"}, **keyed)
    assert is_problem(other, 422, "INVALID")
    assert set(other.fields) == {"Idempotency-Key"}


def test_key_of_one_operation_is_refused_for_another(client: Client) -> None:
    job_id = a_job(client)
    keyed = {"idempotency_key": "k1"}
    first = client.post(f"/v1/jobs/{job_id}/runNow", {}, **keyed)
    again = client.post(f"/v1/jobs/{job_id}/runNow", {}, **keyed)
    assert first.json["run_id"] == again.json["run_id"]
    assert client.post("/v1/jobs", JOB, **keyed).status == 422
    assert client.post(f"/v1/jobs/{job_id}/runNow", {"payload": 1}, **keyed).status == 422


def test_batch_accepts_or_refuses_each_job_in_order(client: Client) -> None:
    last = {**JOB, "name": "b"}
    body = {"jobs": [JOB, {"name": 5}, "x", last]}
    answer = client.post("/v1/jobs/batch", body, idempotency_key="b")
    results = answer.json["results"]
    assert answer.status == 207
    assert [result["status"] for result in results] == [202, 422, 422, 202]
    assert results[0]["location"] == f"/v1/jobs/{results[0]['job_id']}"
    wrong = [error["field"] for error in results[1]["problem"]["errors"]]
    assert sorted(wrong) == ["name", "schedule_type"]
    assert results[2]["problem"]["errors"][0]["field"] == "jobs.2"
    again = client.post("/v1/jobs/batch", body, idempotency_key="b").json["results"]
    assert again[3]["job_id"] == results[3]["job_id"]
    single = client.post("/v1/jobs", last, idempotency_key="b/3").json
    assert single["job_id"] == results[3]["job_id"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "jobs"),
        ({"jobs": []}, "jobs"),
        ({"jobs": [JOB] * 501}, "jobs"),
        ({"jobs": {}}, "jobs"),
        ({"jobs": [JOB], "more": 1}, "more"),
    ],
)
def test_malformed_batch_is_refused(client: Client, body: Any, field: str) -> None:
    answer = client.post("/v1/jobs/batch", body)
    assert is_problem(answer, 422, "INVALID")
    assert set(answer.fields) == {field}
    assert client.world.stored_jobs == set()


def test_batch_may_be_larger_than_a_single_job(client: Client) -> None:
    jobs = [{**JOB, "name": f"{n}", "payload": "x" * 200_000} for n in range(20)]
    answer = client.post("/v1/jobs/batch", {"jobs": jobs})
    assert [result["status"] for result in answer.json["results"]] == [202] * 20
    assert is_problem(client.post("/v1/jobs", {"jobs": jobs}), 413, "TOO_LARGE")
    assert is_problem(client.post("/v1/jobs/batch", {"jobs": jobs * 2}), 413, "TOO_LARGE")


def test_lists_are_paged_newest_first(client: Client) -> None:
    ids = [a_job(client, name=f"{n}") for n in range(5)]
    seen = []
    token = ""
    while True:
        answer = client.get(f"/v1/jobs?limit=2{token}")
        seen += [job["job_id"] for job in answer.json["jobs"]]
        if answer.json["next_token"] is None:
            break
        token = f"&next_token={answer.json['next_token']}"
    assert seen == ids[::-1]
    wrong = client.get(f"/v1/jobs?status=PAUSED{token}")
    assert set(wrong.fields) == {"next_token"}
    assert set(client.get(f"/v1/runs?x{token}").fields) == {"x"}
    assert set(client.get(f"/v1/runs?limit=2{token}").fields) == {"next_token"}


def test_page_token_is_valid_with_another_limit(client: Client) -> None:
    for number in range(3):
        a_job(client, name=f"{number}")
    token = client.get("/v1/jobs?limit=1").json["next_token"]
    assert len(client.get(f"/v1/jobs?limit=200&next_token={token}").json["jobs"]) == 2


def test_job_list_is_filtered(client: Client) -> None:
    mine = a_job(client, name="backup eu", tags={"team": "data", "env": "prod"})
    a_job(client, name="other")
    jobs = client.get("/v1/jobs?name_prefix=backup&tag=team:data&tag=env:prod").json["jobs"]
    assert [job["job_id"] for job in jobs] == [mine]
    assert client.get("/v1/jobs?tag=team:x").json["jobs"] == []
    client.post(f"/v1/jobs/{mine}/pause")
    paused = client.get("/v1/jobs?status=PAUSED&status=CANCELLED&schedule_type=CRON").json["jobs"]
    assert [job["job_id"] for job in paused] == [mine]
    assert client.get("/v1/jobs?created_by=other").json["jobs"] == []
    for query in (
        "name=backup%20eu",
        "text=ENV:PROD",
        "text=kup%20E",
        "health=NEVER_RAN&tag=team:data",
    ):
        jobs = client.get(f"/v1/jobs?{query}").json["jobs"]
        assert [job["job_id"] for job in jobs] == [mine]
    assert client.get("/v1/jobs?name=backup").json["jobs"] == []


def test_job_list_is_sorted_over_all_pages(client: Client) -> None:
    by_name = {name: a_job(client, name=name) for name in ("b", "c", "a")}
    soon = a_job(client, name="d", cron_expression="* * * * *")
    for sort, expected in (
        ("name", [by_name["a"], by_name["b"], by_name["c"], soon]),
        ("created", [soon, by_name["a"], by_name["c"], by_name["b"]]),
    ):
        listed, token = [], ""
        for _ in expected:
            page = client.get(f"/v1/jobs?sort={sort}&limit=1{token}").json
            listed += [job["job_id"] for job in page["jobs"]]
            token = f"&next_token={page['next_token']}"
        assert (listed, page["next_token"]) == (expected, None)
    assert client.get("/v1/jobs?sort=next_run").json["jobs"][0]["job_id"] == soon
    token = client.get("/v1/jobs?sort=name&limit=1").json["next_token"]
    assert client.get(f"/v1/jobs?sort=created&next_token={token}").status == 422
    assert client.get("/v1/jobs?sort=size").status == 422


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


def test_change_is_merged_and_checks_if_match(client: Client) -> None:
    job_id = a_job(client, tags={"a": "1"}, payload=1)
    path = f"/v1/jobs/{job_id}"
    for method, tags in (("PUT", {"b": "2"}), ("PATCH", {"c": "3"})):
        body = msgspec.json.encode({"tags": tags})
        answer = client.call(method, path, body, {"if-match": "*"})
        assert (answer.status, answer.json["tags"], answer.json["payload"]) == (200, tags, 1)
    assert (answer.headers["etag"], answer.json["version"]) == ('"3"', 3)
    late = client.call("PATCH", path, b'{"name":"z"}', {"if-match": '"2"'})
    assert is_problem(late, 412, "PRECONDITION_FAILED")
    weak = client.call("PATCH", path, b'{"name":"z"}', {"if-match": 'W/"3"'})
    assert is_problem(weak, 412, "PRECONDITION_FAILED")
    one_of = client.call("PATCH", path, b'{"name":"z"}', {"if-match": '"9", "3"'})
    assert (one_of.status, one_of.json["name"]) == (200, "z")
    empty = client.call("PATCH", path, b"{}", {"if-match": 'W/"4"'})
    assert is_problem(empty, 412, "PRECONDITION_FAILED")
    wrong = client.call("PATCH", path, b'{"interval_from":"COMPLETED","x":1}')
    assert set(wrong.fields) == {"interval_from", "x"}


def test_job_is_paused_resumed_and_cancelled(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}"
    paused = client.post(f"{path}/pause")
    assert (paused.status, paused.json["status"]) == (200, "PAUSED")
    assert paused.json["next_run_time"] is None
    assert client.post(f"{path}/pause", {}).status == 200
    assert set(client.post(f"{path}/pause", {"now": True}).fields) == {"now"}
    assert set(client.post(f"{path}/resume", {"missed": "ALL"}).fields) == {"missed"}
    assert client.post(f"{path}/resume", {"missed": "RUN_ALL"}).json["status"] == "SCHEDULED"
    notes = [entry.note for entry in client.world.memory.job_states.audit.noted["local"]]
    assert [note.after for note in notes if note.action == JOB_RESUME] == [
        {"missed": "RUN_ALL", "status": "SCHEDULED"}
    ]
    cancelled = client.call("DELETE", path)
    assert (cancelled.status, cancelled.json["status"]) == (200, "CANCELLED")
    assert client.call("DELETE", path).status == 200
    assert is_problem(client.post(f"{path}/pause"), 409, "CONFLICT")
    assert is_problem(client.call("PATCH", path, b'{"name":"b"}'), 409, "CONFLICT")


def test_pause_takes_a_time_and_a_note(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}"
    until = format_time(client.world.clock() + timedelta(hours=6))
    body = {"until": until, "note": "a move"}
    paused = client.post(f"{path}/pause", body)
    pause = paused.json["pause"]
    assert (pause["until"], pause["note"]) == (until, "a move")
    assert pause["by"]
    assert pause["at"]
    assert client.post(f"{path}/pause", body).json["version"] == paused.json["version"]
    for_ever = client.post(f"{path}/pause", {})
    assert for_ever.json["pause"] == {**pause, "until": None, "note": None}
    assert for_ever.json["version"] == paused.json["version"] + 1
    notes = [entry.note for entry in client.world.memory.job_states.audit.noted["local"]]
    assert [(note.before, note.after) for note in notes if note.action == JOB_PAUSE] == [
        ({"status": "SCHEDULED"}, {**body, "status": "PAUSED"}),
        (body, {}),
    ]
    assert client.post(f"{path}/resume").json["pause"] is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"until": "2020-01-01T00:00:00Z"}, "must lie in the future"),
        ({"until": "2199-01-01T00:00:00Z"}, "must lie within 366 days"),
        ({"until": "tomorrow"}, "must be an RFC 3339 time with an offset"),
        ({"until": 7}, "must be a string"),
        ({"note": "x" * 257}, "must have at most 256 characters"),
        ({"note": "a\x1b[2J"}, "must not hold control characters"),
    ],
)
def test_pause_with_a_wrong_field_changes_nothing(
    client: Client, body: dict[str, Any], message: str
) -> None:
    path = f"/v1/jobs/{a_job(client)}"
    fields = client.post(f"{path}/pause", body).fields
    assert set(fields) == set(body)
    assert next(iter(fields.values())).startswith(message)
    assert client.get(path).json["status"] == "SCHEDULED"


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


def test_job_status_shows_latest_run_and_next_time(client: Client) -> None:
    job_id = a_job(client)
    assert client.get(f"/v1/jobs/{job_id}/status").json == {
        "job_id": job_id,
        "status": "SCHEDULED",
        "latest_run": None,
        "next_run_time": "2026-11-19T00:00:00.000Z",
    }


def test_preview_returns_times_and_refuses_wrong_fields(client: Client) -> None:
    body = {
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-26T12:00:00Z",
        "count": 3,
    }
    preview = client.post("/v1/schedules/preview", body).json
    assert preview["times"][1] == {
        "utc": "2027-03-28T01:00:00.000Z",
        "local": "2027-03-28T03:00:00.000+02:00",
    }
    assert len(preview["times"]) == 3
    assert preview["warnings"]
    assert preview["description"]
    wrong = client.post("/v1/schedules/preview", {**body, "count": 101, "name": "x", "from": 5})
    assert set(wrong.fields) == {"count", "name", "from"}
    assert set(client.post("/v1/schedules/preview", {}).fields) == {"schedule_type"}


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ({"schedule_type": "IMMEDIATE"}, ["2026-11-18T12:00:00.000Z"]),
        (
            {"schedule_type": "FUTURE", "schedule_time": "2026-11-18T13:00:00+00:30"},
            ["2026-11-18T12:30:00.000Z"],
        ),
        (
            {"schedule_type": "INTERVAL", "interval_seconds": 60, "count": 2},
            ["2026-11-18T12:01:00.000Z", "2026-11-18T12:02:00.000Z"],
        ),
        (
            {"schedule_type": "INTERVAL", "interval_seconds": 60, "max_runs": 1},
            ["2026-11-18T12:01:00.000Z"],
        ),
        (
            {
                "schedule_type": "INTERVAL",
                "interval_seconds": 86_400,
                "exclude": ["2026-11-19"],
                "count": 1,
                "from": "2026-11-18T00:00:00Z",
            },
            ["2026-11-20T00:00:00.000Z"],
        ),
    ],
)
def test_preview_returns_times_of_each_schedule_type(
    client: Client, fields: Any, times: list[str]
) -> None:
    answer = client.post("/v1/schedules/preview", fields)
    assert [time["utc"] for time in answer.json["times"]] == times


def test_upcoming_runs_of_all_jobs_are_listed(client: Client) -> None:
    job_id = a_job(client)
    times = client.get("/v1/schedules/upcoming").json["times"]
    assert {(time["job_id"], time["name"]) for time in times} == {(job_id, "a")}
    assert [time["utc"] for time in times] == [
        f"2026-11-{day}T00:00:00.000Z" for day in range(19, 26)
    ]
    far = client.get("/v1/schedules/upcoming?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:01Z")
    assert set(far.fields) == {"to"}
    month = client.get("/v1/schedules/upcoming?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z")
    assert month.status == 200
    assert set(client.get("/v1/schedules/upcoming?to=2026-01-01T00:00:00Z").fields) == {"to"}


def test_explain_returns_the_outcome_of_a_time(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}/explain"
    explanation = client.get(f"{path}?at=2026-11-19T00:00:00Z").json
    assert (explanation["outcome"], explanation["at"]) == ("PLANNED", "2026-11-19T00:00:00.000Z")
    assert set(explanation) == {
        "job_id",
        "at",
        "occurrence",
        "outcome",
        "reason",
        "run_id",
        "previous",
        "next",
    }
    assert client.get(path).json["outcome"] == "PLANNED"
    local = client.get(f"{path}?at=2026-11-19T00:00:00")
    assert (local.status, set(client.get(f"{path}?at=2026-11-19").fields)) == (200, {"at"})
    assert set(client.get(f"{path}?at=noon").fields) == {"at"}


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


def test_jobs_show_last_outcomes_and_usual_duration(client: Client) -> None:
    job_id = a_job(client)
    assert client.get(f"/v1/jobs/{job_id}").json["usual_duration_ms"] is None
    run_ids = []
    for _ in range(3):
        run_ids.append(a_run(client, job_id))
        client.world.finish_runs(Detail())
    (job,) = client.get("/v1/jobs?recent=2").json["jobs"]
    shown_ids = {run["run_id"] for run in job["recent"]}
    assert len(shown_ids) == 2
    assert shown_ids < set(run_ids)
    assert {run["status"] for run in job["recent"]} == {"SUCCESS"}
    assert job["usual_duration_ms"] == client.get(f"/v1/jobs/{job_id}").json["usual_duration_ms"]
    assert job["usual_duration_ms"] >= 0
    (job,) = client.get("/v1/jobs").json["jobs"]
    assert "recent" not in job
    for wrong in ("0", "31", "x"):
        assert client.get(f"/v1/jobs?recent={wrong}").fields.keys() == {"recent"}
