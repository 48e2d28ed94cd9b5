"""Clocks that are set or stand still, and limits that are lowered."""

from contextlib import suppress
from datetime import timedelta

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.run_permits import RunPermits
from tests.simulation.quotas.test_limits_calls import MAX_EXCESS, allowed, load
from tests.support.builders import ManualClock
from tests.support.simulation.instances import (
    MINUTE,
    NOON,
    InstanceRows,
    MemoryQuotaRows,
    no_log,
    quotas,
)

SMALL_LIMITS = TenantLimits(
    calls_per_second=1, burst=1, jobs=5, runs_per_minute=2, concurrent_runs=2
)
HOUR = timedelta(hours=1)


class Instance:
    def __init__(self, rows: InstanceRows, name: str) -> None:
        self.quotas = LeasedQuotas(lambda _: SMALL_LIMITS, rows, lambda _: 0, rows.clock, no_log)
        self.permits = RunPermits(lambda _: SMALL_LIMITS, rows, name, rows.clock, no_log)

    def use_all(self) -> tuple[int, int, int]:
        self.quotas.check_call("acme")
        orders, jobs = (
            self.quotas.take_run_requests("acme", 2).number,
            self.quotas.available_jobs("acme", 5),
        )
        return orders, jobs, self.permits.request("acme", 2).number


class RowsWithoutTime(InstanceRows):
    """Answer without a time, so the clock stays wrong."""

    def correct_clock(self) -> None:
        pass


def accepted_calls(instance: Instance, calls: int) -> int:
    accepted = 0
    for _ in range(calls):
        with suppress(LimitExceeded):
            instance.quotas.check_call("acme")
            accepted += 1
    return accepted


def test_rows_written_by_a_clock_far_ahead_limit_no_instance() -> None:
    clock, rows = ManualClock(NOON), MemoryQuotaRows()
    assert Instance(RowsWithoutTime(rows, clock, HOUR), "ahead").use_all() == (2, 5, 2)
    right = Instance(RowsWithoutTime(rows, clock, timedelta()), "right")
    assert accepted_calls(right, 10) <= 2
    clock.advance(timedelta(seconds=2))
    assert right.use_all() == (2, 5, 2)
    other = Instance(RowsWithoutTime(rows, clock, timedelta()), "other")
    assert (
        other.quotas.take_run_requests("acme", 1).number,
        other.permits.request("acme", 1).number,
    ) == (0, 0)


@pytest.mark.parametrize("seconds", [-3600, -20, 20, 3600])
@pytest.mark.parametrize("instances", [1, 3, 10])
@pytest.mark.parametrize("rate", [2, 5, 90])
def test_calls_with_one_clock_that_is_set_hold_the_limit_and_go_on(
    rate: int, instances: int, seconds: float
) -> None:
    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * instances)
    load(fleet, (2 * rate, 30))
    fleet.instance_rows[0].off = timedelta(seconds=seconds)
    for minute in range(3):
        figures = load(fleet, (2 * rate, MINUTE))
        assert 0.85 * MINUTE * rate <= figures.accepted <= MAX_EXCESS * MINUTE * rate, minute


@pytest.mark.parametrize(("rate", "instances"), [(20, 40), (100, 50), (100, 10)])
def test_calls_of_frozen_instances_keep_the_limit(rate: int, instances: int) -> None:
    """For an hour each instance is rarely called. Then all are called at twice the limit."""
    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * instances)
    load(fleet, (1 / 30, 3_600))
    figures = load(fleet, (2 * rate, MINUTE))
    assert 0.8 * allowed(rate) <= figures.max_in_a_minute <= MAX_EXCESS * MINUTE * rate


@pytest.mark.parametrize("lower", [2, 5, 20])
def test_calls_under_a_lowered_limit_are_held_to_it_at_once(lower: int) -> None:
    """Instances drop leases made under the former limit."""
    limits = [TenantLimits(calls_per_second=100)]
    fleet = quotas(lambda: limits[0], (1,) * 10)
    load(fleet, (5, MINUTE))
    limits[0] = TenantLimits(calls_per_second=lower)
    assert load(fleet, (40, MINUTE)).accepted <= MAX_EXCESS * allowed(lower)
