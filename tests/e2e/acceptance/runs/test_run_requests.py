"""Requests of a client: run now, retry, cancel, backfill, and idempotent repetition."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.acceptance.contract import NEVER_SOON, Api, Json, fields_of, instant, iso, unique
from tests.support.acceptance.target import Target

DAY = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
HOURLY = {
    "schedule_type": "INTERVAL",
    "interval_seconds": 3600,
    "start_time": "2026-01-01T00:30:00Z",
}


def test_run_now_starts_one_run_beside_the_schedule(api: Api) -> None:
    job = api.create(**NEVER_SOON, payload={"own": 1})
    answer = api("POST", f"/jobs/{job['job_id']}/runNow", {})
    assert answer.status_code == 202
    run = answer.json()
    assert answer.headers["Location"].endswith(f"/v1/jobs/{job['job_id']}/runs/{run['run_id']}")
    assert (run["trigger"], run["job_version"], run["retried_from"]) == ("RUN_NOW", 1, None)
    done = api.ended(run)
    assert done["status"] == "SUCCESS"
    assert [a["status"] for a in done["attempts"]] == ["SUCCESS"]
    assert done["attempt_number"] == 1
    assert done["executor_id"] == done["attempts"][0]["executor_id"]
    assert done["count"] == 1
    assert done["tzdata"]
    assert done["lateness_ms"] < 5_000
    assert "payload" not in done or done["payload"] is None
    assert api.get(f"/jobs/{job['job_id']}")["next_run_time"] == job["next_run_time"]
    assert len(api.runs(job["job_id"])) == 1


def test_run_now_needs_no_body(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    answer = api("POST", f"/jobs/{job_id}/runNow")
    assert answer.status_code == 202


def test_run_now_accepts_a_payload_that_a_retry_keeps(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, payload={"own": 1}, task=target.task("/echo"))["job_id"]
    run = api.run_now(job_id, payload={"over": [1, 2]})
    done = api.ended(run)
    assert done["payload"] == {"over": [1, 2]}
    assert json.loads(api.output(done)) == {"over": [1, 2]}
    plain = api.ended(api.run_now(job_id))
    assert json.loads(api.output(plain)) == {"own": 1}
    api("PATCH", f"/jobs/{job_id}", {"task": {**target.task("/echo"), "method": "PUT"}})
    answer = api("POST", f"/jobs/{job_id}/runs/{run['run_id']}/retry")
    assert answer.status_code == 202
    retry = answer.json()
    assert answer.headers["Location"].endswith(f"/runs/{retry['run_id']}")
    assert (retry["trigger"], retry["retried_from"]) == ("RETRY", run["run_id"])
    assert retry["job_version"] == 2
    assert json.loads(api.output(api.ended(retry))) == {"over": [1, 2]}
    assert target.calls[-1].method == "PUT"


def test_retry_accepts_a_payload_of_its_own(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, payload={"own": 1}, task=target.task("/echo"))["job_id"]
    run = api.ended(api.run_now(job_id))
    path = f"/jobs/{job_id}/runs/{run['run_id']}/retry"
    retried = api("POST", path, {"payload": {"corrected": True}}).json()
    assert (retried["retried_from"], retried["payload"]) == (run["run_id"], {"corrected": True})
    assert json.loads(api.output(api.ended(retried))) == {"corrected": True}
    again = api("POST", f"/jobs/{job_id}/runs/{retried['run_id']}/retry", {}).json()
    assert json.loads(api.output(api.ended(again))) == {"corrected": True}
    assert fields_of(api("POST", path, {"payload": "x" * 262_143})) == {"payload"}
    assert fields_of(api("POST", path, {"colour": 1})) == {"colour"}


def test_run_now_refuses_unknown_fields(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    path = f"/jobs/{job_id}/runNow"
    assert fields_of(api("POST", path, {"colour": 1})) == {"colour"}
    assert fields_of(api("POST", path, {"payload": "x" * 262_143})) == {"payload"}
    assert api("POST", path, content=b"[]").status_code in (400, 422)
    assert api.runs(job_id) == []


def test_only_ended_runs_are_retried_and_only_live_ones_cancelled(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, task=target.hold(30))["job_id"]
    running, waiting = api.run_now(job_id), api.run_now(job_id)
    api.in_status(running, "RUNNING")
    assert api.run(job_id, waiting["run_id"])["status"] == "WAITING"
    assert api.run(job_id, waiting["run_id"])["reason"]["code"] == "CONCURRENCY"
    runs = f"/jobs/{job_id}/runs"
    for run in (running, waiting):
        assert api("POST", f"{runs}/{run['run_id']}/retry").status_code == 409
    answer = api("POST", f"{runs}/{waiting['run_id']}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "CANCELLED")
    answer = api("POST", f"{runs}/{running['run_id']}/cancel")
    assert (answer.status_code, answer.json()["run_id"]) == (202, running["run_id"])
    done = api.ended(running, within=5)
    assert done["status"] == "CANCELLED"
    assert done["attempts"][-1]["status"] == "CANCELLED"
    for run in (running, waiting):
        assert api("POST", f"{runs}/{run['run_id']}/cancel").status_code == 409
    assert api.get(f"/jobs/{job_id}")["status"] == "SCHEDULED"


def test_same_key_and_body_return_the_same_response(api: Api) -> None:
    key = {"Idempotency-Key": unique("k")}
    body: Json = {"name": "once", **NEVER_SOON, "payload": {"a": 1, "b": [1, 2]}}
    first = api("POST", "/jobs", body, headers=key)
    api.made.append(first.json()["job_id"])
    other_order = dict(reversed(body.items())) | {"payload": {"b": [1, 2], "a": 1}}
    repeated = api("POST", "/jobs", other_order, headers=key)
    assert (repeated.status_code, repeated.json()) == (202, first.json())
    assert repeated.headers["Location"] == first.headers["Location"]
    assert api("POST", "/jobs", {**body, "name": "two"}, headers=key).status_code == 422


def test_idempotency_key_applies_to_runs(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    key = {"Idempotency-Key": unique("k")}
    path = f"/jobs/{job_id}/runNow"
    first = api("POST", path, {"payload": 1}, headers=key).json()
    repeated = api("POST", path, {"payload": 1}, headers=key)
    assert (repeated.status_code, repeated.json()["run_id"]) == (202, first["run_id"])
    assert api("POST", path, {"payload": 2}, headers=key).status_code == 422
    api.ended(first)
    key = {"Idempotency-Key": unique("k")}
    retry = f"/jobs/{job_id}/runs/{first['run_id']}/retry"
    ids = {api("POST", retry, headers=key).json()["run_id"] for _ in range(3)}
    assert len(ids) == 1
    assert len(api.runs(job_id)) == 2


def test_concurrent_requests_with_one_key_create_one_job(api: Api) -> None:
    key = {"Idempotency-Key": unique("k")}
    body = {"name": unique("twin"), **NEVER_SOON}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api("POST", "/jobs", body, headers=key), range(8)))
    assert {answer.status_code for answer in answers} == {202}
    ids = {answer.json()["job_id"] for answer in answers}
    api.made += ids
    assert len(ids) == 1
    assert len(api.get("/jobs", name_prefix=body["name"])["jobs"]) == 1


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\tinside"])
def test_invalid_idempotency_key_is_refused(api: Api, key: str) -> None:
    answer = api(
        "POST", "/jobs", {"name": unique("n"), **NEVER_SOON}, headers={"Idempotency-Key": key}
    )
    assert answer.status_code in (400, 422)


def test_idempotency_key_of_255_characters_is_accepted(api: Api) -> None:
    key = unique("k").ljust(255, "~")
    assert api.create({"Idempotency-Key": key}, **NEVER_SOON)["job_id"]


def test_batch_accepts_or_refuses_each_item(api: Api) -> None:
    name = unique("batch")
    jobs: list[Any] = [{"name": f"{name}-{n}", **NEVER_SOON} for n in range(5)]
    jobs[1]["max_retries"] = "3"
    jobs[3] = 5
    key = {"Idempotency-Key": unique("k")}
    answer = api("POST", "/jobs/batch", {"jobs": jobs}, headers=key)
    assert answer.status_code == 207
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [202, 422, 202, 422, 202]
    api.made += [r["job_id"] for r in results if r["status"] == 202]
    assert results[1]["problem"]["errors"][0]["field"] == "max_retries"
    assert results[0]["location"].endswith(f"/jobs/{results[0]['job_id']}")
    assert api.get(f"/jobs/{results[2]['job_id']}")["name"] == f"{name}-2"
    repeated = api("POST", "/jobs/batch", {"jobs": jobs}, headers=key).json()["results"]
    assert [r.get("job_id") for r in repeated] == [r.get("job_id") for r in results]
    assert len(api.get("/jobs", name_prefix=name)["jobs"]) == 3
    single = {"Idempotency-Key": f"{key['Idempotency-Key']}/0"}
    assert api("POST", "/jobs", jobs[0], headers=single).json()["job_id"] == results[0]["job_id"]


def test_batch_size_is_limited(api: Api) -> None:
    job = {"name": unique("many"), **NEVER_SOON}
    assert fields_of(api("POST", "/jobs/batch", {"jobs": []})) == {"jobs"}
    assert fields_of(api("POST", "/jobs/batch", {"jobs": [job] * 501})) == {"jobs"}
    assert fields_of(api("POST", "/jobs/batch", {})) == {"jobs"}
    assert api.get("/jobs", name_prefix=job["name"])["jobs"] == []
    jobs = [{**job, "name": f"{job['name']}-{n}"} for n in range(500)]
    answer = api("POST", "/jobs/batch", {"jobs": jobs})
    ids = [result["job_id"] for result in answer.json()["results"]]
    assert len(set(ids)) == 500
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda job_id: api("DELETE", f"/jobs/{job_id}"), ids))


def test_backfill_runs_only_missing_occurrences(api: Api) -> None:
    job_id = api.create(**HOURLY, max_concurrency=10)["job_id"]
    path = f"/jobs/{job_id}/backfill"
    dry = api("POST", path, {**DAY, "dry_run": True})
    assert dry.status_code == 200
    times = dry.json()["times"]
    assert (dry.json()["runs"], len(times)) == (24, 24)
    assert times[0].startswith("2026-01-01T00:30:00")
    assert api.runs(job_id) == []
    few = {"from": "2026-01-01T00:30:00Z", "to": "2026-01-01T03:30:00Z"}
    answer = api("POST", path, few)
    assert (answer.status_code, answer.json()) == (202, {"runs": 3})
    assert api("POST", path, few).json() == {"runs": 0}
    remaining = api("POST", path, {**DAY, "dry_run": True}).json()
    assert remaining["runs"] == 21
    for run in api.runs(job_id):
        done = api.ended(run)
        assert (done["status"], done["trigger"]) == ("SUCCESS", "BACKFILL")
    assert api("POST", path, few).json() == {"runs": 0}
    times_run = {iso(instant(run["scheduled_time"])) for run in api.runs(job_id)}
    assert times_run == {f"2026-01-01T0{hour}:30:00.000Z" for hour in range(3)}


def test_backfill_of_over_1000_occurrences_names_their_number(api: Api) -> None:
    job_id = api.create(**HOURLY)["job_id"]
    path = f"/jobs/{job_id}/backfill"
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-02-15T00:00:00Z"}
    answer = api("POST", path, body)
    assert answer.status_code == 422
    assert "1080" in answer.text.replace(",", "")
    assert api.runs(job_id) == []


def test_backfill_requires_a_range(api: Api) -> None:
    path = f"/jobs/{api.create(**HOURLY)['job_id']}/backfill"
    assert fields_of(api("POST", path, {})) == {"from", "to"}
    assert fields_of(api("POST", path, {"from": "x", "to": 5})) == {"from", "to"}
    assert fields_of(api("POST", path, {**DAY, "dry_run": "yes", "colour": 1})) == {
        *("dry_run", "colour")
    }
    backwards = {"from": DAY["to"], "to": DAY["from"]}
    assert fields_of(api("POST", path, backwards)) <= {"from", "to"}
    assert api("POST", path, {**DAY, "to": "2099-01-01T00:00:00Z"}).status_code == 422


def test_unknown_id_returns_404_on_every_path(api: Api) -> None:
    job_id = api.create(**NEVER_SOON)["job_id"]
    unknown = "01890000-0000-7000-8000-000000000000"
    for gone in (unknown, "no-uuid", "%00", "x" * 300):
        for method, path in [
            *(("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")),
            *(
                ("POST", "/runNow"),
                ("GET", "/status"),
                ("GET", "/runs"),
                ("GET", f"/runs/{unknown}"),
            ),
        ]:
            body: Json = {} if method in ("POST", "PATCH") else None
            assert api(method, f"/jobs/{gone}{path}", body).status_code == 404, (method, path)
        for method, path in [
            *(("GET", ""), ("GET", "/output"), ("GET", "/logs"), ("POST", "/cancel")),
            ("POST", "/retry"),
        ]:
            assert api(method, f"/jobs/{job_id}/runs/{gone}{path}").status_code == 404, path


def test_run_is_found_only_under_its_own_job(api: Api) -> None:
    job_id, other = api.create(**NEVER_SOON)["job_id"], api.create(**NEVER_SOON)["job_id"]
    run = api.run_now(job_id)
    api.ended(run)
    for path in ("", "/output", "/logs"):
        assert api("GET", f"/jobs/{other}/runs/{run['run_id']}{path}").status_code == 404
    assert api("POST", f"/jobs/{other}/runs/{run['run_id']}/retry").status_code == 404
