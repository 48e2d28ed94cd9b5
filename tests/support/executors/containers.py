"""Containers: with an image as it is, with our runner inside, and with a script in our image."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.claims import UploadAnswer
from punctual.engine.execution.executor import Executor
from punctual.engine.ports.job_states import JobStates
from punctual.engine.queries.views import RunView
from punctual.tasks.container.next_step import CONTAINER_LEASE
from tests.support.containers.ecs import FakeTask
from tests.support.containers.world import ContainersWorld, containers_world
from tests.support.executors.claim_calls import ClaimHolder, EngineCalls, identity_of
from tests.support.executors.driver import Answer, ExecutorDriver, Holder

MINUTE_SECONDS = 60
EXIT_CODES = {RunStatus.SUCCESS: 0, RunStatus.FAILED: 1}
NO_CAPACITY = "Capacity is unavailable at this time."
LONG_SCRIPT = {"type": "script", "runtime": "bash", "code": "echo done"}


class ContainerHolder(Holder):
    """A task of ECS, which the function `containers` follows. ECS tells its end."""

    def __init__(self, driver: "ContainerDriver", run: Run, task: FakeTask) -> None:
        super().__init__(run)
        self.task = task
        self._driver = driver

    def begin(self) -> None:
        self._driver.is_followed = True
        self._driver.world.ecs.run(self.task)
        self._driver.follow()

    def renew(self) -> Answer:
        """Let a sweep renew the lease. It stops a task that may not go on."""
        self._driver.is_followed = True
        self._driver.pass_time(MINUTE_SECONDS)
        if not self.task.stop_requests:
            return Answer.OK
        return Answer(self.task.stop_requests[-1].removeprefix("Punctual: "))

    def end(self, status: RunStatus) -> None:
        if status is RunStatus.CANCELLED:
            self._driver.is_followed = True
            self._driver.world.ecs.stop_requested(self.task)
            self._driver.follow()
        else:
            self.exit(EXIT_CODES[status])

    def exit(self, code: int) -> None:
        """End the container with an exit code."""
        self._driver.is_followed = True
        self._driver.world.ecs.exit(self.task, code)
        self._driver.follow()

    def release(self) -> None:
        """Let ECS find no room for the task, after it had accepted the start."""
        self._driver.world.ecs.fail_start(self.task, NO_CAPACITY)
        self._driver.follow()

    def kill(self) -> None:
        """Let Fargate take the task back."""
        self._driver.world.ecs.reclaim(self.task)
        self._driver.follow()

    def freeze(self) -> None:
        """Keep the function `containers` from following any task."""
        self._driver.is_followed = False

    def report(self, status: RunStatus) -> bool:
        return self._driver.report_end(self.run, status)


class RunnerHolder(ClaimHolder):
    """A task of ECS with our runner inside, which ends the run by its claim."""

    def __init__(self, driver: "RunnerContainerDriver", run: Run, task: FakeTask) -> None:
        seconds = int(CONTAINER_LEASE.total_seconds())
        claim = driver.world.scene.tokens.sign(identity_of(driver.key, run, lease_seconds=seconds))
        super().__init__(run, claim, EngineCalls(driver.world.scene.claims, driver.put))
        self.in_ecs = ContainerHolder(driver, run, task)

    def begin(self) -> None:
        self.in_ecs.begin()
        super().begin()

    def renew(self) -> Answer:
        answer = super().renew()
        self.in_ecs.renew()
        return answer

    def end(self, status: RunStatus) -> None:
        super().end(status)
        code = EXIT_CODES.get(status, 143)
        self.in_ecs.exit(code)

    def release(self) -> None:
        self.in_ecs.release()

    def kill(self) -> None:
        super().kill()
        self.in_ecs.kill()

    def freeze(self) -> None:
        super().freeze()
        self.in_ecs.freeze()


class ContainerDriver(ExecutorDriver):
    """A container with an unchanged image. It has no claim, so ECS's word is its lease."""

    starts_at_once = False
    stores_output = False
    task: Mapping[str, Any] = {"type": "container"}
    timeout_seconds = 3_600
    work_seconds = 900.0

    def __init__(self, world: ContainersWorld) -> None:
        self.world = world
        self.is_followed = True  # by the function `containers`

    def submit(self, **document: Any) -> None:
        fields = {"timeout_seconds": self.timeout_seconds, **document}
        self.key = self.world.submit(dict(self.task), **fields)

    def take(self) -> Holder:
        (outcome,) = self.world.execute()
        assert outcome.status == "DETACHED", outcome
        return self.hold(self.run, self.world.task)

    def hold(self, run: Run, task: FakeTask) -> Holder:
        return ContainerHolder(self, run, task)

    def follow(self) -> None:
        """Let the function `containers` learn what ECS has to tell."""
        if self.is_followed:
            self.world.deliver_events()

    def pass_time(self, seconds: float) -> None:
        minutes = -(-int(seconds) // MINUTE_SECONDS)
        if self.is_followed:
            self.world.deliver_events()
            self.world.sweep(minutes)
        else:
            self.world.lose_events()
            self.world.pass_without_sweep(timedelta(minutes=minutes))

    def cancel(self) -> None:
        self.world.cancel(self.key)

    @property
    def view(self) -> RunView:
        return self.world.run_of(self.key)

    def stored_blob(self, name: str) -> bytes | None:
        return self.world.scene.ports.blobs.get(name)

    @property
    def executor(self) -> Executor:
        return self.world.scene.executor

    @property
    def job_states(self) -> JobStates:
        return self.world.scene.ports.job_states

    def do(self, request: Callable[[], Any]) -> Any:
        return request()


class RunnerContainerDriver(ContainerDriver):
    """A container with our runner as its entry point."""

    stores_output = True

    def hold(self, run: Run, task: FakeTask) -> Holder:
        return RunnerHolder(self, run, task)

    def put(self, answer: UploadAnswer, data: bytes) -> None:
        assert self.world.scene.world.memory.blobs.upload(answer.url, data)


class ScriptContainerDriver(RunnerContainerDriver):
    """A script that is too long for a function, in our image."""

    counts_unbegun = False
    task = LONG_SCRIPT


@contextmanager
def container_driver(kind: type[ContainerDriver]) -> Iterator[ContainerDriver]:
    with containers_world() as world:
        yield kind(world)
