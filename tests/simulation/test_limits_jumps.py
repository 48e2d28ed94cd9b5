"""A machine's clock that is set, by seconds or by hours, while calls are limited by it."""

from datetime import timedelta

import pytest

from punctual.domain.limits import Limits
from punctual.engine.leased_calls import LeasedCalls
from punctual.local.clock import ManualClock
from tests.simulation.instances import Fleet, MemoryShares, ToldTime
from tests.simulation.test_limits_calls import Told, load


@pytest.mark.parametrize("seconds", [-3600, -100, -20, 20, 100, 3600])
@pytest.mark.parametrize("instances", [1, 3, 10])
@pytest.mark.parametrize("rate", [2, 5, 90])
def test_one_clock_that_is_set_stops_nobody_and_lets_no_more_through(
    rate: int, instances: int, seconds: float
) -> None:
    limits, known = Limits(calls_per_second=rate), list[ToldTime]()

    def make(shares: MemoryShares, clock: ManualClock) -> LeasedCalls:
        known.append(ToldTime(shares, clock, timedelta()))
        return LeasedCalls(lambda _: limits, known[-1], known[-1].clock, clock.monotonic, Told())

    fleet = Fleet(make, (1,) * instances, seed=7)
    load(fleet, (2 * rate, 30))
    known[0].off = timedelta(seconds=seconds)
    for minute in range(3):
        found = load(fleet, (2 * rate, 60))
        least = 0.9 if rate == 5 else 0.95
        assert least * 60 * rate <= found.accepted <= 1.03 * 61 * rate, minute
