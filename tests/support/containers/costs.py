"""Counts what a run of a container costs on AWS, beside Fargate itself.

A job runs each five minutes. The stand-in for ECS starts its task, and sends the events of ECS.
"""

from collections.abc import Mapping
from functools import cache

from bench.cost.accounts import UnitSums, priced_lines, sum_dollars
from bench.cost.prices import prices
from tests.support.containers.ecs import Ecs
from tests.support.containers.scenario import CONTAINER, stand_in_for_ecs, sweep
from tests.support.deployed.scenes import Counted, spent_in
from tests.support.deployed.world import SECOND, World, a_world
from tests.support.scripts.costs import LINE, RunCounter

PULL_SECONDS, START_SECONDS, CONTAINER_SECONDS, STOP_SECONDS = 10, 30, 60, 10
LOG = LINE * 128  # 2 KB
COUNTED_SWEEPS = 10
CONTAINER_RUN, IDLE_SWEEP = "container", "sweep"


class _Cluster:
    """Carries out the newest task, with an event for each of its states and the sweep beside it."""

    def __init__(self, world: World, ecs: Ecs) -> None:
        self._world = world
        self._ecs = ecs

    def play(self) -> None:
        world, ecs = self._world, self._ecs
        task = ecs.newest_task()
        self._deliver()  # PROVISIONING
        world.run(PULL_SECONDS * SECOND)
        ecs.pend(task)
        self._deliver()
        world.run((START_SECONDS - PULL_SECONDS) * SECOND)
        ecs.run(task)
        self._deliver()
        world.run(CONTAINER_SECONDS / 2 * SECOND)
        sweep(world)  # one of each minute
        world.run(CONTAINER_SECONDS / 2 * SECOND)
        ecs.print(task, *LOG.splitlines())
        ecs.deprovision(task, 0)
        self._deliver()
        world.run(STOP_SECONDS * SECOND)
        ecs.exit(task, 0)
        self._deliver()

    def _deliver(self) -> None:
        for event in self._ecs.events:
            self._world.invoke(self._world.name("containers"), event)
        self._ecs.events.clear()


@cache
def container_costs() -> Mapping[str, Counted]:
    """Return the units of a run of a container, and of a sweep while there is none."""
    with a_world(with_containers=True) as world:
        ecs = stand_in_for_ecs(world)
        counter = RunCounter(world)
        sweep(world)
        idle_sweeps = _spent_by_sweeps(world)
        run = counter.count("60 s", _Cluster(world, ecs).play, task=CONTAINER, timeout_seconds=600)
        assert len(ecs.definitions) == 1
    lines = priced_lines(idle_sweeps, COUNTED_SWEEPS, prices())
    assert sum_dollars(lines) > 0
    return {CONTAINER_RUN: run, IDLE_SWEEP: Counted("a sweep", lines, {})}


def _spent_by_sweeps(world: World) -> UnitSums:
    world.ticks = False
    began = len(world.meter.calls)
    for _ in range(COUNTED_SWEEPS):
        sweep(world)
    units = spent_in(world, world.meter.calls[began:])
    world.ticks = True
    return units
