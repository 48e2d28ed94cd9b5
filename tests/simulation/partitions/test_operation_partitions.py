"""Operations over partitions: their processes miss a store, the queue, or answers for a while.

After the partition heals, each job was acted on once.
"""

import random

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.operations.operation import OperationAction, OperationStatus
from punctual.engine.ports.rows import JobKey
from tests.support.aws.adapters import memory
from tests.support.builders import NOON, ManualClock
from tests.support.operations.world import OperationsWorld
from tests.support.simulation.port_faults import Partition, Plan
from tests.support.simulation.seeds import DAY, replay_hint, seeds

SEEDS = seeds(fixed=80, fresh=40, day=DAY)
BLOCK = 40
BLOCKS = [SEEDS[first : first + BLOCK] for first in range(0, len(SEEDS), BLOCK)]
JOBS = 5
PORTS = ("operations", "job_states", "operation_queue", "job_names", "audit_log", "timers", "")
STATUSES = {OperationAction.PAUSE: JobStatus.PAUSED, OperationAction.CANCEL: JobStatus.CANCELLED}
MOST_CALLS = 6  # that are cut off; an item is given up after more failures in a row


def _partitions(chance: random.Random) -> tuple[Partition, ...]:
    return tuple(
        Partition(
            chance.choice(("operations", "operations", "api")),
            chance.choice(PORTS),
            chance.randint(1, 12),
            chance.randint(1, MOST_CALLS),
            chance.random() < 0.5,
        )
        for _ in range(chance.randint(1, 2))
    )


def _acts(world: OperationsWorld, key: JobKey, action: OperationAction) -> int:
    if action is OperationAction.RUN_NOW:
        return len(world.requested_runs(key))
    return int(world.state(key).status is STATUSES[action])


def _play(seed: int) -> int:
    """Return how many calls were cut off."""
    chance = random.Random(f"operation partitions {seed}")
    action = chance.choice((*STATUSES, OperationAction.RUN_NOW))
    with memory(None, ManualClock(NOON)) as ports:  # type: ignore[arg-type]
        world = OperationsWorld(ports.ports, ports.clock)
        keys = [world.submit(f"job {number}") for number in range(JOBS)]
        plan = Plan(partitions=_partitions(chance))
        try:
            operation = world.begin(action, plan=plan, key="once")
        except Unavailable:
            operation = world.begin(action, key="once")
        world.run(plan)
        ended = world.load(operation)
        assert (ended.status, ended.matched) == (OperationStatus.DONE, JOBS)
        assert ended.done + ended.failed == JOBS
        acts = [_acts(world, key, action) for key in keys]
        assert max(acts) <= 1, f"an operation acted twice: {acts}"
        assert sum(acts) >= ended.done, f"{ended.done} are done, but the jobs say {acts}"
    return plan.cut_calls


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_operation_acts_once_over_partitions(block: list[int]) -> None:
    cut_calls = 0
    for seed in block:
        try:
            cut_calls += _play(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}; {replay_hint(DAY)}: {error}") from error
    assert cut_calls > len(block) / 2
