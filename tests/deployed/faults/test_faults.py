"""A function killed or throttled at every call of a job's way: nothing is lost, nothing doubled."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.builders import after
from tests.support.deployed.faults import LOST, Killed, Moment, Plan, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import opened, submitted
from tests.support.deployed.seen import at_rest, each_once, runs_of, told
from tests.support.deployed.world import MINUTE, World, a_world

EVENT = {"type": "event", "detail_type": "Paid"}
THROTTLED = Refusal("ThrottlingException")
FUNCTIONS = ("planner", "poller", "executor-quick", "executor-long", "status")
TIMEOUT = {"executor-long": 900}  # in whose lane the jobs run, if not in the quick one
# Until a message comes back whose holder died in its first second.
PATIENCE = {"executor-long": 18 * MINUTE}


def live(plan: Callable[[World], Plan | None], short: str = "") -> Counter[str]:
    """Two jobs of one moment, submitted before anything goes wrong; who failed, how often."""
    with a_world() as world:
        api = opened(world)
        says = {"task": EVENT, "timeout_seconds": TIMEOUT.get(short, 60)}
        at = after(90).isoformat()
        jobs = [submitted(api, schedule_type="FUTURE", schedule_time=at, **says) for _ in range(2)]
        world.faults.moments.clear()
        world.faults.plan = plan(world)
        world.run(3 * MINUTE)
        world.faults.plan = None
        world.run(PATIENCE.get(short, 7 * MINUTE))
        all_is_well(world, api, jobs)
        return Counter(name.removeprefix("punctual-dev-") for name, _ in world.failures)


def all_is_well(world: World, api: Gateway, jobs: list[str]) -> None:
    """Each ran to one end, was told of, and left nothing behind."""
    for job in jobs:
        (run,) = runs_of(api, job)
        assert run["status"] == "SUCCESS"
        assert len(each_once(api, job)) == 1
    ended = Counter(one["run_id"] for one in told(world, "Run State Change"))
    assert len(ended) == len(jobs)
    assert {one["job_id"] for one in told(world, "Paid")} == set(jobs)
    counted = api.get("/stats").json
    assert (counted["jobs"], counted["runs"]) == ({"COMPLETED": 2}, {"SUCCESS": 2})
    at_rest(world)


def at_call(
    world: World, short: str, operation: str, number: int, answered: bool
) -> Callable[[Moment], bool]:
    seen = Counter[bool]()

    def hit(moment: Moment) -> bool:
        if moment.role != world.name(short) or moment.operation != operation:
            return False
        seen[moment.answered] += 1
        return moment.answered == answered and seen[answered] == number + 1

    return hit


# The calls that change something or decide something, each at its first few times.
CALLS = [
    ("poller", "Query", 0),
    ("poller", "UpdateItem", 0),
    ("poller", "UpdateItem", 1),
    ("poller", "SendMessageBatch", 0),
    ("poller", "BatchWriteItem", 0),
    ("executor-quick", "BatchGetItem", 0),
    ("executor-quick", "UpdateItem", 0),
    ("executor-quick", "PutEvents", 0),
    ("executor-quick", "UpdateItem", 2),
    ("executor-quick", "BatchWriteItem", 0),
    ("executor-long", "BatchGetItem", 0),
    ("executor-long", "UpdateItem", 0),
    ("executor-long", "BatchWriteItem", 0),
    ("executor-long", "DeleteMessageBatch", 0),
    ("executor-long", "PutEvents", 0),
    ("executor-long", "UpdateItem", 4),
    ("planner", "Query", 0),
    ("planner", "SendMessageBatch", 0),
    ("status", "PutEvents", 0),
    ("status", "Query", 0),
    ("status", "TransactWriteItems", 0),
    ("status", "TransactWriteItems", 1),
]


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("short", "operation", "number"), CALLS)
def test_a_function_that_dies_loses_and_doubles_nothing(
    short: str, operation: str, number: int, answered: bool
) -> None:
    struck: list[Moment] = []

    def plan(world: World) -> Plan:
        hit = at_call(world, short, operation, number, answered)

        def blow(moment: Moment) -> BaseException | None:
            if not hit(moment):
                return None
            struck.append(moment)
            return Killed("out of time or memory")

        return blow

    assert live(plan, short) == {short: 1}
    assert len(struck) == 1


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [0, 1], ids=["the batch's row", "their own rows"])
def test_what_runs_left_is_answered_whoever_died_on_the_way(number: int, answered: bool) -> None:
    with a_world() as world:
        api = opened(world)
        at = after(90).isoformat()
        jobs = [submitted(api, schedule_type="FUTURE", schedule_time=at) for _ in range(3)]
        world.work = lambda _: {"left": "by one attempt"}
        hit = at_call(world, "executor-quick", "BatchWriteItem", number, answered)
        killed = Killed("out of time or memory")
        world.faults.plan = lambda moment: killed if hit(moment) else None
        world.run(3 * MINUTE)
        assert len(world.failures) == 1
        world.run(7 * MINUTE)
        for job in jobs:
            (run,) = runs_of(api, job)
            assert run["status"] == "SUCCESS"
            assert api.output(job, run["run_id"]) == b'{"left": "by one attempt"}'
            assert run["output_url"].endswith(f"/jobs/{job}/runs/{run['run_id']}/output")
        packs = [one for call in world.meter.calls for one in call.writes if "#pack#" in one.key.pk]
        assert len(packs) == (1 if number else 2 if answered else 1), (
            "one for each batch that ended"
        )
        at_rest(world)


@pytest.mark.parametrize("short", FUNCTIONS)
@pytest.mark.parametrize("blow", [THROTTLED, LOST], ids=["throttled", "unanswered"])
def test_a_store_that_fails_for_half_a_minute_delays_and_loses_nothing(
    short: str, blow: Refusal | BaseException
) -> None:
    """Every call of one function, at the moment when its work is due."""
    struck: list[Moment] = []

    def plan(world: World) -> Plan:
        def fails(moment: Moment) -> Refusal | BaseException | None:
            now = world.clock()
            mine = moment.role == world.name(short) and not moment.answered
            if not mine or not after(80) <= now < after(110):
                return None
            struck.append(moment)
            return blow

        return fails

    live(plan, short)
    assert struck


def test_answers_that_are_lost_are_found_to_have_been_given() -> None:
    """Every third write takes effect and its answer never comes."""

    def plan(world: World) -> Plan:
        count = [0]

        def loses(moment: Moment) -> BaseException | None:
            if moment.answered and moment.operation in ("UpdateItem", "PutItem"):
                count[0] += 1
                return LOST if count[0] % 3 == 0 else None
            return None

        return loses

    assert live(plan) == {}
