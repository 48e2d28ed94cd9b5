"""What a start of a container holds: links that fit into its call, and those that do not."""

from collections.abc import Iterator, Mapping

import pytest

from punctual.domain.run import RunStatus
from punctual.tasks.container.request import MAX_COMMAND_BYTES, command_bytes
from tests.support.containers.ecs import FakeTask
from tests.support.containers.world import BUCKET_ARN, BUCKET_URL, ContainersWorld, containers_world

# The credentials of a function have a long session token, which each link carries.
SIGNATURE = "?X-Amz-Security-Token=" + "s" * 1_400
LINKS = {"PUNCTUAL_PAYLOAD_URL", "PUNCTUAL_RUN_URL"}
PAYLOAD = {"day": "monday"}


@pytest.fixture
def world() -> Iterator[ContainersWorld]:
    with containers_world() as world:
        world.link_end = SIGNATURE
        yield world


def longest_env(command: list[str]) -> dict[str, str]:
    """Return the longest variable that a job with this command may have."""
    room = MAX_COMMAND_BYTES - command_bytes(command, {"TEXT": ""})
    return {"TEXT": "x" * room}


def file_of(world: ContainersWorld, task: FakeTask) -> Mapping[str, str]:
    """Return the variables that ECS reads from the file of the start."""
    bucket, _, name = task.environment_file.partition("/")
    assert bucket == BUCKET_ARN
    lines = world.scene.blobs[name].decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_links_stand_in_the_call_where_they_fit(world: ContainersWorld) -> None:
    world.start({"command": ["report"]}, payload=PAYLOAD)
    assert set(world.task.environment) >= LINKS
    assert world.task.environment_file == ""


def test_longest_command_and_environment_start_with_both_links(world: ContainersWorld) -> None:
    command = ["report", "--all"]
    env = longest_env(command)
    key = world.start({"command": command, "env": env}, payload=PAYLOAD)
    task = world.task
    assert (task.command, task.environment["TEXT"]) == (command, env["TEXT"])
    assert set(task.environment) & LINKS == set()
    links = file_of(world, task)
    assert set(links) == LINKS
    for link in links.values():
        name = link.removeprefix(BUCKET_URL).removesuffix(SIGNATURE)
        assert name in world.scene.blobs
    world.ecs.run(task)
    world.ecs.exit(task, 0)
    world.deliver_events()
    assert world.run_of(key).run.status is RunStatus.SUCCESS
    assert [name for name in world.scene.blobs if name.endswith((".env", ".json"))] == []


def test_filled_placeholders_that_are_too_long_fail_the_attempt(world: ContainersWorld) -> None:
    key = world.submit({"command": ["{{payload.text}}"]}, payload={"text": "x" * 9_000})
    world.execute()
    view = world.run_of(key)
    assert view.run.status is RunStatus.FAILED
    assert "ECS takes 8,192" in view.detail.error
    assert world.ecs.tasks == {}
