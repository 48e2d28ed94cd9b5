"""The calls on jobs over the node's application, with the store in memory."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from punctual.domain.timestamps import format_time
from punctual.engine.commands.audit import JOB_PAUSE, JOB_RESUME
from punctual.engine.ports.rows import Detail
from tests.support.node.web_requests import JOB, a_job, a_run, is_problem
from tests.support.web_client import Client


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


def test_job_status_shows_latest_run_and_next_time(client: Client) -> None:
    job_id = a_job(client)
    assert client.get(f"/v1/jobs/{job_id}/status").json == {
        "job_id": job_id,
        "status": "SCHEDULED",
        "latest_run": None,
        "next_run_time": "2026-11-19T00:00:00.000Z",
    }


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
