"""Quotas of instances whose clocks are five seconds apart: a twentieth over, at most."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from heapq import heappop, heappush
from itertools import count, cycle

import pytest

from punctual.domain.tenants.limits import Limits
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.run_permits import RunPermits
from punctual.node.clock import ManualClock
from tests.simulation.instances import Fleet, MemoryShares, ToldTime

MINUTE = 60
TEN = (1,) * 10
APART = (-2.5, 2.5, 0.0, 2.5, -2.5, 1.2, -0.7, 2.5, -2.5, 0.4)
JOINING = (-2.5,) * 10 + (2.5,) * 100  # those who begin later are ahead


def no_log(event: str, /, **_fields: object) -> None:
    raise AssertionError(event)


def running(limits: Limits, crashes: float = 0) -> Fleet[RunPermits]:
    offs, names = cycle(JOINING if crashes else APART), count(1)

    def make(shares: MemoryShares, clock: ManualClock) -> RunPermits:
        rows = ToldTime(shares, clock, timedelta(seconds=next(offs)))
        name = f"instance{next(names):08d}"
        return RunPermits(lambda _: limits, rows, name, rows.clock, clock.monotonic, no_log)

    return Fleet(make, TEN, seed=7, crash_every=crashes)


def ordering(limits: Limits, counted: dict[str, int]) -> Fleet[LeasedQuotas]:
    offs: Iterator[float] = cycle(APART)

    def make(shares: MemoryShares, clock: ManualClock) -> LeasedQuotas:
        rows = ToldTime(shares, clock, timedelta(seconds=next(offs)))
        return LeasedQuotas(
            lambda _: limits, rows, lambda t: counted[t], rows.clock, clock.monotonic, no_log
        )

    return Fleet(make, TEN, seed=7)


def most_in_a_minute(times: Sequence[float]) -> int:
    oldest = worst = 0
    for number, at in enumerate(times):
        while times[oldest] <= at - MINUTE:
            oldest += 1
        worst = max(worst, number - oldest + 1)
    return worst


@pytest.mark.parametrize("crashes", [0, 7], ids=["", "cold starts"])
@pytest.mark.parametrize("most", [60, 600, 3_000])
def test_starts(most: int, crashes: float) -> None:
    fleet = running(Limits(runs_per_minute=most), crashes)
    start, times = fleet.clock(), list[float]()
    for instance in fleet.load(2 * most / MINUTE / 3, 3 * MINUTE):  # three in a batch
        permitted = instance.ask("acme", 3)
        times += [(fleet.clock() - start).total_seconds()] * permitted.number
        for _ in range(permitted.number):
            instance.end("acme", started=True)
    assert most_in_a_minute(times) <= 1.05 * most
    assert len(times) >= 0.85 * 3 * most


@pytest.mark.parametrize("most", [60, 600, 3_000])
def test_orders(most: int) -> None:
    fleet = ordering(Limits(runs_per_minute=most), {"acme": 0})
    start, times = fleet.clock(), list[float]()
    for instance in fleet.load(2 * most / MINUTE, 3 * MINUTE):
        now = (fleet.clock() - start).total_seconds()
        times += [now] * instance.orders("acme", 1).number
    assert most_in_a_minute(times) <= 1.05 * most
    assert len(times) >= 0.85 * 3 * most


def test_jobs() -> None:
    counted = {"acme": 0}
    fleet = ordering(Limits(jobs=1_000), counted)
    start, made = fleet.clock(), list[float]()
    for instance in fleet.load(40, 2 * MINUTE):
        now = (fleet.clock() - start).total_seconds()
        counted["acme"] = sum(at <= now - 2 for at in made)
        made += [now] * instance.jobs("acme", 1)
    assert 950 <= len(made) <= 1_050


@pytest.mark.parametrize("crashes", [0, 20], ids=["", "cold starts"])
@pytest.mark.parametrize("most", [5, 50])
def test_places(most: int, crashes: float) -> None:
    """Runs of two seconds, twice as many as fit."""
    fleet = running(Limits(concurrent_runs=most), crashes)
    start, ends, ticket, peak = fleet.clock(), list[tuple[float, int, RunPermits]](), count(), 0
    for instance in fleet.load(most, 2 * MINUTE):
        now = (fleet.clock() - start).total_seconds()
        ends = [one for one in ends if one[2] in fleet.instances]  # the others crashed
        while ends and ends[0][0] <= now:
            heappop(ends)[2].end("acme", started=True)
        for one in fleet.instances:
            if not any(end[2] is one for end in ends):
                one.rest()
            if one.aging:
                one.tend()
        for _ in range(instance.ask("acme", 1).number):
            heappush(ends, (now + 2, next(ticket), instance))
        peak = max(peak, len(ends))
    assert 0.6 * most <= peak <= most
