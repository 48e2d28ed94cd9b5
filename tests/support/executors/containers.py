"""Containers, with an image as it is, and with our runner inside."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from punctual.domain.claims import ClaimIdentity
from punctual.domain.decide import Verdict
from punctual.domain.run import Run, RunStatus
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.rows import NO_DETAIL
from punctual.engine.queries.views import RunView
from tests.support.containers.ecs import Failures
from tests.support.containers.world import ContainersWorld, containers_world
from tests.support.executors.functions import carry_out, succeeds_by_claim
from tests.support.executors.story import ExecutorStory, Fate

EXIT_CODES = {Fate.SUCCEEDS: 0, Fate.FAILS: 1}


class ContainerStory(ExecutorStory):
    """A container with an unchanged image. ECS tells its end."""

    def __init__(self, world: ContainersWorld) -> None:
        super().__init__()
        self.world = world

    def submit(self, document: Mapping[str, Any], fates: tuple[Fate, ...]) -> None:
        del fates
        self._key = self.world.submit(**document)

    def attempt(self, fate: Fate) -> Run:
        world = self.world
        if fate is Fate.IS_REFUSED:
            world.ecs.plant("RunTask", Failures("RESOURCE:CPU"))
        world.execute()
        run = self.view.run
        if fate is not Fate.IS_REFUSED:
            world.ecs.run(world.task)
            world.deliver_events()
            self.work(fate)
            world.deliver_events()
        return run

    def work(self, fate: Fate) -> None:
        """Let the container end, or lose it to the platform."""
        ecs, task = self.world.ecs, self.world.task
        match fate:
            case Fate.DIES:
                ecs.reclaim(task)
            case Fate.IS_CANCELLED:
                self.world.cancel(self._key)
                self.world.sweep()
                ecs.stop_requested(task)
            case _:
                ecs.exit(task, EXIT_CODES[fate])

    def pass_time(self) -> None:
        self.world.sweep()

    def succeed_late(self, run: Run) -> bool:
        end = FinishedAttempt(self._key, run.run_id, run.token, RunStatus.SUCCESS, False, NO_DETAIL)
        (result,) = self.world.scene.executor.finish([end])
        return result.verdict is Verdict.OK

    @property
    def view(self) -> RunView:
        return self.world.run_of(self._key)


class RunnerContainerStory(ContainerStory):
    """A container with our runner, which ends the run by its claim before ECS tells the end."""

    def work(self, fate: Fate) -> None:
        world, run = self.world, self.view.run
        claim = self._claim(run)
        carry_out(world.scene.claims, claim, fate, lambda: world.cancel(self._key))
        if fate is Fate.DIES:
            world.ecs.reclaim(world.task)
        else:
            world.ecs.exit(world.task, EXIT_CODES.get(fate, 143))

    def succeed_late(self, run: Run) -> bool:
        return succeeds_by_claim(self.world.scene.claims, self._claim(run))

    def _claim(self, run: Run) -> str:
        identity = ClaimIdentity(*self._key, run.run_id, run.attempt, run.token)
        return self.world.scene.tokens.sign(identity)


@contextmanager
def container_story(kind: type[ContainerStory]) -> Iterator[ContainerStory]:
    with containers_world() as world:
        yield kind(world)
