"""Many jobs of one moment: when each of their messages is sent, and so how late its run starts."""

from datetime import timedelta
from itertools import cycle

import pytest

from punctual.engine.dispatch.on_demand.held_messages import MAX_EARLY_SEND
from punctual.engine.dispatch.on_demand.wakeup_times import CORE_THROUGHPUT
from tests.simulation.lambdas.test_bursts import DUE, burst
from tests.support.simulation.world import Setup

DELIVERIES = (0.02, 0.05, 0.3, 0.1, 0.03, 0.2, 0.08)
SMALL = 0.05  # seconds
FIRST = 1.2  # seconds until a function runs that nobody has used yet


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
def test_what_is_due_at_once_starts_within_two_seconds(
    number: int, memory: int, cold: bool, tick: float
) -> None:
    """One poller, which works as fast as its memory lets it, and executors for all."""
    first = FIRST if cold else 0
    pace = CORE_THROUGHPUT.scaled(memory / 1769)
    late = [first + one for one in DELIVERIES]
    setup = Setup(shards=1, pace=pace, works=True, late=late, tick_seconds=55 + tick)
    world, sent = burst(number, setup=setup)
    world.processes[:] = [one for one in world.processes if one.name != "poller2"]
    world.run(DUE + timedelta(seconds=20))
    assert len({message.job_id for _, message in sent}) == len(sent) == number
    assert min(at for at, _ in sent) >= DUE - MAX_EARLY_SEND, (
        "an executor waits so long, and starts then"
    )
    arrived = [
        at + timedelta(seconds=first + one)
        for (at, _), one in zip(sent, cycle(DELIVERIES), strict=False)
    ]
    seconds = sorted(max(0.0, (at - DUE).total_seconds()) for at in arrived)
    at_99 = seconds[min(number - 1, int(number * 0.99))]
    assert at_99 <= 2
    if not cold and number <= 200:
        assert at_99 <= max(DELIVERIES) + SMALL, "by what the queue took, and nothing else"
