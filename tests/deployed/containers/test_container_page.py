"""The job of the page on containers, from its secret to its log.

Emulators of AWS run no containers, so a stand-in plays ECS. Each command of the page is one call.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.e2e.docs.blocks import Use, blocks_of
from tests.support.containers.ecs import Ecs
from tests.support.containers.scenario import stand_in_for_ecs
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.scenes import open_api
from tests.support.deployed.world import SECOND, World, a_world

ROOT = Path(__file__).parents[3]
PAGE = "docs/how-to/run-a-container.md"
COMMANDS = [
    "punctual secrets set token < token.txt",
    "punctual jobs create -f report.json",
    "punctual runs watch report",
    "punctual runs logs report",
]
SECRET = "hush-hush-hush"


class Deployment(NamedTuple):
    world: World
    api: Gateway
    ecs: Ecs

    def run_of(self, job: str) -> dict[str, Any]:
        latest = self.api.get(f"/jobs/{job}/status").json["latest_run"]
        run: dict[str, Any] = self.api.get(f"/jobs/{job}/runs/{latest['run_id']}").json
        return run

    def deliver_events(self) -> None:
        for event in self.ecs.events:
            self.world.invoke(self.world.name("containers"), event)
        self.ecs.events.clear()
        assert self.world.failures == []


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    with a_world("rehearsal") as world:
        yield Deployment(world, open_api(world), stand_in_for_ecs(world))


def blocks(use: Use) -> list[str]:
    return [block.text for block in blocks_of(ROOT, PAGE) if block.use is use]


def test_commands_of_the_page_are_those_that_are_played_here() -> None:
    assert blocks(Use.DONE)[0].splitlines() == COMMANDS


def test_job_of_the_page_runs_as_the_page_says(deployment: Deployment) -> None:
    api, ecs = deployment.api, deployment.ecs
    (job_file,) = blocks(Use.FILE)
    assert api.call("PUT", "/secrets/token", {"value": SECRET}).status == 204
    created = api.post("/jobs", json.loads(job_file))
    assert created.status == 202, created.body
    job = created.json["job_id"]
    deployment.world.run(5 * SECOND)
    assert deployment.run_of(job)["status"] == "CLAIMED"

    task = ecs.only_task()
    page = (ROOT / PAGE).read_text()
    shown = [line for line in page.splitlines() if line.startswith("| `PUNCTUAL_")]
    named = {name for line in shown for name in line.split("`")[1::2] if "PUNCTUAL_" in name}
    assert set(task.environment) - {"MODE"} <= named
    assert {"PUNCTUAL_JOB_ID", "PUNCTUAL_RUN_ID", "PUNCTUAL_PAYLOAD_URL"} <= set(task.environment)
    assert (task.command, task.environment["MODE"]) == (["report", "--day", "monday"], "fast")
    (definition,) = ecs.definitions.values()
    assert (definition["cpu"], definition["memory"]) == ("512", "1024")
    (container,) = definition["containerDefinitions"]
    assert [secret["name"] for secret in container["secrets"]] == ["TOKEN"]
    assert SECRET not in f"{task.params}{definition}"

    ecs.run(task)
    deployment.deliver_events()
    assert deployment.run_of(job)["status"] == "RUNNING"
    ecs.print(task, "3 orders", "done")
    ecs.exit(task, 0)
    deployment.deliver_events()
    run = deployment.run_of(job)
    assert (run["status"], run["exit_code"]) == ("SUCCESS", 0)
    log = api.call("GET", f"/jobs/{job}/runs/{run['run_id']}/logs")
    assert log.body == "3 orders\ndone\n"
