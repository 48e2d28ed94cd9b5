"""Priorities on AWS: each stage has a queue for each priority of the quick lane."""

import pytest

from tests.support.deployed.deployed import Deployed, Source
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.observations import assert_at_rest, runs_of, statuses
from tests.support.deployed.scenes import submit_job
from tests.support.deployed.world import MINUTE, SECOND, World

EVENT = {"type": "event", "detail_type": "Paid"}


@pytest.fixture(params=["dev", "rehearsal"])
def stage(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_high_priority_run_starts_before_hundred_low_ones(
    world: World, api: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each priority has its own queue and its own executors."""
    low = next(queue for queue in world.deployed.queues if queue.name.endswith("-quick-low.fifo"))
    served = type(world.deployed).fed_by

    def busy(deployed: Deployed, arn: str) -> Source | None:
        return None if arn == low.arn else served(deployed, arn)

    monkeypatch.setattr(type(world.deployed), "fed_by", busy)
    held = [
        submit_job(api, schedule_type="IMMEDIATE", priority="LOW", task=EVENT) for _ in range(100)
    ]
    world.run(SECOND)
    assert len(low.messages) == 100
    urgent = submit_job(api, schedule_type="IMMEDIATE", priority="HIGH", task=EVENT)
    world.run(SECOND)
    (run,) = runs_of(api, urgent)
    assert (run["status"], run["lateness_ms"]) == ("SUCCESS", 0)
    assert {status for job in held for status in statuses(api, job)} == {"QUEUED"}
    monkeypatch.undo()
    world.run(2 * MINUTE)
    assert {status for job in held for status in statuses(api, job)} == {"SUCCESS"}
    assert_at_rest(world)
