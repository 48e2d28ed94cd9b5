"""Limits that instances share: never more than a twentieth over, and not needlessly under."""

from collections.abc import Sequence
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import Limits
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.leased_row import Row
from punctual.engine.quotas.run_permits import PLACES, RunPermits
from punctual.node.clock import ManualClock
from tests.simulation.instances import Fleet, MemoryShares

MINUTE = 60
UNEVEN = (50, 10, 5, 3, 2, 1, 1, 1, 1, 1)
FLEETS = {"one": (1,), "three": (1, 1, 1), "ten": (1,) * 10, "uneven": UNEVEN}
names = count(1)


class Told:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, event: str, /, **_fields: object) -> None:
        self.lines.append(event)


def running(limits: Limits, weights: Sequence[float], crashes: float = 0) -> Fleet[RunPermits]:
    def make(shares: MemoryShares, clock: ManualClock) -> RunPermits:
        name = f"instance{next(names):08d}"
        return RunPermits(lambda _: limits, shares, name, clock, clock.monotonic, Told())

    return Fleet(make, weights, seed=7, crash_every=crashes)


@pytest.mark.parametrize("crashes", [0, 7], ids=["", "crashing"])
@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("most", [60, 600, 3_000])
def test_no_minute_has_more_starts_than_may_be(
    most: int, weights: Sequence[float], crashes: float
) -> None:
    fleet = running(Limits(runs_per_minute=most), weights, crashes)
    start, times = fleet.clock(), list[float]()
    for instance in fleet.load(2 * most / MINUTE / 3, 3 * MINUTE):  # three in a batch
        permitted = instance.ask("acme", 3)
        times += [(fleet.clock() - start).total_seconds()] * permitted.number
        for _ in range(permitted.number):
            instance.end("acme", started=True)
    oldest = worst = 0
    for number, at in enumerate(times):
        while times[oldest] <= at - MINUTE:
            oldest += 1
        worst = max(worst, number - oldest + 1)
    assert worst <= most
    least = 0.88 if crashes and most < 600 else 0.94
    assert len(times) >= least * 3 * most


@pytest.mark.parametrize("crashes", [0, 20], ids=["", "crashing"])
@pytest.mark.parametrize("weights", [(1,), (1, 1, 1), (1,) * 10], ids=["one", "three", "ten"])
@pytest.mark.parametrize("most", [5, 50])
def test_no_moment_has_more_running_than_may_be(
    most: int, weights: Sequence[float], crashes: float
) -> None:
    """Runs of two seconds, twice as many as fit; a crash takes its runs' places along for 30 s."""
    fleet = running(Limits(concurrent_runs=most), weights, crashes)
    start = fleet.clock()
    ends: list[tuple[float, int, RunPermits]] = []
    ticket, area, peak, last = count(), 0.0, 0, 0.0
    for instance in fleet.load(most, 2 * MINUTE):
        now = (fleet.clock() - start).total_seconds()
        area += len(ends) * (now - last)
        last = now
        ends = [one for one in ends if one[2] in fleet.instances]  # the others crashed
        while ends and ends[0][0] <= now:
            owner = heappop(ends)[2]
            owner.end("acme", started=True)
            if not any(one[2] is owner for one in ends):
                owner.rest()
        for one in fleet.instances:
            if one.aging:
                one.tend()
        for _ in range(instance.ask("acme", 1).number):
            heappush(ends, (now + 2, next(ticket), instance))
        peak = max(peak, len(ends))
    assert peak <= most
    assert area / (2 * MINUTE) >= (0.4 if crashes else 0.7) * most


def test_places_of_a_crash_come_back() -> None:
    fleet = running(Limits(concurrent_runs=2), (1, 1))
    crashed, other = fleet.instances
    assert crashed.ask("acme", 5).number == 2
    assert other.ask("acme", 1).number == 0
    fleet.clock.advance(timedelta(seconds=PLACES - 1))
    assert other.ask("acme", 1).number == 0
    fleet.clock.advance(timedelta(seconds=2))
    assert other.ask("acme", 1).number == 1


def test_a_busy_start_costs_no_write() -> None:
    fleet = running(Limits(runs_per_minute=60_000, concurrent_runs=1_000), FLEETS["three"])
    starts = 0
    for instance in fleet.load(50, MINUTE):
        got = instance.ask("acme", 10).number
        starts += got
        for _ in range(got):
            instance.end("acme", started=True)
        instance.rest()
    assert starts == 30_000
    assert fleet.shares.did["writes"] < 0.02 * starts


def quotas(
    limits: Limits, counted: dict[str, int], weights: Sequence[float]
) -> Fleet[LeasedQuotas]:
    def make(shares: MemoryShares, clock: ManualClock) -> LeasedQuotas:
        return LeasedQuotas(
            lambda _: limits, shares, lambda t: counted[t], clock, clock.monotonic, Told()
        )

    return Fleet(make, weights, seed=7)


@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
def test_jobs_reach_their_quota_and_go_at_most_a_twentieth_beyond(weights: Sequence[float]) -> None:
    """The stream's reader counts two seconds later."""
    counted = {"acme": 0}
    fleet = quotas(Limits(jobs=1_000), counted, weights)
    start, made = fleet.clock(), list[float]()
    for instance in fleet.load(40, 2 * MINUTE):
        now = (fleet.clock() - start).total_seconds()
        counted["acme"] = sum(at <= now - 2 for at in made)
        made += [now] * instance.jobs("acme", 1)
    assert 950 <= len(made) <= 1_050


def test_orders_are_whole_or_none_where_they_must_be() -> None:
    fleet = quotas(Limits(runs_per_minute=10), {"acme": 0}, (1, 1))
    one, other = fleet.instances
    assert one.orders("acme", 4, True).number == 4
    refused = other.orders("acme", 10, True)
    assert refused.number == 0
    assert MINUTE < refused.again_after <= MINUTE + 10
    assert other.orders("acme", 11, True).again_after == float("inf")
    assert other.orders("acme", 9).number == 6 - one.orders("acme", 1).number
    fleet.clock.advance(timedelta(seconds=refused.again_after))
    assert other.orders("acme", 4, True).number == 4


def test_when_the_table_is_away_orders_and_jobs_go_on_within_bounds() -> None:
    fleet = quotas(Limits(runs_per_minute=10, jobs=100), {"acme": 0}, (1,))
    (one,) = fleet.instances
    fleet.shares.away = True
    assert [one.orders("acme", 6).number for _ in range(2)] == [6, 4]
    assert [one.jobs("acme", 4) for _ in range(2)] == [4, 1]
    fleet.clock.advance(timedelta(seconds=61))
    assert one.jobs("acme", 4) == 4


def test_who_is_not_limited_asks_for_nothing() -> None:
    fleet = quotas(Limits(), {}, (1,))
    (one,) = fleet.instances
    one.call("acme")
    assert (one.jobs("acme", 500), one.orders("acme", 1_000, True).number) == (500, 1_000)
    assert running(Limits(), (1,)).instances[0].ask("acme", 10).number == 10
    assert fleet.shares.did == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"taken": "x"}'])
def test_a_row_that_nobody_can_read_is_begun_anew(text: str) -> None:
    fleet = quotas(Limits(calls_per_second=1, burst=1, runs_per_minute=1), {}, (1,))
    (one,) = fleet.instances
    for what in ("calls", "orders"):
        fleet.shares.rows["acme", what] = Row(text, 7)
    one.call("acme")
    with pytest.raises(LimitExceeded):
        one.call("acme")
    assert [one.orders("acme", 1).number for _ in range(2)] == [1, 0]
    assert fleet.shares.rows["acme", "calls"].version == 8
