"""Whole job lifecycles in the deployed functions, from a request to its event."""

import json
from datetime import timedelta

import pytest

from punctual.aws.dynamodb import keys
from punctual.domain.errors import Unavailable
from tests.support.builders import NOON
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import (
    assert_at_rest,
    ended_run_events,
    job_of,
    published_events,
    runs_of,
    statuses,
    unique_scheduled_times,
)
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, World, a_world

EVENT = {"type": "event", "detail_type": "Paid"}


@pytest.fixture(params=["dev", "rehearsal"])
def stage(request: pytest.FixtureRequest) -> str:
    """`dev` has one shard. `rehearsal` has two shards, limits and metrics."""
    return str(request.param)


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def test_one_shot_job_runs_at_due_time_and_is_published(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="FUTURE", schedule_time=at(270))
    world.run(6 * MINUTE)
    (run,) = runs_of(api, job)
    assert run["status"] == "SUCCESS"
    assert run["scheduled_time"] == run["start_time"] == "2026-03-02T12:04:30.000Z"
    assert job_of(api, job)["status"] == "COMPLETED"
    assert api.output(job, run["run_id"]) == b'{"did": 4711}'
    assert [
        (event["from"], event["to"]) for event in published_events(world, "Job State Change")
    ] == [
        (None, "SCHEDULED"),
        ("SCHEDULED", "COMPLETED"),
    ]
    (change,) = ended_run_events(world)
    assert (change["run_id"], change["to"]) == (run["run_id"], "SUCCESS")
    assert [run["run_id"] for run in api.get("/runs").json["runs"]] == [run["run_id"]]
    assert world.failures == []
    assert_at_rest(world)


def test_immediate_job_runs_at_once(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="IMMEDIATE", task=EVENT)
    world.run(SECOND)
    assert statuses(api, job) == {"SUCCESS": 1}
    (paid,) = published_events(world, "Paid")
    assert paid["job_id"] == job
    world.run(MINUTE)
    assert_at_rest(world)


def test_job_due_within_seconds_is_not_late(world: World, api: Gateway) -> None:
    """A poller already has this minute, so the API wakes it."""
    world.run(2 * MINUTE)
    job = submit_job(api, schedule_type="FUTURE", schedule_time=at(125))
    world.run(6 * SECOND)
    (run,) = runs_of(api, job)
    assert (run["status"], run["lateness_ms"]) == ("SUCCESS", 0)


def test_recurring_job_runs_each_occurrence_once(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="INTERVAL", interval_seconds=20)
    world.run(3 * MINUTE + SECOND)
    assert len(unique_scheduled_times(api, job)) == 9
    assert statuses(api, job) == {"SUCCESS": 9}
    assert all(run["lateness_ms"] == 0 for run in runs_of(api, job))
    assert world.failures == []


def test_functions_read_tables_consistently(world: World, api: Gateway) -> None:
    """Only lists may lag, because the status function writes them from the stream."""
    job = submit_job(api, schedule_type="INTERVAL", interval_seconds=20)
    world.run(MINUTE)
    for path in ("/runs", "/jobs", f"/jobs/{job}/runs", "/stats"):
        assert api.get(path).status == 200
    reads = [
        request
        for call in world.meter.calls
        if call.operation in ("GetItem", "BatchGetItem", "Query", "Scan")
        for request in call.params.get("RequestItems", {call.operation: call.params}).values()
        if request.get("TableName") != world.table(keys.LISTS_TABLE)
    ]
    assert len(reads) > 50
    assert all(request.get("ConsistentRead") for request in reads)


def test_ten_jobs_of_one_due_time_are_one_batch(world: World, api: Gateway) -> None:
    jobs = [submit_job(api, schedule_type="FUTURE", schedule_time=at(90)) for _ in range(10)]
    world.run(2 * MINUTE)
    assert all(statuses(api, job) == {"SUCCESS": 1} for job in jobs)
    sent = [call for call in world.meter.calls if call.operation == "SendMessageBatch"]
    by_lane = [call for call in sent if call.params["QueueUrl"] == world.lane("quick").url]
    assert [len(call.params["Entries"]) for call in by_lane] == [10]
    packs = [
        written
        for call in world.meter.calls
        for written in call.writes
        if "#pack#" in written.key.pk
    ]
    assert len(packs) == 1, "the outcomes of a batch share a row"
    put = [call.params["Key"] for call in world.meter.calls if call.operation == "PutObject"]
    assert sorted(key.split("/")[2] for key in put) == sorted(jobs), "one object for each output"


def test_failed_attempt_is_retried(world: World, api: Gateway) -> None:
    failures = [Unavailable("later"), Unavailable("later")]

    def work(payload: object) -> object:
        if failures:
            raise failures.pop()
        return payload

    world.work = work
    job = submit_job(
        api,
        schedule_type="FUTURE",
        schedule_time=at(90),
        retry={"backoff_seconds": 10, "jitter": False},
    )
    world.run(3 * MINUTE)
    (run,) = runs_of(api, job)
    assert (run["status"], run["attempt_number"]) == ("SUCCESS", 3)
    shown = api.get(f"/jobs/{job}/runs/{run['run_id']}").json
    assert [attempt["status"] for attempt in shown["attempts"]] == ["FAILED", "FAILED", "SUCCESS"]
    assert world.failures == []
    assert_at_rest(world)


def test_cancelled_job_starts_no_run(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="FUTURE", schedule_time=at(90), task=EVENT)
    world.run(MINUTE)
    assert api.call("DELETE", f"/jobs/{job}").status == 200
    world.run(2 * MINUTE)
    assert published_events(world, "Paid") == []
    assert job_of(api, job)["status"] == "CANCELLED"
    assert_at_rest(world)


def test_paused_job_skips_missed_occurrences_and_continues(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="INTERVAL", interval_seconds=30, misfire_policy="SKIP")
    world.run(70 * SECOND)
    assert api.post(f"/jobs/{job}/pause").status == 200
    world.run(MINUTE)
    assert statuses(api, job)["SUCCESS"] == 2
    assert api.post(f"/jobs/{job}/resume").status == 200
    world.run(MINUTE)
    assert statuses(api, job)["SUCCESS"] == 4
    assert statuses(api, job) == {"SUCCESS": 4, "SKIPPED": 1}
    unique_scheduled_times(api, job)


def test_cancelled_queued_run_does_not_start(world: World, api: Gateway) -> None:
    world.put_dispatch("off")
    world.run(2 * MINUTE)
    job = submit_job(api, schedule_type="IMMEDIATE", task=EVENT)
    (run,) = runs_of(api, job)
    assert run["status"] == "QUEUED"
    assert api.post(f"/jobs/{job}/runs/{run['run_id']}/cancel").status == 202
    world.put_dispatch("on")
    world.run(3 * MINUTE)
    assert published_events(world, "Paid") == []
    assert statuses(api, job) == {"CANCELLED": 1}


def test_dispatch_off_delays_and_loses_no_run(world: World, api: Gateway) -> None:
    world.put_dispatch("off")
    world.run(2 * MINUTE)
    job = submit_job(api, schedule_type="FUTURE", schedule_time=at(150), task=EVENT)
    world.run(3 * MINUTE)
    assert published_events(world, "Paid") == []
    world.put_dispatch("on")
    world.run(3 * MINUTE)
    assert len(published_events(world, "Paid")) == 1
    assert statuses(api, job) == {"SUCCESS": 1}
    assert_at_rest(world)


@pytest.mark.parametrize("second", [0, 59])
def test_jobs_are_on_time_for_any_second_of_the_tick(stage: str, second: int) -> None:
    with a_world(stage, tick_second=second) as world:
        api = open_api(world)
        jobs = [
            submit_job(api, schedule_type="FUTURE", schedule_time=at(120 + seconds), task=EVENT)
            for seconds in (-0.5, 0, 0.5, 30)
        ]
        world.run(4 * MINUTE)
        runs = [run for job in jobs for run in runs_of(api, job)]
        assert [(run["status"], run["lateness_ms"]) for run in runs] == [("SUCCESS", 0)] * 4


def test_repeated_tick_duplicates_no_run(world: World, api: Gateway) -> None:
    job = submit_job(api, schedule_type="INTERVAL", interval_seconds=30)
    for _ in range(4):
        world.run(MINUTE)
        world.tick()
        world.tick()
    world.run(2 * SECOND)
    assert statuses(api, job) == {"SUCCESS": len(unique_scheduled_times(api, job))}
    assert len(unique_scheduled_times(api, job)) == 8
    assert len(ended_run_events(world)) == 8


def test_ticks_three_hours_late_lose_and_duplicate_no_run(world: World, api: Gateway) -> None:
    hourly = submit_job(
        api, schedule_type="CRON", cron_expression="0 * * * *", misfire_policy="RUN_ALL"
    )
    once = submit_job(api, schedule_type="FUTURE", schedule_time=at(3600 + 90), task=EVENT)
    world.run(MINUTE)
    world.ticks = False
    world.clock.advance(timedelta(hours=3))
    world.ticks = True
    world.run(5 * MINUTE)
    assert statuses(api, once) == {"SUCCESS": 1}
    assert len(published_events(world, "Paid")) == 1
    assert unique_scheduled_times(api, hourly) == [
        f"2026-03-02T{hour}:00:00.000Z" for hour in (13, 14, 15)
    ]
    assert statuses(api, hourly) == {"SUCCESS": 3}


def test_call_without_valid_token_is_refused(world: World, api: Gateway) -> None:
    world.run(MINUTE)
    stranger = Gateway(world, "not-the-token")
    for answer in (stranger.get("/jobs"), stranger.post("/jobs", {"name": "n"})):
        assert answer.status == 401
        assert json.loads(answer.body)["code"] == "UNAUTHENTICATED"
    assert stranger.get("/health").status == 200
    assert api.get("/jobs").status == 200
