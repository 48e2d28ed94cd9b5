"""Clocks that are set, by seconds or by hours, or stand still, while calls are limited by them."""

from datetime import timedelta

import pytest

from punctual.domain.tenants.limits import Limits
from punctual.engine.quotas.leased_calls import LeasedCalls
from punctual.node.clock import ManualClock
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


class Standing:
    """A steady clock that goes on only while its environment is called, and a second longer."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._seen = clock.monotonic()
        self._at = 0.0

    def __call__(self) -> float:
        now = self._clock.monotonic()
        self._at += min(1.0, now - self._seen)
        self._seen = now
        return self._at


@pytest.mark.parametrize(("rate", "instances"), [(20, 40), (100, 50), (100, 10)])
def test_what_frozen_environments_have_set_aside_is_not_theirs_for_ever(
    rate: int, instances: int
) -> None:
    """Each calls now and then for an hour; then all call at once, at twice the limit."""
    limits = Limits(calls_per_second=rate)

    def make(shares: MemoryShares, clock: ManualClock) -> LeasedCalls:
        told = ToldTime(shares, clock, timedelta())
        return LeasedCalls(lambda _: limits, told, told.clock, Standing(clock), Told())

    fleet = Fleet(make, (1,) * instances, seed=7)
    load(fleet, (1 / 30, 3_600))
    found = load(fleet, (2 * rate, 60))
    assert 0.8 * 61 * rate <= found.most <= 1.05 * 61 * rate


@pytest.mark.parametrize("lower", [2, 5, 20])
def test_a_limit_that_is_lowered_is_held_at_once(lower: int) -> None:
    """What was set aside, and promised for some seconds, under the former one aside."""
    limits = [Limits(calls_per_second=100)]

    def make(shares: MemoryShares, clock: ManualClock) -> LeasedCalls:
        told = ToldTime(shares, clock, timedelta())
        return LeasedCalls(lambda _: limits[0], told, told.clock, clock.monotonic, Told())

    fleet = Fleet(make, (1,) * 10, seed=7)
    load(fleet, (5, 60))
    limits[0] = Limits(calls_per_second=lower)
    assert load(fleet, (40, 60)).accepted <= 61 * lower + 8
