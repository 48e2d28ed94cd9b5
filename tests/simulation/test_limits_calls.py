"""Calls, limited over many instances: what is accepted, and what it costs, in figures."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import cycle
from random import Random
from typing import NamedTuple

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import Limits
from punctual.domain.tenants.streams import ASIDE
from punctual.engine.quotas.leased_calls import LeasedCalls
from punctual.node.clock import ManualClock
from tests.simulation.instances import Fleet, MemoryShares, ToldTime

MINUTE = 60.0
UNEVEN = (50, 10, 5, 3, 2, 1, 1, 1, 1, 1)
FLEETS = {"one": (1,), "three": (1, 1, 1), "ten": (1,) * 10, "uneven": UNEVEN}
RATES = (5, 90, 900)
APART = (-2.5, 2.5, 0.0, 2.5, -2.5, 1.2, -0.7, 2.5, -2.5, 0.4)

Away = Callable[[float], bool]


class Told:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, event: str, /, **_fields: object) -> None:
        self.lines.append(event)


def calling(
    limits: Limits,
    weights: Sequence[float],
    crashes: float = 0,
    skews: Sequence[float] = (0.0,),
    told: Told | None = None,
    seed: int = 7,
) -> Fleet[LeasedCalls]:
    offs: Iterator[float] = cycle(skews)

    def make(shares: MemoryShares, clock: ManualClock) -> LeasedCalls:
        rows = ToldTime(shares, clock, timedelta(seconds=next(offs)))
        return LeasedCalls(lambda _: limits, rows, rows.clock, clock.monotonic, told or Told())

    return Fleet(make, weights, seed=seed, crash_every=crashes)


class Found(NamedTuple):
    """`most` in any minute; `writes` a call, those that were lost among them."""

    asked: int
    accepted: int
    most: int
    writes: float
    reads: float


def load(
    fleet: Fleet[LeasedCalls], *phases: tuple[float, float], away: Away = lambda _: False
) -> Found:
    """The figures of the last of these phases: so many calls a second, for so many seconds."""
    start, last, most = fleet.clock(), deque[float](), 0
    asked = accepted = 0
    waits = 0.0
    for rate, seconds in phases:
        asked = accepted = 0
        fleet.shares.did.clear()
        for instance in fleet.load(rate, seconds):
            now = (fleet.clock() - start).total_seconds()
            fleet.shares.away = away(now)
            asked += 1
            try:
                instance.call("acme")
            except LimitExceeded as refused:
                waits = max(waits, refused.again_after)
                continue
            accepted += 1
            last.append(now)
            while last[0] <= now - MINUTE:
                last.popleft()
            most = max(most, len(last))
    assert waits <= 2.1
    did = fleet.shares.did
    return Found(asked, accepted, most, did["writes"] / asked, did["reads"] / asked)


def at_twice(rate: int) -> tuple[float, float]:
    return 2.0 * rate, MINUTE


@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("rate", RATES)
def test_twice_the_limit_for_a_minute_is_held_to_it(rate: int, weights: Sequence[float]) -> None:
    found = load(calling(Limits(calls_per_second=rate), weights), at_twice(rate))
    allowed = rate * 61
    assert 0.9 * allowed <= found.accepted <= allowed
    if rate > 5:
        assert found.accepted >= 0.98 * allowed


@pytest.mark.parametrize("burst", [20, 600])
@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
def test_a_burst_is_let_through_once(weights: Sequence[float], burst: int) -> None:
    rate = burst // 2
    found = load(calling(Limits(calls_per_second=rate, burst=burst), weights), at_twice(rate))
    assert 0.9 * 62 * rate <= found.accepted <= 62 * rate


BEFORE = {
    "busy": ((0.9, MINUTE),),
    "then quiet": ((0.9, 40), (0.02, 8)),
    "full": ((1, MINUTE),),
    "now and then": ((0.1, 200),),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("instances", [3, 10, 30, 100])
@pytest.mark.parametrize("rate", [4, 5, 7, 10, 20, 40, 90])
def test_a_load_that_doubles_suddenly_finds_no_twentieth_in_cups(
    rate: int, instances: int, before: tuple[tuple[float, float], ...]
) -> None:
    """What was promised and not used comes back, but no more than a little; in any minute."""
    for seed in range(3):
        fleet = calling(Limits(calls_per_second=rate), (1,) * instances, seed=seed)
        phases = [(part * rate, seconds) for part, seconds in before]
        found = load(fleet, *phases, at_twice(rate))
        assert found.most <= 1.05 * 61 * rate


@pytest.mark.parametrize("instances", [3, 10, 30, 100])
@pytest.mark.parametrize("rate", [4, 5, 7, 10, 20, 40, 90])
def test_what_some_set_aside_and_what_others_were_promised_is_no_twentieth(
    rate: int, instances: int
) -> None:
    """All call now and then and set aside what they may; then some have a flow each, as many as
    there is one a second for, and pause for a moment; then all call, at twice the limit."""
    flowing = min(instances - 1, max(1, rate * 9 // 10))
    for seed in range(3):
        fleet = calling(Limits(calls_per_second=rate), (1,) * instances, seed=seed)
        load(fleet, (0.1 * rate, 150))
        fleet.weights = (0,) * (instances - flowing) + (1,) * flowing
        load(fleet, (flowing, 40), (0.3 * rate, 3))
        fleet.weights = (1,) * instances
        assert load(fleet, at_twice(rate)).most <= 1.05 * 61 * rate


@pytest.mark.parametrize("crashes", [0, 6], ids=["", "cold starts"])
@pytest.mark.parametrize("rate", RATES)
def test_clocks_five_seconds_apart_let_no_twentieth_more_through(rate: int, crashes: float) -> None:
    fleet = calling(Limits(calls_per_second=rate), FLEETS["ten"], crashes, skews=APART)
    found = load(fleet, at_twice(rate))
    assert 0.75 * 61 * rate <= found.accepted <= 1.05 * 61 * rate


@pytest.mark.parametrize("rate", RATES)
def test_who_is_five_seconds_ahead_and_joins_brings_no_five_seconds_of_calls(rate: int) -> None:
    """Five that are behind, and after half a minute five that are ahead."""
    skews = (-2.5,) * 5 + (2.5,) * 5
    fleet = calling(Limits(calls_per_second=rate), (1,) * 5 + (0,) * 5, skews=skews)
    before = load(fleet, (2 * rate, 30)).accepted
    fleet.weights = (1,) * 10
    after = load(fleet, (2 * rate, 30)).accepted
    assert 0.9 * 61 * rate <= before + after <= 1.05 * 61 * rate


PHASES = (0.34, 0.5, 0.75, 1.0, 1.37, 2.0, 3.0, 5.0, 10.0, 30.0)  # seconds, up and away in turn


@pytest.mark.parametrize("crashes", [0, 6], ids=["", "cold starts"])
@pytest.mark.parametrize(
    ("rate", "phase"), [*((rate, phase) for rate in (5, 90) for phase in PHASES), (900, 5.0)]
)
def test_while_the_row_is_throttled_half_the_time_no_twentieth_more_goes_through(
    rate: int, phase: float, crashes: float
) -> None:
    told = Told()
    fleet = calling(Limits(calls_per_second=rate), FLEETS["ten"], crashes, told=told)
    found = load(fleet, (2.0 * rate, 20), at_twice(rate), away=lambda at: int(at / phase) % 2 == 1)
    assert set(told.lines) == {"limits_unavailable"}
    assert 0.6 * 60 * rate <= found.accepted <= 1.05 * 61 * rate


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rate", [5, 90])
def test_while_every_second_call_for_the_row_fails_no_twentieth_more_goes_through(
    rate: int, seed: int
) -> None:
    chance = Random(seed)
    fleet = calling(Limits(calls_per_second=rate), FLEETS["ten"], skews=APART)
    found = load(fleet, (2.0 * rate, 20), at_twice(rate), away=lambda _: chance.random() < 0.5)
    assert 0.6 * 60 * rate <= found.accepted <= 1.05 * 61 * rate


@pytest.mark.parametrize("rate", RATES)
def test_a_row_that_goes_away_leaves_each_instance_its_part(rate: int) -> None:
    fleet = calling(Limits(calls_per_second=rate), FLEETS["ten"])
    found = load(fleet, (2.0 * rate, 30), at_twice(rate), away=lambda at: at >= 30)
    assert 0.45 * 60 * rate <= found.accepted <= 1.05 * 61 * rate


def test_who_begins_while_the_row_is_away_has_little() -> None:
    fleet = calling(Limits(calls_per_second=100), FLEETS["ten"])
    found = load(fleet, at_twice(100), away=lambda _: True)
    assert 0.15 * 6_000 <= found.accepted <= 0.25 * 6_000


@pytest.mark.parametrize("rate", RATES)
def test_a_crash_takes_no_more_along_than_was_promised(rate: int) -> None:
    """One of ten each ten seconds."""
    found = load(calling(Limits(calls_per_second=rate), FLEETS["ten"], crashes=10), at_twice(rate))
    assert (0.75 if rate == 5 else 0.95) * 61 * rate <= found.accepted <= 61 * rate


@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("rate", [10, 100, 1_000])
def test_who_stays_below_is_hardly_refused(rate: int, weights: Sequence[float]) -> None:
    """At a tenth below: of ten calls a second, over ten instances, one in seventeen; else none."""
    found = load(calling(Limits(calls_per_second=rate), weights), (0.9 * rate, MINUTE))
    assert found.accepted >= (0.94 if rate == 10 else 1) * found.asked


@pytest.mark.parametrize("part", [0.5, 0.9])
@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("rate", [1, 2, 3])
def test_who_stays_below_a_very_small_limit_is_never_refused(
    rate: int, weights: Sequence[float], part: float
) -> None:
    """Nothing flows to anybody: a call is half a write to a little more than one."""
    found = load(calling(Limits(calls_per_second=rate), weights), (part * rate, 2 * MINUTE))
    assert found.accepted == found.asked
    assert found.writes <= 1.4
    found = load(calling(Limits(calls_per_second=rate), weights), at_twice(rate))
    assert 59 * rate <= found.accepted <= 61 * rate


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("weights", [FLEETS["one"], FLEETS["ten"]], ids=["one", "ten"])
@pytest.mark.parametrize("rate", [1, 3])
def test_a_very_small_limit_is_held_while_the_row_is_away_half_the_time(
    rate: int, weights: Sequence[float], phase: float
) -> None:
    fleet = calling(Limits(calls_per_second=rate), weights)
    away = lambda at: int(at / phase) % 2 == 1  # noqa: E731
    found = load(fleet, (2.0 * rate, 20), at_twice(rate), away=away)
    assert 0.25 * 60 * rate <= found.accepted <= 1.05 * 61 * rate


@pytest.mark.parametrize(("rate", "before"), [(1, 0.1), (5, 5), (100, 90)])
def test_who_calls_seldom_after_an_outage_pays_once_what_it_owes(rate: int, before: float) -> None:
    """Also where it is more than the bucket holds: else it would be refused for ever."""
    fleet = calling(Limits(calls_per_second=rate), FLEETS["one"])
    phases = ((before, 200), (1 / 30, 300), (1 / 30, 600))
    found = load(fleet, *phases, away=lambda at: at <= 300)
    assert found.accepted == found.asked


COSTS = {  # writes a call
    ("below", 5): {"one": 0.12, "three": 0.18, "ten": 0.6, "uneven": 0.35},
    ("below", 90): {"one": 0.01, "three": 0.02, "ten": 0.03, "uneven": 0.03},
    ("below", 900): {"one": 0.002, "three": 0.002, "ten": 0.006, "uneven": 0.005},
    ("twice", 5): {"one": 0.15, "three": 0.15, "ten": 0.3, "uneven": 0.2},
    ("twice", 90): {"one": 0.05, "three": 0.05, "ten": 0.05, "uneven": 0.05},
    ("twice", 900): {"one": 0.01, "three": 0.01, "ten": 0.01, "uneven": 0.01},
}


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize(("at", "rate"), COSTS)
def test_a_call_costs_a_part_of_a_write_where_an_instance_has_one_a_second(
    at: str, rate: int, fleet: str
) -> None:
    """Of the second minute, at nine tenths of the limit, and at twice the limit."""
    limit = -(-rate * 10 // 9) if at == "below" else rate
    made = calling(Limits(calls_per_second=limit), FLEETS[fleet])
    minute = (rate if at == "below" else 2 * rate, MINUTE)
    found = load(made, minute, minute)
    print(f"{at} {rate}/s {fleet}: {found.writes:.4f} writes, {found.reads:.4f} reads a call")
    assert found.writes <= COSTS[at, rate][fleet]
    assert found.reads <= 2 * COSTS[at, rate][fleet] + 0.01


def test_who_is_refused_writes_nothing() -> None:
    """All but one call in a hundred is refused here."""
    fleet = calling(Limits(calls_per_second=5), FLEETS["ten"])
    found = load(fleet, (500, MINUTE))
    assert found.accepted <= 305
    assert found.writes * found.asked <= 0.65 * found.accepted
    assert found.reads <= 0.03


SELDOM = {  # writes a call, of two hundred calls after a minute of them
    0.2: {"one": 0.05, "three": 0.1, "ten": 0.25},
    1: {"one": 0.04, "three": 0.08, "ten": 0.15},
    5: {"one": 0.03, "three": 0.04, "ten": 0.07},
    20: {"one": 0.02, "three": 0.03, "ten": 0.05},
}


@pytest.mark.parametrize("fleet", ["one", "three", "ten"])
@pytest.mark.parametrize("rate", SELDOM)
def test_who_calls_seldom_has_its_calls_at_hand(rate: float, fleet: str) -> None:
    """The limit that `prod` gives each tenant; far below it."""
    made = calling(Limits(calls_per_second=100, burst=500), FLEETS[fleet])
    found = load(made, (rate, MINUTE), (rate, max(MINUTE, 200 / rate)))
    print(f"{rate}/s {fleet}: {found.writes:.3f} writes, {found.reads:.3f} reads a call")
    assert found.accepted == found.asked
    assert found.writes <= SELDOM[rate][fleet]


def test_what_was_set_aside_too_long_ago_is_nobody_s() -> None:
    """Others may have it by then."""
    fleet = calling(Limits(calls_per_second=100), FLEETS["one"])
    load(fleet, (1, 10))
    assert load(fleet, (1, 5)).writes == 0
    fleet.clock.advance(timedelta(seconds=ASIDE + 1))
    assert load(fleet, (1, 5)).writes == 1 / 5


def test_after_an_outage_the_limit_is_held_again() -> None:
    told = Told()
    fleet = calling(Limits(calls_per_second=10), FLEETS["three"], told=told)
    load(fleet, (20, 30), (20, MINUTE), away=lambda at: at >= 30)
    assert len(told.lines) <= 3 * 40  # each asks again after two seconds
    found = load(fleet, (20, 6), (20, MINUTE))
    assert 0.92 * 600 <= found.accepted <= 1.05 * 610
