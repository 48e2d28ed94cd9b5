"""`lane_percent`: one tenant's runs hold at most a part of each lane's executors, and reach it."""

from datetime import timedelta
from heapq import heappop, heappush
from itertools import count

import pytest

from punctual.domain.tenants.limits import Limits
from punctual.engine.quotas.run_permits import PLACES, RunPermits
from punctual.node.clock import ManualClock
from tests.simulation.instances import Fleet, MemoryShares
from tests.simulation.test_limits import Told

EXECUTORS = {"quick-high": 20, "quick-normal": 20, "long": 8}
SECOND = timedelta(seconds=1)
HALF = Limits(lane_percent=50)
names = count(1)


def executors(number: int, limits: Limits = HALF) -> Fleet[RunPermits]:
    def make(shares: MemoryShares, clock: ManualClock) -> RunPermits:
        name = f"{next(names):012x}"
        steady = clock.monotonic
        return RunPermits(lambda _: limits, shares, name, clock, steady, Told(), EXECUTORS)

    return Fleet(make, (1,) * number, seed=7)


class Lane:
    """What runs in each instance until when; an instance works at one batch at a time."""

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
        if any(one[2] is instance for one in self._ends):
            return
        number = instance.ask(self._tenant, runs, queue).number
        self.refused += number < runs
        if number:
            entry = (self.now + seconds, next(self._ticket), instance, number)
            heappush(self._ends, entry)

    def _end(self) -> None:
        while self._ends and self._ends[0][0] <= self.now:
            _, _, owner, number = heappop(self._ends)
            for _ in range(number):
                owner.end(self._tenant, started=True)
            owner.rest()
        for one in self._fleet.instances:
            if one.aging:
                one.tend()


@pytest.mark.parametrize("runs", [1, 10])
def test_slow_runs_of_one_tenant_take_half_of_a_lane_and_no_more(runs: int) -> None:
    """Twenty executors are offered batches all the time, each of which takes a minute."""
    fleet = executors(20)
    lane, peak, area = Lane(fleet), 0, 0
    for instance in fleet.load(20, 300):
        lane.offer(instance, runs, 60, "quick-normal")
        peak = max(peak, lane.busy)
        area += lane.busy
    assert peak == 10
    assert area / (20 * 300) >= 8  # and nearly all the time


def test_each_queue_of_a_lane_has_a_half_of_its_own() -> None:
    fleet = executors(40)
    high, normal = Lane(fleet), Lane(fleet)
    for number, instance in enumerate(fleet.load(40, 60)):
        first = fleet.instances.index(instance) < 20
        (high if first else normal).offer(
            instance, 1, 600, "quick-high" if first else "quick-normal"
        )
        assert number >= 0
    assert (high.busy, normal.busy) == (10, 10)


def test_another_tenant_finds_the_other_half() -> None:
    fleet = executors(20)
    slow, other = Lane(fleet), Lane(fleet, "other")
    for instance in fleet.load(20, 60):
        slow.offer(instance, 1, 600, "quick-normal")
    free = [one for one in fleet.instances if one.ask("acme", 1, "quick-normal").number == 0]
    assert len(free) == 10
    for instance in free:
        other.offer(instance, 10, 600, "quick-normal")
    assert (other.busy, other.refused) == (10, 0)


def test_executors_that_rest_keep_none_from_working() -> None:
    """Runs of a moment reach any of twenty executors by turns: only few are busy at a time."""
    fleet = executors(20)
    lane = Lane(fleet)
    for instance in fleet.load(30, 120):
        lane.offer(instance, 1, 0.1, "quick-normal")
    assert lane.refused <= 0.01 * 30 * 120


def test_the_executor_of_a_crash_counts_for_half_a_minute() -> None:
    fleet = executors(3, Limits(lane_percent=25))
    crashed, one, other = fleet.instances
    assert [each.ask("acme", 1, "long").number for each in (crashed, one, other)] == [1, 1, 0]
    for _ in range(PLACES - 1):
        fleet.clock.advance(SECOND)
        one.tend()
    assert other.ask("acme", 1, "long").number == 0
    fleet.clock.advance(2 * SECOND)
    one.tend()
    assert other.ask("acme", 1, "long").number == 1


def test_an_instance_that_turns_to_another_queue_leaves_the_first() -> None:
    fleet = executors(2, Limits(lane_percent=10))
    one, other = fleet.instances
    assert one.ask("acme", 1, "long").number == 1
    assert other.ask("acme", 1, "long").number == 0
    one.end("acme", started=True)
    assert one.ask("acme", 1, "quick-high").number == 1
    fleet.clock.advance(2 * SECOND)
    assert other.ask("acme", 1, "long").number == 1


def test_with_a_limit_of_runs_both_hold() -> None:
    fleet = executors(20, Limits(lane_percent=50, concurrent_runs=14))
    asked = [one.ask("acme", 3, "quick-normal").number for one in fleet.instances]
    assert 12 <= sum(asked) <= 14
    assert sum(number > 0 for number in asked) <= 10


def test_without_the_limit_nothing_is_written() -> None:
    fleet = executors(3, Limits(jobs=5))
    assert [one.ask("acme", 7, "long").number for one in fleet.instances] == [7, 7, 7]
    assert fleet.shares.did.total() == 0
