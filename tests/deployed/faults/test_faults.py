"""Crashes and throttling at every call of a run's path. No run is lost or duplicated."""

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.builders import after
from tests.support.deployed.faults import LOST, Killed, Moment, Plan, Refusal
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import (
    assert_at_rest,
    published_events,
    runs_of,
    unique_scheduled_times,
)
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, World, a_world

EVENT = {"type": "event", "detail_type": "Paid"}
THROTTLED = Refusal("ThrottlingException")
FUNCTIONS = ("planner", "poller", "executor-quick", "executor-long", "status")
TIMEOUT = {"executor-long": 900}  # the timeout selects the lane
# A message is hidden this long after a crash in the first second.
PATIENCE = {"executor-long": 18 * MINUTE}


def run_with(plan: Callable[[World], Plan | None], short: str = "") -> Counter[str]:
    """Run two jobs with one due time under a plan. Return the failures by function."""
    with a_world() as world:
        api = open_api(world)
        says = {"task": EVENT, "timeout_seconds": TIMEOUT.get(short, 60)}
        at = after(90).isoformat()
        jobs = [submit_job(api, schedule_type="FUTURE", schedule_time=at, **says) for _ in range(2)]
        world.faults.moments.clear()
        world.faults.plan = plan(world)
        world.run(3 * MINUTE)
        world.faults.plan = None
        world.run(PATIENCE.get(short, 7 * MINUTE))
        assert_finished(world, api, jobs)
        return Counter(name.removeprefix("punctual-dev-") for name, _ in world.failures)


def assert_finished(world: World, api: Gateway, jobs: list[str]) -> None:
    """Check that each job ran once and was published, and that nothing is left."""
    for job in jobs:
        (run,) = runs_of(api, job)
        assert run["status"] == "SUCCESS"
        assert len(unique_scheduled_times(api, job)) == 1
    ended = Counter(event["run_id"] for event in published_events(world, "Run State Change"))
    assert len(ended) == len(jobs)
    assert {event["job_id"] for event in published_events(world, "Paid")} == set(jobs)
    counted = api.get("/stats").json
    assert (counted["jobs"], counted["runs"]) == ({"COMPLETED": 2}, {"SUCCESS": 2})
    assert_at_rest(world)


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


# The calls that write or decide, each at its first few times.
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
    ("status", "PutItem", 0),
    ("status", "BatchWriteItem", 0),
    ("status", "BatchWriteItem", 1),
    ("status", "UpdateItem", 0),
    ("status", "UpdateItem", 1),
]


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("short", "operation", "number"), CALLS)
def test_crash_of_function_loses_and_duplicates_no_run(
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

    assert run_with(plan, short) == {short: 1}
    assert len(struck) == 1


@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [0, 1], ids=["the batch's row", "their own rows"])
def test_crash_of_executor_keeps_outputs(number: int, answered: bool) -> None:
    with a_world() as world:
        api = open_api(world)
        at = after(90).isoformat()
        jobs = [submit_job(api, schedule_type="FUTURE", schedule_time=at) for _ in range(3)]
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
        packs = [
            write for call in world.meter.calls for write in call.writes if "#pack#" in write.key.pk
        ]
        assert len(packs) == (1 if number else 2 if answered else 1), (
            "one row for each finished batch"
        )
        assert_at_rest(world)


@pytest.mark.parametrize("short", FUNCTIONS)
@pytest.mark.parametrize("blow", [THROTTLED, LOST], ids=["throttled", "unanswered"])
def test_outage_of_half_a_minute_loses_no_run(short: str, blow: Refusal | BaseException) -> None:
    """Every call of one function fails while its work is due."""
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

    run_with(plan, short)
    assert struck


def test_lost_answers_of_writes_cause_no_failure() -> None:
    """Every third write takes effect, but its answer is lost."""

    def plan(world: World) -> Plan:
        count = [0]

        def loses(moment: Moment) -> BaseException | None:
            if moment.answered and moment.operation in ("UpdateItem", "PutItem"):
                count[0] += 1
                return LOST if count[0] % 3 == 0 else None
            return None

        return loses

    assert run_with(plan) == {}
