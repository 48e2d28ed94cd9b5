"""An executor that is gone within its first second: how late its runs are then, at the most.

Later on its messages are hidden for 30 s; until then for 330, as long as it might have run.
"""

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.support.builders import after
from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import submitted
from tests.support.deployed.seen import at_rest, runs_of, told
from tests.support.deployed.world import MINUTE, World

EVENT = {"type": "event", "detail_type": "Paid"}
DUE = after(90)
ONCE = {"schedule_type": "FUTURE", "schedule_time": DUE.isoformat()}
MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
READ, CLAIMED = ("BatchGetItem", False), ("UpdateItem", True)  # before its claim, and right after


def strike(world: World, at: tuple[str, bool], blow: BaseException, times: int) -> None:
    """The first of these calls of so many invocations."""
    struck: Counter[str] = Counter()

    def plan(moment: Moment) -> BaseException | None:
        mine = moment.role == world.name("executor-quick")
        if not mine or (moment.operation, moment.answered) != at or struck["times"] == times:
            return None
        struck["times"] += 1
        return blow

    world.faults.plan = plan


def late(run: dict[str, Any], due: datetime = DUE) -> float:
    """Seconds between when a run was due and when it had ended."""
    return (datetime.fromisoformat(run["end_time"]) - due).total_seconds()


@pytest.fixture(params=[READ, CLAIMED], ids=["unclaimed", "claimed"])
def at(request: pytest.FixtureRequest) -> Any:
    return request.param


def lived(world: World, api: Gateway) -> dict[str, Any]:
    job = submitted(api, task=EVENT, **ONCE)
    world.run(25 * MINUTE)
    (run,) = runs_of(api, job)
    assert run["status"] == "SUCCESS"
    assert len(told(world, "Run State Change")) == len(told(world, "Paid")) == 1
    at_rest(world)
    return run


def test_what_raises_hands_its_messages_back_for_half_a_minute(world: World, api: Gateway) -> None:
    """A defect of ours, or memory that Python itself could not have: the function can still act."""
    strike(world, CLAIMED, MemoryError("no more"), 1)
    assert late(lived(world, api)) <= 31
    assert [name for name, _ in world.failures] == [world.name("executor-quick")]


def test_an_environment_that_is_gone_costs_as_long_as_it_might_have_run(
    world: World, api: Gateway, at: tuple[str, bool]
) -> None:
    strike(world, at, Killed("no environment"), 1)
    assert 300 < late(lived(world, api)) <= 331


def test_a_message_that_comes_again_is_hidden_at_once_and_for_longer_each_time(
    world: World, api: Gateway, at: tuple[str, bool]
) -> None:
    strike(world, at, Killed("no environment"), 4)
    assert late(lived(world, api)) <= 330 + 30 + 60 + 120 + 1
    assert len(world.failures) == 4


def test_the_next_look_at_the_job_does_not_wait_for_the_message_that_is_hidden(
    world: World, api: Gateway, at: tuple[str, bool]
) -> None:
    """What it sends is in a group of its own: SQS hands it out beside the one that is held."""
    job = submitted(api, task=EVENT, **MINUTELY)
    strike(world, at, Killed("no environment"), 1)
    world.run(3 * MINUTE)
    first = runs_of(api, job)[-1]
    assert first["status"] == "SUCCESS"
    assert late(first, after(60)) <= 61
    world.run(7 * MINUTE)
    assert {run["status"] for run in runs_of(api, job)} == {"SUCCESS"}
    ran = Counter(one["scheduled_time"] for one in told(world, "Paid"))
    assert set(ran.values()) == {1}
