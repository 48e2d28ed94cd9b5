"""Start times of runs with delays of deliveries, calls and cold starts."""

from collections.abc import Sequence
from datetime import datetime

import pytest

from tests.support.builders import NOON
from tests.support.deployed.latency import Latency
from tests.support.deployed.scenes import open_api, submit_job
from tests.support.deployed.world import MINUTE, SECOND, a_world

DELIVERIES = (0.02, 0.3, 0.05, 0.1, 0.2, 0.03, 0.25)
FIRST = {"poller": 1.2, "executor-quick": 1.2}
SMALL = 0.05  # seconds that a batched claim may add
MOMENT = NOON + 10 * MINUTE


def lateness(at: datetime) -> float:
    """Return the seconds after the nearest full minute. Early times are negative."""
    return (at.second + at.microsecond / 1e6 + 30) % 60 - 30


def at_99(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


@pytest.mark.parametrize(
    ("jobs", "tick"),
    [(1, 23), (1, 7.37), (1, 48.81), (10, 23.5), (10, 59.99)],
)
def test_recurring_runs_start_at_their_second(jobs: int, tick: float) -> None:
    """The first runs include cold starts. Later ones only wait for delivery and batch."""
    minutes = 5
    with a_world(tick_second=tick) as world:
        world.latency = Latency(DELIVERIES, ("poller", "planner"), FIRST)
        started: list[datetime] = []
        world.work = lambda _: started.append(world.clock())
        api = open_api(world)
        world.run(MINUTE / 2)
        for _ in range(jobs):
            submit_job(api, payload={"n": 1}, schedule_type="CRON", cron_expression="* * * * *")
        world.run(minutes * MINUTE)
        assert world.failures == []
    assert len(started) == jobs * minutes
    late = [lateness(at) for at in sorted(started)]
    assert min(late) >= 0, "nothing starts early"
    assert at_99(late[:jobs]) <= 2, "the first runs, with cold starts"
    assert at_99(late[jobs:]) <= max(DELIVERIES) + SMALL
    assert at_99(late) <= 2


@pytest.mark.parametrize("fraction", [0, 0.13, 0.5, 0.77])
@pytest.mark.parametrize("slowest", [0.02, 0.3])
def test_first_run_waits_for_at_most_two_cold_starts(fraction: float, slowest: float) -> None:
    """The planner wakes a cold poller, at any fraction of a second."""
    with a_world(tick_second=23 + fraction) as world:
        world.latency = Latency((slowest,), ("poller", "planner"), FIRST)
        started: list[datetime] = []
        world.work = lambda _: started.append(world.clock())
        submit_job(
            open_api(world),
            payload={"n": 1},
            schedule_type="FUTURE",
            schedule_time=MOMENT.isoformat(),
        )
        world.run(MOMENT - NOON + 30 * SECOND)
        assert world.failures == []
    (late,) = [(at - MOMENT).total_seconds() for at in started]
    assert 0 <= late <= 2
