"""Crashes and throttling at every call of dead letters, reconciler and job service."""

from collections.abc import Sequence

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.timers.rows import parse_row
from tests.deployed.faults.test_faults import at_call
from tests.support.builders import after
from tests.support.deployed.faults import LOST, Killed, Moment, Plan, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.interrupted_work import without_executors
from tests.support.deployed.observations import (
    assert_at_rest,
    ended_run_events,
    published_events,
    runs_of,
)
from tests.support.deployed.repairs import set_walk_start
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, World, a_world

EVENT = {"type": "event", "detail_type": "Paid"}
KILLED = Killed("out of time or memory")
BLOWS = [Refusal("ThrottlingException"), LOST]
ONCE = {"schedule_type": "FUTURE", "task": EVENT}


def crash_at(
    world: World, short: str, operation: str, number: int, answered: bool
) -> Sequence[Moment]:
    """Crash the function at one call, and return the list that will have this call."""
    hit = at_call(world, short, operation, number, answered)
    struck: list[Moment] = []

    def plan(moment: Moment) -> BaseException | None:
        if not hit(moment):
            return None
        struck.append(moment)
        return KILLED

    world.faults.plan = plan
    return struck


def outage(world: World, short: str, blow: Refusal | BaseException, struck: list[Moment]) -> Plan:
    """Return a plan that fails and records every call of a function."""

    def fails(moment: Moment) -> Refusal | BaseException | None:
        if moment.role != world.name(short) or moment.answered:
            return None
        struck.append(moment)
        return blow

    return fails


def failed(world: World) -> list[str]:
    return [name for name, _ in world.failures]


def dead_lettered_jobs(world: World, api: Gateway) -> list[str]:
    """Submit jobs, and move their messages to the dead letters."""
    with without_executors(world):
        jobs = [submit_job(api, schedule_type="IMMEDIATE", task=EVENT) for _ in range(2)]
        queue = world.lane("quick")
        for message in list(queue.messages):
            world.sqs.move_to_dead_letters(queue, message)
    return jobs


def assert_each_ended_once(world: World, api: Gateway, jobs: Sequence[str]) -> None:
    """Check that each run failed as a dead letter, or ran because an evaluation sent it again."""
    paid = [event["job_id"] for event in published_events(world, "Paid")]
    for job in jobs:
        (run,) = runs_of(api, job)
        given_up = (run["reason"] or {}).get("code") == "POISON"
        assert (run["status"], paid.count(job)) == (("FAILED", 0) if given_up else ("SUCCESS", 1))
    assert sorted(event["job_id"] for event in ended_run_events(world)) == sorted(jobs)
    assert_at_rest(world)


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("ReceiveMessage", 0),
        ("BatchGetItem", 0),
        ("BatchWriteItem", 0),
        ("UpdateItem", 0),
        ("UpdateItem", 1),
        ("BatchWriteItem", 1),
        ("DeleteMessageBatch", 0),
    ],
)
def test_crash_of_dead_letters_ends_each_run_once(
    operation: str, number: int, answered: bool
) -> None:
    with a_world() as world:
        api = open_api(world)
        jobs = dead_lettered_jobs(world, api)
        struck = crash_at(world, "dead-letters", operation, number, answered)
        world.run(12 * MINUTE)
        assert len(struck) == 1
        assert failed(world) == [world.name("dead-letters")]
        assert_each_ended_once(world, api, jobs)


@pytest.mark.parametrize("blow", BLOWS, ids=["throttled", "unanswered"])
def test_dead_letters_are_handled_after_outage(blow: Refusal | BaseException) -> None:
    with a_world() as world:
        api = open_api(world)
        jobs = dead_lettered_jobs(world, api)
        struck: list[Moment] = []
        world.faults.plan = outage(world, "dead-letters", blow, struck)
        world.run(6 * MINUTE)
        world.faults.plan = None
        assert struck
        world.run(12 * MINUTE)
        assert_each_ended_once(world, api, jobs)


def jobs_without_timers(world: World, api: Gateway) -> list[str]:
    """Submit jobs and delete their timers. No crash of a function has this effect."""
    at = after(240).isoformat()
    jobs = [submit_job(api, **ONCE, schedule_time=at) for _ in range(2)]
    for row in world.rows(keys.TIMERS_TABLE):
        world.bare.delete_item(
            TableName=world.table(keys.TIMERS_TABLE), Key=parse_row(row).key.item()
        )
    set_walk_start(world, world.clock.now - 10 * MINUTE)
    return jobs


def assert_each_ran_once(world: World, api: Gateway, jobs: Sequence[str]) -> None:
    for job in jobs:
        (run,) = runs_of(api, job)
        assert (run["status"], run["lateness_ms"]) == ("SUCCESS", 0)
    assert sorted(event["job_id"] for event in published_events(world, "Paid")) == sorted(jobs)
    assert_at_rest(world)


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operation", "number"),
    [
        ("BatchGetItem", 0),
        ("Scan", 0),
        ("Query", 0),
        ("BatchWriteItem", 0),
        ("PutItem", 0),
    ],
)
def test_crash_of_reconciler_repairs_jobs_on_retry(
    operation: str, number: int, answered: bool
) -> None:
    with a_world() as world:
        api = open_api(world)
        jobs = jobs_without_timers(world, api)
        struck = crash_at(world, "reconciler", operation, number, answered)
        world.tick("reconciler")  # EventBridge retries once
        world.run(5 * MINUTE)
        assert len(struck) == 1
        assert failed(world) == [world.name("reconciler")]
        assert_each_ran_once(world, api, jobs)


@pytest.mark.parametrize("blow", BLOWS, ids=["throttled", "unanswered"])
def test_reconciler_repairs_jobs_after_outage(blow: Refusal | BaseException) -> None:
    with a_world() as world:
        api = open_api(world)
        jobs = jobs_without_timers(world, api)
        struck: list[Moment] = []
        world.faults.plan = outage(world, "reconciler", blow, struck)
        world.tick("reconciler")
        world.run(MINUTE)
        world.faults.plan = None
        assert struck
        world.tick("reconciler")
        world.run(5 * MINUTE)
        assert_each_ran_once(world, api, jobs)


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operation", "number"),
    [("PutItem", 0), ("BatchWriteItem", 0), ("BatchWriteItem", 1), ("PutItem", 1)],
    ids=["receipt", "definition", "timer", "head"],
)
def test_submission_repeated_after_crash_creates_one_job(
    operation: str, number: int, answered: bool
) -> None:
    """Both requests have the same Idempotency-Key."""
    with a_world() as world:
        api = open_api(world)
        struck = crash_at(world, "job-service", operation, number, answered)
        asked = {"name": "n", **ONCE, "schedule_time": after(90).isoformat()}
        key = {"idempotency_key": "a payout"}
        answers = [api.call("POST", "/jobs", asked, key) for _ in range(2)]
        assert [answer.status for answer in answers] == [500, 202], len(struck)
        world.run(3 * MINUTE)
        assert_each_ran_once(world, api, [answers[1].json["job_id"]])


@pytest.mark.parametrize("blow", BLOWS, ids=["throttled", "unanswered"])
def test_submission_during_outage_is_refused_without_a_trace(
    blow: Refusal | BaseException,
) -> None:
    with a_world() as world:
        api = open_api(world)
        struck: list[Moment] = []
        world.faults.plan = outage(world, "job-service", blow, struck)
        asked = {"name": "n", **ONCE, "schedule_time": after(90).isoformat()}
        assert api.post("/jobs", asked).status == 503
        world.faults.plan = None
        assert struck
        job = submit_job(api, **ONCE, schedule_time=after(90).isoformat())
        world.run(3 * MINUTE)
        assert_each_ran_once(world, api, [job])
        assert [job["job_id"] for job in api.get("/jobs").json["jobs"]] == [job]
