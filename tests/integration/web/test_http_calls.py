"""Every call of the contract over the node's application, on an engine that keeps dictionaries."""

from typing import Any

import msgspec
import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import RunStatus
from punctual.engine.queries.views import Output
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


def ended(client: Client, job_id: str, run_id: str, status: RunStatus = RunStatus.SUCCESS) -> None:
    view = client.engine.run("local", job_id, run_id)
    now = client.engine.now
    run = msgspec.structs.replace(
        view.run, status=status, started_at=now, attempt_at=now, ended_at=now, executor_id="x"
    )
    client.engine.put_run(view._replace(run=run))


def is_problem(answer: Answer, status: int, code: str) -> bool:
    problem = answer.json
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["request_id"] == answer.headers["x-request-id"]
    return True


def test_a_job_is_accepted_and_read(client: Client) -> None:
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


def test_what_a_job_shows_can_be_sent_back_but_for_what_the_server_sets(client: Client) -> None:
    bodies: list[dict[str, Any]] = [
        JOB,
        {"name": "b", "schedule_type": "IMMEDIATE"},
        {"name": "c", "schedule_type": "FUTURE", "schedule_time": "2026-12-01T10:00:00Z"},
        {"name": "d", "schedule_type": "INTERVAL", "interval_seconds": 5},
    ]
    ours = {"job_id", "status", "next_run_time", "latest_run", "created_at", "created_by"}
    ours |= {"updated_at", "version"}
    for body in bodies:
        shown = client.post("/v1/jobs", body).json
        sent = {name: value for name, value in shown.items() if name not in ours}
        assert client.post("/v1/jobs", sent).status == 202
        answer = client.call("PUT", f"/v1/jobs/{shown['job_id']}", msgspec.json.encode(sent))
        assert (answer.status, answer.json["name"]) == (200, body["name"])


def test_defaults_follow_the_schedule_and_the_delivery(client: Client) -> None:
    shown = client.post("/v1/jobs", {**JOB, "cron_expression": "cron(0 0 * * ? *)"}).json
    assert (shown["dst_gap"], shown["dst_fold"]) == ("SKIP", "FIRST")
    shown = client.post("/v1/jobs", JOB).json
    assert (shown["dst_gap"], shown["dst_fold"], shown["timezone"]) == ("NEXT", "FIRST", "UTC")
    once = {"name": "a", "schedule_type": "IMMEDIATE", "delivery": "AT_MOST_ONCE"}
    shown = client.post("/v1/jobs", once).json
    assert (shown["max_retries"], shown["timezone"], shown["exclude"]) == (0, None, [])


def test_the_same_key_and_body_are_the_same_job(client: Client) -> None:
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


def test_a_key_is_not_good_for_another_operation(client: Client) -> None:
    job_id = a_job(client)
    keyed = {"idempotency_key": "k1"}
    first = client.post(f"/v1/jobs/{job_id}/runNow", {}, **keyed)
    again = client.post(f"/v1/jobs/{job_id}/runNow", {}, **keyed)
    assert first.json["run_id"] == again.json["run_id"]
    assert client.post("/v1/jobs", JOB, **keyed).status == 422
    assert client.post(f"/v1/jobs/{job_id}/runNow", {"payload": 1}, **keyed).status == 422


def test_a_batch_accepts_and_refuses_each_on_its_own_in_order(client: Client) -> None:
    body = {"jobs": [JOB, {"name": 5}, "x", JOB]}
    answer = client.post("/v1/jobs/batch", body, idempotency_key="b")
    results = answer.json["results"]
    assert answer.status == 207
    assert [one["status"] for one in results] == [202, 422, 422, 202]
    assert results[0]["location"] == f"/v1/jobs/{results[0]['job_id']}"
    wrong = [error["field"] for error in results[1]["problem"]["errors"]]
    assert sorted(wrong) == ["name", "schedule_type"]
    assert results[2]["problem"]["errors"][0]["field"] == "jobs.2"
    again = client.post("/v1/jobs/batch", body, idempotency_key="b").json["results"]
    assert again[3]["job_id"] == results[3]["job_id"]
    single = client.post("/v1/jobs", JOB, idempotency_key="b/3").json
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
def test_a_batch_that_is_none_is_refused(client: Client, body: Any, field: str) -> None:
    answer = client.post("/v1/jobs/batch", body)
    assert is_problem(answer, 422, "INVALID")
    assert set(answer.fields) == {field}
    assert client.engine.views == {}


def test_a_batch_may_be_larger_than_a_single_body(client: Client) -> None:
    jobs = [{**JOB, "payload": "x" * 200_000}] * 20
    answer = client.post("/v1/jobs/batch", {"jobs": jobs})
    assert [one["status"] for one in answer.json["results"]] == [202] * 20
    assert is_problem(client.post("/v1/jobs", {"jobs": jobs}), 413, "TOO_LARGE")
    assert is_problem(client.post("/v1/jobs/batch", {"jobs": jobs * 2}), 413, "TOO_LARGE")


def test_lists_are_paged_newest_first(client: Client) -> None:
    ids = [a_job(client) for _ in range(5)]
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


def test_a_page_may_grow_while_its_token_stays_good(client: Client) -> None:
    for _ in range(3):
        a_job(client)
    token = client.get("/v1/jobs?limit=1").json["next_token"]
    assert len(client.get(f"/v1/jobs?limit=200&next_token={token}").json["jobs"]) == 2


def test_filters_reach_the_search(client: Client) -> None:
    mine = a_job(client, name="backup eu", tags={"team": "data", "env": "prod"})
    a_job(client, name="other")
    found = client.get("/v1/jobs?name_prefix=backup&tag=team:data&tag=env:prod").json["jobs"]
    assert [job["job_id"] for job in found] == [mine]
    assert client.get("/v1/jobs?tag=team:x").json["jobs"] == []
    client.post(f"/v1/jobs/{mine}/pause")
    paused = client.get("/v1/jobs?status=PAUSED&status=CANCELLED&schedule_type=CRON").json["jobs"]
    assert [job["job_id"] for job in paused] == [mine]
    assert client.get("/v1/jobs?created_by=nobody").json["jobs"] == []


def test_runs_are_filtered(client: Client) -> None:
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    for path in ("/v1/runs", f"/v1/jobs/{job_id}/runs"):
        query = "status=QUEUED&trigger=RUN_NOW&from=2026-11-18T12:00:00Z&to=2026-11-19T00:00:00Z"
        (run,) = client.get(f"{path}?{query}").json["runs"]
        assert run["run_id"] == run_id
        assert "attempts" not in run
        wrong = client.get(f"{path}?status=WAITING&status=DONE&trigger=ME&from=x&to=1&job=2")
        assert set(wrong.fields) == {"status", "trigger", "from", "to", "job"}


def test_a_change_is_merged_and_guarded_by_its_version(client: Client) -> None:
    job_id = a_job(client, tags={"a": "1"}, payload=1)
    path = f"/v1/jobs/{job_id}"
    for method in ("PUT", "PATCH"):
        answer = client.call(method, path, b'{"tags":{"b":"2"}}', {"if-match": "*"})
        assert (answer.status, answer.json["tags"], answer.json["payload"]) == (200, {"b": "2"}, 1)
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


def test_pause_resume_and_cancel(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}"
    paused = client.post(f"{path}/pause")
    assert (paused.status, paused.json["status"]) == (200, "PAUSED")
    assert paused.json["next_run_time"] is None
    assert client.post(f"{path}/pause", {}).status == 200
    assert set(client.post(f"{path}/pause", {"now": True}).fields) == {"now"}
    assert set(client.post(f"{path}/resume", {"missed": "ALL"}).fields) == {"missed"}
    assert client.post(f"{path}/resume", {"missed": "RUN_ALL"}).json["status"] == "SCHEDULED"
    assert ("resume", "RUN_ALL") in client.engine.asked
    gone = client.call("DELETE", path)
    assert (gone.status, gone.json["status"]) == (200, "CANCELLED")
    assert client.call("DELETE", path).status == 200
    assert is_problem(client.post(f"{path}/pause"), 409, "CONFLICT")
    assert is_problem(client.call("PATCH", path, b'{"name":"b"}'), 409, "CONFLICT")


def test_a_run_is_ordered_read_cancelled_and_retried(client: Client) -> None:
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
    again = client.post(f"{path}/retry")
    assert (again.status, again.json["retried_from"]) == (202, run["run_id"])
    assert "payload" not in again.json
    assert again.headers["location"] == f"/v1/jobs/{job_id}/runs/{again.json['run_id']}"


def test_a_backfill_says_what_it_would_do(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}/backfill"
    body = {"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}
    assert (client.post(path, body).status, client.post(path, body).json) == (202, {"runs": 1})
    dry = client.post(path, {**body, "dry_run": True})
    assert (dry.status, dry.json) == (200, {"runs": 1, "times": ["2026-11-01T00:00:00.000Z"]})
    assert set(client.post(path).fields) == {"from", "to"}
    assert set(client.post(path, {"from": "x", "to": 5, "dry": 1}).fields) == {"from", "to", "dry"}
    assert set(client.post(path, {**body, "to": body["from"]}).fields) == {"to"}


def test_what_a_run_left_is_given_as_data(client: Client) -> None:
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    path = f"/v1/jobs/{job_id}/runs/{run_id}"
    assert is_problem(client.get(f"{path}/output"), 404, "NOT_FOUND")
    page = b"<script>alert(1)</script>"
    client.engine.outputs[run_id] = Output(page, "text/html; charset=utf-8", truncated=True)
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


def test_a_content_type_that_could_break_out_is_not_passed_on(client: Client) -> None:
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    for kind in ("text/html\r\nset-cookie: a=b", "", "html", "text/ü", "a/b;\x00"):
        client.engine.outputs[run_id] = Output(b"x", kind)
        answer = client.get(f"/v1/jobs/{job_id}/runs/{run_id}/output")
        assert answer.headers["content-type"] == "application/octet-stream"


def test_an_output_elsewhere_is_pointed_at(client: Client) -> None:
    job_id = a_job(client)
    run_id = a_run(client, job_id)
    client.engine.outputs[run_id] = Output(b"", "text/plain", "https://bucket.example/x")
    answer = client.get(f"/v1/jobs/{job_id}/runs/{run_id}/output")
    assert (answer.status, answer.headers["location"]) == (302, "https://bucket.example/x")


def test_a_status_shows_the_latest_run(client: Client) -> None:
    job_id = a_job(client)
    assert client.get(f"/v1/jobs/{job_id}/status").json == {
        "job_id": job_id,
        "status": "SCHEDULED",
        "latest_run": None,
        "next_run_time": "2026-11-19T00:00:00.000Z",
    }


def test_a_preview_and_its_refusals(client: Client) -> None:
    body = {
        "schedule_type": "CRON",
        "cron_expression": "30 2 * * *",
        "timezone": "Europe/Berlin",
        "from": "2027-03-26T12:00:00Z",
        "count": 3,
    }
    found = client.post("/v1/schedules/preview", body).json
    assert found["times"][1] == {
        "utc": "2027-03-28T01:00:00.000Z",
        "local": "2027-03-28T03:00:00.000+02:00",
    }
    assert len(found["times"]) == 3
    assert found["warnings"]
    assert found["description"]
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
def test_a_preview_of_each_type(client: Client, fields: Any, times: list[str]) -> None:
    answer = client.post("/v1/schedules/preview", fields)
    assert [one["utc"] for one in answer.json["times"]] == times


def test_what_comes_over_all_jobs(client: Client) -> None:
    job_id = a_job(client)
    (one,) = client.get("/v1/schedules/upcoming").json["times"]
    assert (one["job_id"], one["name"], one["utc"]) == (job_id, "a", "2026-11-19T00:00:00.000Z")
    far = client.get("/v1/schedules/upcoming?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:01Z")
    assert set(far.fields) == {"to"}
    month = client.get("/v1/schedules/upcoming?from=2026-01-01T00:00:00Z&to=2026-02-01T00:00:00Z")
    assert month.status == 200
    assert set(client.get("/v1/schedules/upcoming?to=2026-01-01T00:00:00Z").fields) == {"to"}


def test_a_time_is_explained(client: Client) -> None:
    path = f"/v1/jobs/{a_job(client)}/explain"
    found = client.get(f"{path}?at=2026-11-19T00:00:00Z").json
    assert (found["outcome"], found["at"]) == ("PLANNED", "2026-11-19T00:00:00.000Z")
    assert set(found) == {
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


def test_stats_and_health(client: Client) -> None:
    stats = client.get("/v1/stats").json
    assert set(stats) == {"jobs", "runs", "last_hour", "lateness_ms", "queue", "executors"}
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


def test_a_store_that_does_not_answer_is_down(client: Client) -> None:
    client.engine.error = Unavailable("The store does not answer.")
    health = client.get("/v1/health")
    assert (health.status, health.json["status"]) == (503, "down")
    ready = client.get("/v1/health/ready")
    assert (ready.status, ready.json) == (503, {"status": "down"})
    assert client.get("/v1/health/live").status == 200
    answer = client.get("/v1/jobs")
    assert is_problem(answer, 503, "UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"


def test_a_commit_that_failed_is_no_success(client: Client) -> None:
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


def test_what_nobody_foresaw_is_logged_and_not_told(client: Client) -> None:
    client.engine.error = ZeroDivisionError("secret")
    answer = client.get("/v1/jobs")
    assert is_problem(answer, 500, "INTERNAL")
    assert b"secret" not in answer.body
    logged = next(one for one in client.logged if one["event"] == "request_failed")
    assert logged["request_id"] == answer.headers["x-request-id"]
    assert logged["error"] == "ZeroDivisionError"
    assert "web_engine.py" in logged["where"]
    assert "secret" not in str(logged)


def test_every_answer_can_be_logged(client: Client) -> None:
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
def test_there_is_no_job_of_an_id_that_is_none(client: Client, kind: str) -> None:
    for job_id in (NO_ID, "x", "..", "%2e%2e", "a%2Fb", "%ff", "01a1ee87320070008000ffffffffffff"):
        path = f"/v1/jobs/{job_id}/{kind}".rstrip("/")
        method = "POST" if kind in ("pause", "resume", "runNow") else "GET"
        suffix = "?at=2026-11-19T00:00:00Z" if kind == "explain" else ""
        assert is_problem(client.call(method, path + suffix), 404, "NOT_FOUND")


def test_nothing_tells_another_tenants_job_from_none(client: Client) -> None:
    job_id = a_job(client)
    client.engine.views["other", NO_ID] = client.engine.views.pop(("local", job_id))
    foreign, none = client.get(f"/v1/jobs/{NO_ID}"), client.get(f"/v1/jobs/{job_id}")
    assert (foreign.status, foreign.json["detail"]) == (none.status, none.json["detail"])


def test_an_id_may_be_written_large_or_encoded(client: Client) -> None:
    job_id = a_job(client)
    assert client.get(f"/v1/jobs/{job_id.upper()}").json["job_id"] == job_id
    assert client.get(f"/v1/jobs/%{ord(job_id[0]):x}{job_id[1:]}").json["job_id"] == job_id
    assert client.get(f"/v1/jobs/{job_id}/").status == 200
