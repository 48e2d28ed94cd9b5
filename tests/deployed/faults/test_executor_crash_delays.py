"""The maximum lateness of runs after an executor crashed in its first second.

In its first second its messages are hidden for 330 s, later for 30 s.
"""

from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from tests.support.builders import after
from tests.support.deployed.faults import Killed, Moment
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import assert_at_rest, published_events, runs_of
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, World

EVENT = {"type": "event", "detail_type": "Paid"}
DUE = after(90)
ONCE = {"schedule_type": "FUTURE", "schedule_time": DUE.isoformat()}
MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
READ, CLAIMED = ("BatchGetItem", False), ("UpdateItem", True)  # before and right after the claim


def strike(world: World, at: tuple[str, bool], blow: BaseException, times: int) -> None:
    """Apply `blow` to the first `times` of these calls."""
    struck: Counter[str] = Counter()

    def plan(moment: Moment) -> BaseException | None:
        mine = moment.role == world.name("executor-quick")
        if not mine or (moment.operation, moment.answered) != at or struck["times"] == times:
            return None
        struck["times"] += 1
        return blow

    world.faults.plan = plan


def lateness(run: dict[str, Any], due: datetime = DUE) -> float:
    """Return the seconds from the due time of a run to its end."""
    return (datetime.fromisoformat(run["end_time"]) - due).total_seconds()


@pytest.fixture(params=[READ, CLAIMED], ids=["unclaimed", "claimed"])
def at(request: pytest.FixtureRequest) -> Any:
    return request.param


def run_once(world: World, api: Gateway) -> dict[str, Any]:
    job = submit_job(api, task=EVENT, **ONCE)
    world.run(25 * MINUTE)
    (run,) = runs_of(api, job)
    assert run["status"] == "SUCCESS"
    assert (
        len(published_events(world, "Run State Change"))
        == len(published_events(world, "Paid"))
        == 1
    )
    assert_at_rest(world)
    return run


def test_exception_delays_messages_by_half_a_minute(world: World, api: Gateway) -> None:
    """After a Python exception the function can still change the visibility."""
    strike(world, CLAIMED, MemoryError("no more"), 1)
    assert lateness(run_once(world, api)) <= 31
    assert [name for name, _ in world.failures] == [world.name("executor-quick")]


def test_crashed_environment_delays_run_by_visibility_timeout(
    world: World, api: Gateway, at: tuple[str, bool]
) -> None:
    strike(world, at, Killed("no environment"), 1)
    assert 300 < lateness(run_once(world, api)) <= 331


def test_redelivered_message_backs_off_longer_each_time(
    world: World, api: Gateway, at: tuple[str, bool]
) -> None:
    strike(world, at, Killed("no environment"), 4)
    assert lateness(run_once(world, api)) <= 330 + 30 + 60 + 120 + 1
    assert len(world.failures) == 4


def test_next_evaluation_does_not_wait_for_hidden_message(
    world: World, api: Gateway, at: tuple[str, bool]
) -> None:
    """The new message has its own group, so SQS does not hold it back."""
    job = submit_job(api, task=EVENT, **MINUTELY)
    strike(world, at, Killed("no environment"), 1)
    world.run(3 * MINUTE)
    first = runs_of(api, job)[-1]
    assert first["status"] == "SUCCESS"
    assert lateness(first, after(60)) <= 61
    world.run(7 * MINUTE)
    assert {run["status"] for run in runs_of(api, job)} == {"SUCCESS"}
    ran = Counter(event["scheduled_time"] for event in published_events(world, "Paid"))
    assert set(ran.values()) == {1}
