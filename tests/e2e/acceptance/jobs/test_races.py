"""Concurrent changes, runs and requests."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

from tests.support.acceptance.contract import (
    ENDED,
    EVERY_SECOND,
    NEVER_SOON,
    PATIENCE,
    Api,
    Json,
    eventually,
    instant,
    soon,
    unique,
)
from tests.support.acceptance.target import Target


def test_concurrent_changes_of_one_version_have_one_winner(api: Api) -> None:
    path = f"/jobs/{api.create(**NEVER_SOON)['job_id']}"

    def change(n: int) -> int:
        return api("PATCH", path, {"name": f"n{n}"}, headers={"If-Match": '"1"'}).status_code

    with ThreadPoolExecutor(8) as pool:
        statuses = sorted(pool.map(change, range(8)))
    assert statuses == [200] + [412] * 7
    assert api.get(path)["version"] == 2


def test_concurrent_changes_without_if_match_are_all_kept(api: Api) -> None:
    path = f"/jobs/{api.create(**NEVER_SOON)['job_id']}"
    fields: list[Json] = [
        {"max_retries": 9},
        {"priority": "LOW"},
        {"payload": 7},
        {"name": "z"},
        {"max_waiting": 5},
        {"timeout_seconds": 60},
        {"misfire_policy": "SKIP"},
        {"tags": {"a": "b"}},
    ]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda body: api("PATCH", path, body), fields))
    assert {answer.status_code for answer in answers} == {200}
    job = api.get(path)
    assert all(job[name] == value for body in fields for name, value in body.items())
    versions = sorted(answer.json()["version"] for answer in answers)
    if api.is_local:
        assert versions == list(range(2, 10))
    # A client that loses the response retries, and finds its write under later ones.
    assert all(version >= minimum for version, minimum in zip(versions, range(2, 10), strict=True))
    assert job["version"] == versions[-1] == 9


def test_busy_job_keeps_every_occurrence_during_constant_changes(api: Api) -> None:
    job_id = api.create(**EVERY_SECOND)["job_id"]
    changes = 0

    def enough() -> bool:
        nonlocal changes
        changes += 1
        body = {"payload": changes, "max_concurrency": 1 + changes % 3}
        assert api("PATCH", f"/jobs/{job_id}", body).status_code == 200
        return len(api.runs(job_id, status="SUCCESS")) >= 4

    eventually(enough)
    runs = [run for run in api.runs(job_id) if run["status"] == "SUCCESS"]
    times = [instant(run["scheduled_time"]) for run in runs]
    assert {b - a for a, b in pairwise(times)} == {timedelta(seconds=1)}
    assert changes > 20 / PATIENCE


def test_run_now_requests_wait_beyond_max_waiting(api: Api) -> None:
    job_id = api.create(**NEVER_SOON, max_waiting=1, overlap_policy="SKIP")["job_id"]
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda _: api.run_now(job_id)["run_id"], range(120)))

    def over() -> list[Json]:
        runs = api.runs(job_id, limit=200)
        return runs if {run["status"] for run in runs} == {"SUCCESS"} else []

    assert {run["run_id"] for run in eventually(over)} == set(ids)
    assert len(set(ids)) == 120


def test_cancelled_job_starts_no_run(api: Api, target: Target) -> None:
    task = target.hold(0.2)
    jobs = [api.create(**EVERY_SECOND, task=task, max_concurrency=5)["job_id"] for _ in range(3)]
    for job_id in jobs:
        for _ in range(8):
            api.run_now(job_id)
    cancelled_at = {}
    for job_id in jobs:
        eventually(lambda job_id=job_id: api.runs(job_id, status="RUNNING"))  # type: ignore[misc]
        api("DELETE", f"/jobs/{job_id}")
        cancelled_at[job_id] = instant(soon(0))
    for job_id in jobs:
        runs = eventually(
            lambda job_id=job_id: (  # type: ignore[misc]
                [r for r in api.runs(job_id) if r["status"] in ENDED]
                if all(r["status"] in ENDED for r in api.runs(job_id))
                else []
            ),
            5,
        )
        starts = [instant(run["start_time"]) for run in runs if run["start_time"]]
        assert max(starts) <= cancelled_at[job_id]


def test_run_pages_are_complete_while_runs_end(api: Api, target: Target) -> None:
    job_id = api.create(**NEVER_SOON, max_concurrency=2, task=target.task("/200"))["job_id"]
    runs = [api.run_now(job_id) for _ in range(40)]
    ids, first = {run["run_id"] for run in runs}, runs[0]["scheduled_time"]
    for path, limit in ((f"/jobs/{job_id}/runs", 2), ("/runs", 20)):
        listed = [
            run["run_id"]
            for run in api.pages(path, "runs", limit=limit, from_=first)
            if run["job_id"] == job_id
        ]
        assert len(listed) == len(set(listed)), path
        assert set(listed) == ids, path


def test_concurrent_backfills_create_one_run_for_each_time(api: Api) -> None:
    every = {"schedule_type": "INTERVAL", "interval_seconds": 3600}
    job_id = api.create(**every, start_time="2026-01-01T00:00:00Z")["job_id"]
    body = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T10:00:00Z"}
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: api.order(job_id, "backfill", body), range(6)))

    def over() -> list[Json]:
        runs = api.runs(job_id)
        return runs if all(run["status"] in ENDED for run in runs) else []

    times = [run["scheduled_time"] for run in eventually(over)]
    assert len(times) == len(set(times)) == 10


def test_key_never_returns_a_run_of_another_job(api: Api) -> None:
    job_id, other = api.create(**NEVER_SOON)["job_id"], api.create(**NEVER_SOON)["job_id"]
    key = {"Idempotency-Key": unique("k")}
    assert api("POST", f"/jobs/{job_id}/runNow", {}, headers=key).status_code == 202
    answer = api("POST", f"/jobs/{other}/runNow", {}, headers=key)
    assert answer.status_code in (202, 422)
    if answer.status_code == 202:
        assert answer.json()["job_id"] == other
        assert len(api.runs(other)) == 1
    body = {"name": unique("n"), **NEVER_SOON}
    created = api("POST", "/jobs", body, headers=key)
    assert created.status_code in (202, 422)
    api.made += [created.json()["job_id"]] if created.status_code == 202 else []


def test_key_outlives_its_job(api: Api) -> None:
    key = {"Idempotency-Key": unique("k")}
    body = {"name": unique("n"), **NEVER_SOON}
    job_id = api("POST", "/jobs", body, headers=key).json()["job_id"]
    api("DELETE", f"/jobs/{job_id}")
    repeated = api("POST", "/jobs", body, headers=key)
    assert (repeated.status_code, repeated.json()["job_id"]) == (202, job_id)
    assert api.get(f"/jobs/{job_id}")["status"] == "CANCELLED"
