"""Script jobs on a deployment, from the API to the executor that has the lane of scripts."""

from collections.abc import Iterator

import pytest

from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, World, a_world

SCRIPT = {
    "schedule_type": "IMMEDIATE",
    "task": {"type": "script", "runtime": "bash", "code": "echo out"},
}


@pytest.fixture
def world() -> Iterator[World]:
    with a_world("dev") as world:
        yield world


@pytest.fixture
def api(world: World) -> Gateway:
    return open_api(world)


def status_of(api: Gateway, job_id: str) -> str:
    (run,) = api.get(f"/jobs/{job_id}/runs").json["runs"]
    return str(run["status"])


def test_short_script_runs_with_the_rights_of_its_executor(world: World, api: Gateway) -> None:
    world.run_script = lambda event: {"output": "b3V0", "log": "b3V0", "exit_code": 0}
    job_id = submit_job(api, **SCRIPT, timeout_seconds=20)
    world.run(MINUTE / 10)
    assert status_of(api, job_id) == "SUCCESS"


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_script_without_a_runner_is_started_again(
    world: World, api: Gateway, delivery: str
) -> None:
    job_id = submit_job(api, **SCRIPT, delivery=delivery)
    world.run(MINUTE)
    assert status_of(api, job_id) == "CLAIMED", "Lambda may still hold the event"
    world.run(MINUTE)
    (run,) = api.get(f"/jobs/{job_id}/runs").json["runs"]
    assert (run["status"], run["attempt_number"]) == ("CLAIMED", 1), "nothing of it had begun"
