"""Those who see to what others left, and who takes requests: killed or throttled at every call."""

from collections.abc import Sequence

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.timers.rows import parse_row
from tests.deployed.faults.test_faults import at_call
from tests.support.builders import after
from tests.support.deployed.faults import LOST, Killed, Moment, Plan, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.left import without_executors
from tests.support.deployed.mending import walk_from
from tests.support.deployed.scenes import opened, submitted
from tests.support.deployed.seen import at_rest, ends_told, runs_of, told
from tests.support.deployed.world import MINUTE, World, a_world

EVENT = {"type": "event", "detail_type": "Paid"}
KILLED = Killed("out of time or memory")
BLOWS = [Refusal("ThrottlingException"), LOST]
ONCE = {"schedule_type": "FUTURE", "task": EVENT}


def dies(world: World, short: str, operation: str, number: int, answered: bool) -> Sequence[Moment]:
    """From now on; the moment is told, when it has come."""
    hit = at_call(world, short, operation, number, answered)
    struck: list[Moment] = []

    def plan(moment: Moment) -> BaseException | None:
        if not hit(moment):
            return None
        struck.append(moment)
        return KILLED

    world.faults.plan = plan
    return struck


def away(world: World, short: str, blow: Refusal | BaseException, struck: list[Moment]) -> Plan:
    """Whatever this function calls fails, and is noted."""

    def fails(moment: Moment) -> Refusal | BaseException | None:
        if moment.role != world.name(short) or moment.answered:
            return None
        struck.append(moment)
        return blow

    return fails


def failed(world: World) -> list[str]:
    return [name for name, _ in world.failures]


def given_up(world: World, api: Gateway) -> list[str]:
    """Jobs whose messages have come too often."""
    with without_executors(world):
        jobs = [submitted(api, schedule_type="IMMEDIATE", task=EVENT) for _ in range(2)]
        queue = world.lane("quick")
        for letter in list(queue.letters):
            world.sqs.bury(queue, letter)
    return jobs


def each_ended_once(world: World, api: Gateway, jobs: Sequence[str]) -> None:
    """Given up; or run after all, where a look at the job sent it again before the next round."""
    paid = [one["job_id"] for one in told(world, "Paid")]
    for job in jobs:
        (run,) = runs_of(api, job)
        given_up = (run["reason"] or {}).get("code") == "POISON"
        assert (run["status"], paid.count(job)) == (("FAILED", 0) if given_up else ("SUCCESS", 1))
    assert sorted(one["job_id"] for one in ends_told(world)) == sorted(jobs)
    at_rest(world)


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
def test_whoever_buries_messages_and_dies_loses_and_doubles_no_end(
    operation: str, number: int, answered: bool
) -> None:
    with a_world() as world:
        api = opened(world)
        jobs = given_up(world, api)
        struck = dies(world, "dead-letters", operation, number, answered)
        world.run(12 * MINUTE)
        assert len(struck) == 1
        assert failed(world) == [world.name("dead-letters")]
        each_ended_once(world, api, jobs)


@pytest.mark.parametrize("blow", BLOWS, ids=["throttled", "unanswered"])
def test_messages_are_buried_when_the_stores_answer_again(blow: Refusal | BaseException) -> None:
    with a_world() as world:
        api = opened(world)
        jobs = given_up(world, api)
        struck: list[Moment] = []
        world.faults.plan = away(world, "dead-letters", blow, struck)
        world.run(6 * MINUTE)
        world.faults.plan = None
        assert struck
        world.run(12 * MINUTE)
        each_ended_once(world, api, jobs)


def forgotten(world: World, api: Gateway) -> list[str]:
    """Jobs whose timers are gone, which no crash of ours leaves."""
    at = after(240).isoformat()
    jobs = [submitted(api, **ONCE, schedule_time=at) for _ in range(2)]
    for row in world.rows(keys.TIMERS_TABLE):
        world.bare.delete_item(
            TableName=world.table(keys.TIMERS_TABLE), Key=parse_row(row).key.item()
        )
    walk_from(world, world.clock.now - 10 * MINUTE)
    return jobs


def each_ran_once(world: World, api: Gateway, jobs: Sequence[str]) -> None:
    for job in jobs:
        (run,) = runs_of(api, job)
        assert (run["status"], run["lateness_ms"]) == ("SUCCESS", 0)
    assert sorted(one["job_id"] for one in told(world, "Paid")) == sorted(jobs)
    at_rest(world)


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
def test_whoever_mends_jobs_and_dies_mends_them_when_it_is_started_again(
    operation: str, number: int, answered: bool
) -> None:
    with a_world() as world:
        api = opened(world)
        jobs = forgotten(world, api)
        struck = dies(world, "reconciler", operation, number, answered)
        world.tick("reconciler")  # whose rule tries once more
        world.run(5 * MINUTE)
        assert len(struck) == 1
        assert failed(world) == [world.name("reconciler")]
        each_ran_once(world, api, jobs)


@pytest.mark.parametrize("blow", BLOWS, ids=["throttled", "unanswered"])
def test_jobs_are_mended_when_the_stores_answer_again(blow: Refusal | BaseException) -> None:
    with a_world() as world:
        api = opened(world)
        jobs = forgotten(world, api)
        struck: list[Moment] = []
        world.faults.plan = away(world, "reconciler", blow, struck)
        world.tick("reconciler")
        world.run(MINUTE)
        world.faults.plan = None
        assert struck
        world.tick("reconciler")
        world.run(5 * MINUTE)
        each_ran_once(world, api, jobs)


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operation", "number"),
    [("PutItem", 0), ("BatchWriteItem", 0), ("BatchWriteItem", 1), ("PutItem", 1)],
    ids=["receipt", "definition", "timer", "head"],
)
def test_a_request_that_is_cut_off_and_sent_again_makes_one_job(
    operation: str, number: int, answered: bool
) -> None:
    """Its Idempotency-Key says that it is the same."""
    with a_world() as world:
        api = opened(world)
        struck = dies(world, "job-service", operation, number, answered)
        asked = {"name": "n", **ONCE, "schedule_time": after(90).isoformat()}
        key = {"idempotency_key": "a payout"}
        answers = [api.call("POST", "/jobs", asked, key) for _ in range(2)]
        assert [one.status for one in answers] == [500, 202], len(struck)
        world.run(3 * MINUTE)
        each_ran_once(world, api, [answers[1].json["job_id"]])


@pytest.mark.parametrize("blow", BLOWS, ids=["throttled", "unanswered"])
def test_a_request_is_refused_while_the_stores_are_away_and_nothing_of_it_is_left(
    blow: Refusal | BaseException,
) -> None:
    with a_world() as world:
        api = opened(world)
        struck: list[Moment] = []
        world.faults.plan = away(world, "job-service", blow, struck)
        asked = {"name": "n", **ONCE, "schedule_time": after(90).isoformat()}
        assert api.post("/jobs", asked).status == 503
        world.faults.plan = None
        assert struck
        job = submitted(api, **ONCE, schedule_time=after(90).isoformat())
        world.run(3 * MINUTE)
        each_ran_once(world, api, [job])
        assert [one["job_id"] for one in api.get("/jobs").json["jobs"]] == [job]
