"""`lane_percent`: a tenant's runs reach their part of each lane's executors, and no more."""

from datetime import timedelta
from heapq import heappop, heappush
from itertools import count

import pytest

from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.quotas.run_permits import PLACE_LEASE_SECONDS, RunPermits
from tests.support.simulation.instances import Fleet, permits

EXECUTORS = {"quick-high": 20, "quick-normal": 20, "long": 8}
SECOND = timedelta(seconds=1)
HALF = TenantLimits(lane_percent=50)


def executors(number: int, limits: TenantLimits = HALF) -> Fleet[RunPermits]:
    return permits(limits, (1,) * number, executors=EXECUTORS)


class Lane:
    """The running batches with their ends. An instance runs one batch at a time."""

    def __init__(self, fleet: Fleet[RunPermits], tenant: str = "acme") -> None:
        self._fleet = fleet
        self._tenant = tenant
        self._start = fleet.clock()
        self._ends: list[tuple[float, int, RunPermits, int]] = []
        self._ticket = count()
        self.refused = 0

    @property
    def now(self) -> float:
        return (self._fleet.clock() - self._start).total_seconds()

    @property
    def busy(self) -> int:
        return len(self._ends)

    def offer(self, instance: RunPermits, runs: int, seconds: float, queue: str) -> None:
        self._end()
        if any(end[2] is instance for end in self._ends):
            return
        number = instance.request(self._tenant, runs, queue).number
        self.refused += number < runs
        if number:
            entry = (self.now + seconds, next(self._ticket), instance, number)
            heappush(self._ends, entry)

    def _end(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            _, _, owner, number = heappop(self._ends)
            for _ in range(number):
                owner.end_permit(self._tenant, started=True)
            owner.return_idle_places()
        for instance in self._fleet.instances:
            if instance.needs_renewal:
                instance.renew_places()


@pytest.mark.parametrize("runs", [1, 10])
def test_lane_percent_lets_slow_runs_of_a_tenant_take_half_of_a_lane(runs: int) -> None:
    """Offer batches of a minute each to twenty executors all the time."""
    fleet = executors(20)
    lane, peak, area = Lane(fleet), 0, 0
    for instance in fleet.load(20, 300):
        lane.offer(instance, runs, 60, "quick-normal")
        peak = max(peak, lane.busy)
        area += lane.busy
    assert peak == 10
    assert area / (20 * 300) >= 8  # of the whole time


def test_lane_percent_counts_each_queue_of_a_lane_alone() -> None:
    fleet = executors(40)
    high, normal = Lane(fleet), Lane(fleet)
    for number, instance in enumerate(fleet.load(40, 60)):
        first = fleet.instances.index(instance) < 20
        (high if first else normal).offer(
            instance, 1, 600, "quick-high" if first else "quick-normal"
        )
        assert number >= 0
    assert (high.busy, normal.busy) == (10, 10)


def test_lane_percent_leaves_the_other_half_to_another_tenant() -> None:
    fleet = executors(20)
    slow, other = Lane(fleet), Lane(fleet, "other")
    for instance in fleet.load(20, 60):
        slow.offer(instance, 1, 600, "quick-normal")
    idle = [
        instance
        for instance in fleet.instances
        if instance.request("acme", 1, "quick-normal").number == 0
    ]
    assert len(idle) == 10
    for instance in idle:
        other.offer(instance, 10, 600, "quick-normal")
    assert (other.busy, other.refused) == (10, 0)


def test_lane_percent_does_not_count_idle_executors() -> None:
    """Short runs reach twenty executors in turn, so only few are busy at a time."""
    fleet = executors(20)
    lane = Lane(fleet)
    for instance in fleet.load(30, 120):
        lane.offer(instance, 1, 0.1, "quick-normal")
    assert lane.refused <= 0.01 * 30 * 120


def test_lane_percent_counts_a_crashed_executor_for_half_a_minute() -> None:
    fleet = executors(3, TenantLimits(lane_percent=25))
    _, alive, other = fleet.instances
    assert [each.request("acme", 1, "long").number for each in fleet.instances] == [1, 1, 0]
    for _ in range(PLACE_LEASE_SECONDS - 1):
        fleet.clock.advance(SECOND)
        alive.renew_places()
    assert other.request("acme", 1, "long").number == 0
    fleet.clock.advance(2 * SECOND)
    alive.renew_places()
    assert other.request("acme", 1, "long").number == 1


def test_lane_percent_counts_an_instance_in_its_latest_queue_only() -> None:
    fleet = executors(2, TenantLimits(lane_percent=10))
    first, other = fleet.instances
    assert first.request("acme", 1, "long").number == 1
    assert other.request("acme", 1, "long").number == 0
    first.end_permit("acme", started=True)
    assert first.request("acme", 1, "quick-high").number == 1
    fleet.clock.advance(2 * SECOND)
    assert other.request("acme", 1, "long").number == 1


def test_lane_percent_and_concurrent_runs_both_hold() -> None:
    fleet = executors(20, TenantLimits(lane_percent=50, concurrent_runs=14))
    permitted = [each.request("acme", 3, "quick-normal").number for each in fleet.instances]
    assert 12 <= sum(permitted) <= 14
    assert sum(number > 0 for number in permitted) <= 10


def test_permits_without_limits_write_nothing() -> None:
    fleet = executors(3, TenantLimits(jobs=5))
    assert [each.request("acme", 7, "long").number for each in fleet.instances] == [7, 7, 7]
    assert fleet.rows.counts.total() == 0
