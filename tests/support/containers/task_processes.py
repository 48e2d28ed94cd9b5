"""Runs the tasks of the stand-in for ECS as processes: our runner from its zip, as in an image.

A task has the environment of its container: what the start overrides, and the values of the secrets
that its definition names.
"""

from collections.abc import Callable, Mapping
from typing import Any

import requests

from tests.support.containers.ecs import Ecs, FakeTask
from tests.support.deployed.world import World
from tests.support.runner.joined_runners import ScriptRunners
from tests.support.runner.runner_process import RunnerProcess

RUN_URL = "PUNCTUAL_RUN_URL"


class TaskProcesses:
    """Starts the programs of tasks, and tells ECS how they end."""

    def __init__(self, world: World, ecs: Ecs, runners: ScriptRunners) -> None:
        self._world = world
        self._ecs = ecs
        self._runners = runners

    def start(self, task: FakeTask, **variables: str) -> RunnerProcess:
        """Start the program of a task with our runner as its entry point."""
        environment = {**self._secrets(task), **task.environment, **variables}
        event = self._read_event(environment.pop(RUN_URL))
        process = self._runners.start(event, *task.command, **environment)
        self._ecs.run(task)
        self._deliver_events()
        return process

    def serve_until(self, condition: Callable[[], object]) -> None:
        """Serve the calls of all runners."""
        self._runners.serve_until(condition)

    def end(self, task: FakeTask, process: RunnerProcess) -> int:
        """Serve the calls of a task until its program has ended. Return its exit code."""
        ended = self._runners.end(process)
        assert ended.errors == ""
        self._ecs.exit(task, ended.exit_code)
        self._deliver_events()
        return ended.exit_code

    def kill(self, task: FakeTask, process: RunnerProcess) -> None:
        """Kill the program of a task, as the kernel does for want of memory."""
        process.process.kill()
        process.process.communicate()
        self._ecs.exit(task, 137, "OutOfMemoryError: container killed due to memory usage")
        self._deliver_events()

    def _deliver_events(self) -> None:
        for event in self._ecs.events:
            self._world.invoke(self._world.name("containers"), event)
        self._ecs.events.clear()
        assert self._world.failures == []

    def _read_event(self, url: str) -> dict[str, Any]:
        answer = requests.get(url, timeout=5)
        assert answer.status_code == 200, answer.text
        event: dict[str, Any] = answer.json()
        return event

    def _secrets(self, task: FakeTask) -> Mapping[str, str]:
        """Return the variables that ECS fills in from SSM, by the execution role."""
        (container,) = self._ecs.definitions[task.params["taskDefinition"]]["containerDefinitions"]
        ssm = self._world.session.client("ssm")
        return {
            secret["name"]: ssm.get_parameter(
                Name=secret["valueFrom"].partition(":parameter")[2], WithDecryption=True
            )["Parameter"]["Value"]
            for secret in container.get("secrets", ())
        }
