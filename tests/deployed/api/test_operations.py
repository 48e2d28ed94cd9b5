"""Operations over the API of a deployment: each action, its progress, and crashes."""

from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

TEAM = {"tag": ["team:data"]}
NEVER_SOON = {"schedule_type": "CRON", "cron_expression": "0 0 29 2 *", "tags": {"team": "data"}}
JOBS = 6


def submit_jobs(world: World, api: Gateway, count: int = JOBS, **fields: Any) -> list[str]:
    jobs = [submit_job(api, **NEVER_SOON, **fields) for _ in range(count)]
    submit_job(api, **{**NEVER_SOON, "tags": {"team": "web"}})
    world.run(10 * SECOND)  # until the list shows them
    return jobs


def begin(api: Gateway, action: str, wanted: Any = TEAM, **fields: Any) -> dict[str, Any]:
    answer = api.post("/jobs/bulk", {"action": action, "filter": wanted, **fields})
    assert answer.status == 202, answer.body
    begun: dict[str, Any] = answer.json
    assert answer.headers["location"] == f"/v1/operations/{begun['operation_id']}"
    return begun


def ended(world: World, api: Gateway, begun: dict[str, Any]) -> dict[str, Any]:
    """Return the operation after its end."""
    for _ in range(60):
        answer = api.get(f"/operations/{begun['operation_id']}")
        assert answer.status == 200, answer.body
        operation: dict[str, Any] = answer.json
        if operation["status"] != "RUNNING":
            return operation
        world.run(10 * SECOND)
    raise AssertionError("the operation does not end")


def statuses(api: Gateway, jobs: list[str]) -> Counter[str]:
    return Counter(api.get(f"/jobs/{job}").json["status"] for job in jobs)


def test_pause_and_resume_of_what_it_paused(world: World, api: Gateway) -> None:
    jobs = submit_jobs(world, api)
    api.post(f"/jobs/{jobs[0]}/pause")
    world.run(10 * SECOND)
    preview = api.post("/jobs/bulk", {"action": "pause", "filter": TEAM, "dry_run": True})
    assert (preview.status, preview.json["matched"]) == (200, JOBS - 1)
    assert len(preview.json["first"]) == JOBS - 1
    assert api.get("/operations").json["operations"] == []
    pause = ended(world, api, begin(api, "pause", note="a move"))
    assert (pause["status"], pause["done"], pause["failed"]) == ("DONE", JOBS - 1, 0)
    assert statuses(api, jobs) == {"PAUSED": JOBS}
    world.run(10 * SECOND)
    paused_by = {"paused_by": pause["operation_id"]}
    resume = ended(world, api, begin(api, "resume", paused_by))
    assert (resume["matched"], resume["done"]) == (JOBS - 1, JOBS - 1)
    assert statuses(api, jobs) == {"PAUSED": 1, "SCHEDULED": JOBS - 1}
    listed = api.get("/operations").json["operations"]
    assert [one["operation_id"] for one in listed] == [
        resume["operation_id"],
        pause["operation_id"],
    ]


def test_run_now_starts_each_job_once_with_the_payload(world: World, api: Gateway) -> None:
    jobs = submit_jobs(world, api)
    seen: list[Any] = []

    def work(payload: Any) -> Any:
        seen.append(payload)
        return {"did": len(seen)}

    world.work = work
    run = ended(world, api, begin(api, "run_now", payload={"order": 7}))
    assert (run["done"], run["failed"]) == (JOBS, 0)
    world.run(MINUTE)
    assert seen == [{"order": 7}] * JOBS
    for job in jobs:
        (only,) = api.get(f"/jobs/{job}/runs").json["runs"]
        assert (only["trigger"], only["status"]) == ("RUN_NOW", "SUCCESS")


def test_retry_takes_failures_that_nothing_followed(world: World, api: Gateway) -> None:
    failing = submit_jobs(world, api, 3, max_retries=0, timeout_seconds=1)
    works = world.work

    def fail(_payload: Any) -> Any:
        raise ReadTimeoutError(endpoint_url="https://lambda.invalid")

    world.work = fail
    for job in failing:
        api.post(f"/jobs/{job}/runNow")
    world.run(MINUTE)
    world.work = works
    assert len(api.get("/runs?status=FAILED&status=TIMED_OUT").json["runs"]) == 3
    api.post(f"/jobs/{failing[0]}/runNow")  # a success follows
    world.run(MINUTE)
    retry = ended(world, api, begin(api, "retry", {"tag": ["team:data"], "latest_only": True}))
    assert (retry["matched"], retry["done"]) == (2, 2)
    world.run(MINUTE)
    retried = api.get("/runs?trigger=RETRY").json["runs"]
    assert {run["job_id"] for run in retried} == set(failing[1:])


def test_cancelled_operation_and_cancelled_jobs(world: World, api: Gateway) -> None:
    jobs = submit_jobs(world, api)
    begun = begin(api, "cancel")
    stopped = api.post(f"/operations/{begun['operation_id']}/cancel")
    assert (stopped.status, stopped.json["status"]) == (200, "CANCELLED")
    world.run(MINUTE)
    assert statuses(api, jobs) == {"SCHEDULED": JOBS}
    again = ended(world, api, begin(api, "cancel"))
    assert again["done"] == JOBS
    assert statuses(api, jobs) == {"CANCELLED": JOBS}
    entries = api.get("/audit?limit=100").json["entries"]
    actions = Counter(entry["action"] for entry in entries)
    assert actions["operation.begin"] == 2
    assert actions["operation.cancel"] == 1
    assert actions["job.cancel"] == JOBS


def test_request_with_a_key_begins_one_operation(world: World, api: Gateway) -> None:
    submit_jobs(world, api)
    headers = {"idempotency-key": "once"}
    body = {"action": "pause", "filter": TEAM}
    first, second = (api.call("POST", "/jobs/bulk", body, headers=headers) for _ in range(2))
    assert first.json["operation_id"] == second.json["operation_id"]
    other = api.call("POST", "/jobs/bulk", {**body, "note": "x"}, headers=headers)
    assert other.status == 422
    assert ended(world, api, first.json)["done"] == JOBS


def test_feed_shows_an_operation_until_its_end(world: World, api: Gateway) -> None:
    submit_jobs(world, api)
    cursor = api.get("/changes").json["next_cursor"]
    begun = begin(api, "pause")
    operation = ended(world, api, begun)
    world.run(10 * SECOND)
    changes = api.get(f"/changes?after={cursor}&kind=operation").json["changes"]
    assert {change["kind"] for change in changes} == {"operation"}
    last = changes[-1]["operation"]
    assert last == {**operation, "errors": []}


def test_health_selects_jobs_that_never_ran(world: World, api: Gateway) -> None:
    jobs = submit_jobs(world, api)
    api.post(f"/jobs/{jobs[0]}/runNow")
    world.run(MINUTE)
    wanted = {**TEAM, "health": "NEVER_RAN"}
    assert ended(world, api, begin(api, "pause", wanted))["done"] == JOBS - 1
    assert api.get(f"/jobs/{jobs[0]}").json["status"] == "SCHEDULED"


@pytest.mark.parametrize("short", ["operations", "job-service"])
def test_crash_of_a_function_delays_by_minutes(world: World, api: Gateway, short: str) -> None:
    jobs = submit_jobs(world, api)
    for number in (3, 9):
        seen = 0

        def dies(moment: Moment, number: int = number) -> BaseException | None:
            nonlocal seen
            if moment.role != world.name(short) or moment.service != "dynamodb":
                return None
            seen += 1
            return Killed("out of time or memory") if seen == number else None

        world.faults.plan = dies
        body = {"action": "run_now", "filter": TEAM}
        headers = {"idempotency-key": f"once {number}"}
        answer = api.call("POST", "/jobs/bulk", body, headers=headers)
        world.faults.plan = None if short == "job-service" else dies
        if answer.status != 202:
            answer = api.call("POST", "/jobs/bulk", body, headers=headers)
        assert ended(world, api, answer.json)["done"] == JOBS
        world.faults.plan = None
        world.run(10 * MINUTE)
    for job in jobs:
        runs = api.get(f"/jobs/{job}/runs").json["runs"]
        assert [run["trigger"] for run in runs] == ["RUN_NOW"] * 2
