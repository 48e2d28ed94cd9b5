"""Starts, places, requested runs and jobs of many instances reach their limits and keep them."""

from collections.abc import Sequence
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count

import pytest

from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.ports.tenants.quota_rows import QuotaRow
from punctual.engine.quotas.run_permits import PLACE_LEASE_SECONDS, RunPermits
from tests.support.simulation.instances import (
    FLEETS,
    IN_STEP,
    MINUTE,
    SECONDS_APART,
    EventLog,
    Fleet,
    MovingMinute,
    max_in_a_second,
    permits,
    quotas,
)

CLOCKS = pytest.mark.parametrize("skews", [IN_STEP, SECONDS_APART], ids=["in step", "apart"])
CRASHES = pytest.mark.parametrize("crash_every", [0, 7], ids=["", "crashing"])


def max_allowed(limit: int, skews: Sequence[float]) -> float:
    """Return the limit, with 5 % more for clocks that are corrected to about a second."""
    return limit if skews == IN_STEP else 1.05 * limit


@CLOCKS
@CRASHES
@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("limit", [60, 600, 3_000])
def test_starts_in_any_minute_are_at_most_the_limit(
    limit: int, weights: Sequence[float], crash_every: float, skews: Sequence[float]
) -> None:
    fleet = permits(TenantLimits(runs_per_minute=limit), weights, crash_every, skews)
    minute, starts = MovingMinute(), 0
    for instance in fleet.load(2 * limit / MINUTE / 3, 3 * MINUTE):  # three in a batch
        permitted = instance.request("acme", 3).number
        minute.add(fleet.seconds, permitted)
        starts += permitted
        for _ in range(permitted):
            instance.end_permit("acme", started=True)
    assert minute.max_in_a_minute <= max_allowed(limit, skews)
    assert starts >= (0.8 if crash_every and limit < 600 else 0.9) * 3 * limit


@CLOCKS
@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("limit", [60, 600, 3_000])
def test_requested_runs_in_any_minute_are_at_most_the_limit(
    limit: int, weights: Sequence[float], skews: Sequence[float]
) -> None:
    fleet = quotas(TenantLimits(runs_per_minute=limit), weights, skews=skews)
    minute, total_granted = MovingMinute(), 0
    for instance in fleet.load(2 * limit / MINUTE, 3 * MINUTE):
        granted = instance.take_run_requests("acme", 1).number
        minute.add(fleet.seconds, granted)
        total_granted += granted
    assert minute.max_in_a_minute <= max_allowed(limit, skews)
    assert total_granted >= 0.9 * 3 * limit


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [600, 6_000, 60_000])
def test_requested_runs_below_the_limit_are_granted_with_one_write_a_second(
    limit: int, seed: int
) -> None:
    """After the ramp-up each instance writes at most once a second on average."""
    fleet = quotas(TenantLimits(runs_per_minute=limit), FLEETS["twenty"], seed=seed)
    seconds, ramp = 30, 5
    for instance in fleet.load(0.8 * limit / MINUTE, seconds):
        assert instance.take_run_requests("acme", 1).number == 1
        if fleet.seconds < ramp:
            for rows in fleet.instance_rows:
                rows.written_at.clear()
    for rows in fleet.instance_rows:
        assert len(rows.written_at) <= seconds - ramp
        assert max_in_a_second(rows.written_at) <= 2


@CLOCKS
@pytest.mark.parametrize("crash_every", [0, 20], ids=["", "crashing"])
@pytest.mark.parametrize("weights", [(1,), (1, 1, 1), (1,) * 10], ids=["one", "three", "ten"])
@pytest.mark.parametrize("limit", [5, 50])
def test_places_in_use_are_at_most_the_limit(
    limit: int, weights: Sequence[float], crash_every: float, skews: Sequence[float]
) -> None:
    """Runs of two seconds, at twice the limit. A crash keeps the places of its runs for 30 s."""
    fleet = permits(TenantLimits(concurrent_runs=limit), weights, crash_every, skews)
    ends: list[tuple[float, int, RunPermits]] = []
    ticket, area, peak, last = count(), 0.0, 0, 0.0
    for instance in fleet.load(limit, 2 * MINUTE):
        area += len(ends) * (fleet.seconds - last)
        last = fleet.seconds
        ends = [end for end in ends if end[2] in fleet.instances]  # the others crashed
        while ends and ends[0][0] <= last:
            holder = heappop(ends)[2]
            holder.end_permit("acme", started=True)
            if not any(end[2] is holder for end in ends):
                holder.return_idle_places()
        renew_places(fleet)
        for _ in range(instance.request("acme", 1).number):
            heappush(ends, (last + 2, next(ticket), instance))
        peak = max(peak, len(ends))
    assert peak <= limit
    assert area / (2 * MINUTE) >= (0.4 if crash_every else 0.7) * limit


def renew_places(fleet: Fleet[RunPermits]) -> None:
    for instance in fleet.instances:
        if instance.needs_renewal:
            instance.renew_places()


def test_places_of_a_crashed_instance_are_freed() -> None:
    fleet = permits(TenantLimits(concurrent_runs=2), (1, 1))
    crashed, other = fleet.instances
    assert crashed.request("acme", 5).number == 2
    assert other.request("acme", 1).number == 0
    fleet.clock.advance(timedelta(seconds=PLACE_LEASE_SECONDS - 1))
    assert other.request("acme", 1).number == 0
    fleet.clock.advance(timedelta(seconds=2))
    assert other.request("acme", 1).number == 1


def test_starts_of_a_busy_tenant_need_few_writes() -> None:
    fleet = permits(TenantLimits(runs_per_minute=60_000, concurrent_runs=1_000), FLEETS["three"])
    starts = 0
    for instance in fleet.load(50, MINUTE):
        permitted = instance.request("acme", 10).number
        starts += permitted
        for _ in range(permitted):
            instance.end_permit("acme", started=True)
        instance.return_idle_places()
    assert starts == 30_000
    assert fleet.rows.counts["writes"] < 0.02 * starts


@CLOCKS
@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
def test_jobs_reach_their_quota_and_exceed_it_by_at_most_a_twentieth(
    weights: Sequence[float], skews: Sequence[float]
) -> None:
    """The job counters are two seconds late."""
    created_at: list[float] = []
    fleet = quotas(
        TenantLimits(jobs=1_000),
        weights,
        jobs=lambda: sum(at <= fleet.seconds - 2 for at in created_at),
        skews=skews,
    )
    for instance in fleet.load(40, 2 * MINUTE):
        created_at += [fleet.seconds] * instance.available_jobs("acme", 1)
    assert 950 <= len(created_at) <= 1_050


def test_requested_runs_may_be_granted_all_or_none() -> None:
    fleet = quotas(TenantLimits(runs_per_minute=10), (1, 1))
    first, second = fleet.instances
    assert first.take_run_requests("acme", 4, True).number == 4
    refused = second.take_run_requests("acme", 10, True)
    assert refused.number == 0
    assert MINUTE < refused.retry_after_seconds <= MINUTE + 10
    assert second.take_run_requests("acme", 11, True).retry_after_seconds == float("inf")
    assert (
        second.take_run_requests("acme", 9).number == 6 - first.take_run_requests("acme", 1).number
    )
    fleet.clock.advance(timedelta(seconds=refused.retry_after_seconds))
    assert second.take_run_requests("acme", 4, True).number == 4


def test_requested_runs_and_jobs_during_an_outage_stay_within_bounds() -> None:
    log = EventLog()
    fleet = quotas(TenantLimits(runs_per_minute=10, jobs=100), (1,), log=log)
    (instance,) = fleet.instances
    fleet.rows.away = True
    assert [instance.take_run_requests("acme", 6).number for _ in range(2)] == [6, 4]
    assert [instance.available_jobs("acme", 4) for _ in range(2)] == [4, 1]
    fleet.clock.advance(timedelta(seconds=61))
    assert instance.available_jobs("acme", 4) == 4
    assert set(log.events) == {"limits_unavailable"}


def test_quotas_without_limits_read_no_rows() -> None:
    fleet = quotas(TenantLimits(), (1,))
    (instance,) = fleet.instances
    instance.check_call("acme")
    assert instance.available_jobs("acme", 500) == 500
    assert instance.take_run_requests("acme", 1_000, True).number == 1_000
    assert permits(TenantLimits(), (1,)).instances[0].request("acme", 10).number == 10
    assert fleet.rows.counts == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"taken": "x", "bucket": 1}'])
def test_unreadable_quota_row_is_replaced(text: str) -> None:
    limits = TenantLimits(calls_per_second=1, burst=1, runs_per_minute=1)
    fleet = quotas(limits, (1,))
    (instance,) = fleet.instances
    for row_name in ("calls", "orders"):
        fleet.rows.rows["acme", row_name] = QuotaRow(text, 7)
    instance.check_call("acme")
    assert fleet.rows.rows["acme", "calls"].version == 8
    assert [instance.take_run_requests("acme", 1).number for _ in range(2)] == [1, 0]
