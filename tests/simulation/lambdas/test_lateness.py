"""Many jobs due at one time: when their messages are sent, and how late their runs start."""

from datetime import timedelta
from itertools import cycle

import pytest

from punctual.engine.dispatch.on_demand.held_messages import MAX_EARLY_SEND
from punctual.engine.dispatch.on_demand.wakeup_times import CORE_THROUGHPUT
from tests.simulation.lambdas.test_bursts import DUE, burst
from tests.support.simulation.world import Setup

DELIVERIES = (0.02, 0.05, 0.3, 0.1, 0.03, 0.2, 0.08)
TOLERANCE_SECONDS = 0.05
COLD_START_SECONDS = 1.2  # seconds of a cold start


@pytest.mark.parametrize("tick", [0.31, 0.87])
@pytest.mark.parametrize(
    ("number", "memory", "cold"),
    [
        (1, 256, False),
        (1, 256, True),
        (10, 256, False),
        (10, 256, True),
        (200, 256, False),
        (200, 256, True),
        (5_000, 512, False),
    ],
)
def test_runs_due_at_one_time_start_within_two_seconds(
    number: int, memory: int, cold: bool, tick: float
) -> None:
    """One poller works as fast as its memory allows, and each run has an executor."""
    start_delay = COLD_START_SECONDS if cold else 0
    throughput = CORE_THROUGHPUT.scaled(memory / 1769)
    delays = [start_delay + delay for delay in DELIVERIES]
    setup = Setup(shards=1, pace=throughput, works=True, late=delays, tick_seconds=55 + tick)
    world, sent = burst(number, setup=setup)
    world.processes[:] = [delay for delay in world.processes if delay.name != "poller2"]
    world.run(DUE + timedelta(seconds=20))
    assert len({message.job_id for _, message in sent}) == len(sent) == number
    assert min(at for at, _ in sent) >= DUE - MAX_EARLY_SEND, "an executor waits at most so long"
    arrived = [
        at + timedelta(seconds=start_delay + delay)
        for (at, _), delay in zip(sent, cycle(DELIVERIES), strict=False)
    ]
    seconds = sorted(max(0.0, (at - DUE).total_seconds()) for at in arrived)
    at_99 = seconds[min(number - 1, int(number * 0.99))]
    assert at_99 <= 2
    if not cold and number <= 200:
        assert at_99 <= max(DELIVERIES) + TOLERANCE_SECONDS, "only the queue delays the runs"
