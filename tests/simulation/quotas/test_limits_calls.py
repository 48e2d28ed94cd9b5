"""Call limits shared by many instances: accepted calls, refused calls, and their cost."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import NamedTuple

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import TenantLimits
from punctual.domain.tenants.quota_ledger import LONG_LEASE_SECONDS, LONG_LEASE_STEP_SECONDS
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from tests.support.simulation.instances import (
    FLEETS,
    MINUTE,
    SECONDS_APART,
    EventLog,
    Fleet,
    MovingMinute,
    max_in_a_second,
    quotas,
)

TWENTY = FLEETS["twenty"]
RATES = (5, 20, 100, 500)
SEEDS = (11, 12, 13)
MAX_EXCESS = 1.1  # times the limit, in any 60 s

Away = Callable[[float], bool]


class Figures(NamedTuple):
    """The counts of a test. Fields after `max_in_a_minute` are of the last phase, per call."""

    calls: int
    accepted: int
    max_in_a_minute: int
    writes: float
    reads: float

    @property
    def refused(self) -> float:
        return 1 - self.accepted / self.calls


def load(
    fleet: Fleet[LeasedQuotas], *phases: tuple[float, float], away: Away = lambda _: False
) -> Figures:
    """Call at the rate of each phase for its seconds, and return the figures."""
    minute, max_retry_after, calls, accepted = MovingMinute(), 0.0, 0, 0
    for rate, seconds in phases:
        calls = accepted = 0
        fleet.rows.counts.clear()
        for instance in fleet.load(rate, seconds):
            fleet.rows.away = away(fleet.seconds)
            calls += 1
            try:
                instance.check_call("acme")
            except LimitExceeded as refused:
                max_retry_after = max(max_retry_after, refused.retry_after_seconds)
                continue
            accepted += 1
            minute.add(fleet.seconds)
    assert max_retry_after <= 4.1
    counts = fleet.rows.counts
    return Figures(
        calls, accepted, minute.max_in_a_minute, counts["writes"] / calls, counts["reads"] / calls
    )


def allowed(rate: int, burst: int | None = None) -> int:
    """Return how many calls a token bucket on one machine accepts in 60 s."""
    return MINUTE * rate + (burst or rate)


BEFORE = {
    "idle": (),
    "busy": ((0.9, MINUTE),),
    "busy then quiet": ((0.9, 40), (0.02, 8)),
    "full": ((1, MINUTE),),
    "occasional": ((0.1, 100),),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("rate", RATES[:3])
def test_calls_over_the_limit_are_at_most_a_tenth_in_any_minute(
    rate: int, before: tuple[tuple[float, float], ...], seed: int
) -> None:
    fleet = quotas(TenantLimits(calls_per_second=rate), TWENTY, seed=seed)
    phases = [(part * rate, seconds) for part, seconds in before]
    figures = load(fleet, *phases, (2.0 * rate, 90))
    assert figures.max_in_a_minute <= MAX_EXCESS * MINUTE * rate
    assert figures.accepted >= 0.95 * 90 * rate


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", RATES)
def test_calls_at_four_fifths_of_the_limit_are_rarely_refused(rate: int, seed: int) -> None:
    figures = load(
        quotas(TenantLimits(calls_per_second=rate), TWENTY, seed=seed), (0.8 * rate, 120)
    )
    assert figures.refused <= 0.02


@pytest.mark.parametrize("part", [0.1, 0.8, 2, 20])
@pytest.mark.parametrize("rate", RATES[:3])
def test_calls_make_an_instance_write_at_most_once_a_second(rate: int, part: float) -> None:
    fleet = quotas(TenantLimits(calls_per_second=rate), TWENTY, seed=SEEDS[0])
    load(fleet, (part * rate, MINUTE))
    assert max(max_in_a_second(rows.written_at) for rows in fleet.instance_rows) == 1


@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
@pytest.mark.parametrize("rate", [1, 2, 5, 90, 900])
def test_calls_of_any_fleet_reach_the_limit_and_keep_it(
    rate: int, weights: Sequence[float]
) -> None:
    fleet = quotas(TenantLimits(calls_per_second=rate), weights)
    below = load(fleet, (0.8 * rate, MINUTE))
    assert below.refused <= (0.02 if rate >= 5 else 0.06)
    twice = load(fleet, (2.0 * rate, MINUTE))
    assert twice.accepted >= 0.92 * MINUTE * rate
    assert twice.max_in_a_minute <= MAX_EXCESS * MINUTE * rate


@pytest.mark.parametrize("weights", FLEETS.values(), ids=FLEETS)
def test_calls_in_a_burst_are_accepted_once(weights: Sequence[float]) -> None:
    figures = load(quotas(TenantLimits(calls_per_second=50, burst=500), weights), (200, MINUTE))
    assert 0.9 * allowed(50, 500) <= figures.accepted <= MAX_EXCESS * allowed(50, 500)


@pytest.mark.parametrize("crash_every", [0, 6], ids=["", "cold starts"])
@pytest.mark.parametrize("rate", RATES[:3])
def test_calls_on_clocks_five_seconds_apart_hold_the_limit(rate: int, crash_every: float) -> None:
    limits = TenantLimits(calls_per_second=rate)
    fleet = quotas(limits, (1,) * 10, crash_every=crash_every, skews=SECONDS_APART)
    figures = load(fleet, (2.0 * rate, 90))
    assert figures.accepted >= 0.8 * 90 * rate
    assert figures.max_in_a_minute <= MAX_EXCESS * allowed(rate)


@pytest.mark.parametrize("rate", RATES[:3])
def test_calls_of_instances_that_join_five_seconds_ahead_hold_the_limit(rate: int) -> None:
    skews = (-2.5,) * 5 + (2.5,) * 5
    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * 5 + (0,) * 5, skews=skews)
    before = load(fleet, (2.0 * rate, 30)).accepted
    fleet.weights = (1,) * 10
    accepted = before + load(fleet, (2.0 * rate, 30)).accepted
    assert 0.9 * allowed(rate) <= accepted <= MAX_EXCESS * allowed(rate)


@pytest.mark.parametrize("rate", RATES[:3])
def test_calls_of_crashing_instances_lose_only_what_was_leased(rate: int) -> None:
    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * 10, crash_every=10)
    figures = load(fleet, (2.0 * rate, MINUTE))
    assert 0.85 * MINUTE * rate <= figures.accepted <= MAX_EXCESS * allowed(rate)


PHASES = (
    0.34,
    0.5,
    1.0,
    2.0,
    5.0,
    30.0,
)  # seconds for which the row answers and fails in turn


@pytest.mark.parametrize("crash_every", [0, 6], ids=["", "cold starts"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("rate", [1, 5, 90])
def test_calls_keep_the_limit_while_the_row_answers_half_the_time(
    rate: int, phase: float, crash_every: float
) -> None:
    log = EventLog()
    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * 10, log=log, crash_every=crash_every)
    phases = (2.0 * rate, 20), (2.0 * rate, MINUTE)
    figures = load(fleet, *phases, away=lambda at: int(at / phase) % 2 == 1)
    assert set(log.events) == {"limits_unavailable"}
    assert figures.accepted >= (0.4 if rate == 1 else 0.6) * MINUTE * rate
    assert figures.max_in_a_minute <= MAX_EXCESS * allowed(rate)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [5, 90])
def test_calls_keep_the_limit_while_half_the_requests_to_the_row_fail(rate: int, seed: int) -> None:
    chance = Random(seed)
    fleet = quotas(
        TenantLimits(calls_per_second=rate),
        (1,) * 10,
        log=EventLog(),
        skews=SECONDS_APART,
        seed=seed,
    )
    phases = (2.0 * rate, 20), (2.0 * rate, MINUTE)
    figures = load(fleet, *phases, away=lambda _: chance.random() < 0.5)
    assert figures.accepted >= 0.6 * MINUTE * rate
    assert figures.max_in_a_minute <= MAX_EXCESS * allowed(rate)


@pytest.mark.parametrize("rate", RATES[:3])
def test_calls_during_an_outage_continue_at_the_rate_of_each_instance(rate: int) -> None:
    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * 10, log=EventLog())
    phases = (2.0 * rate, 30), (2.0 * rate, MINUTE)
    figures = load(fleet, *phases, away=lambda at: at >= 30)
    assert figures.accepted >= 0.45 * MINUTE * rate
    assert figures.max_in_a_minute <= MAX_EXCESS * allowed(rate)


def test_calls_of_instances_started_during_an_outage_are_few() -> None:
    fleet = quotas(TenantLimits(calls_per_second=100), (1,) * 10, log=EventLog())
    figures = load(fleet, (200, MINUTE), away=lambda _: True)
    assert 0.1 * 6_000 <= figures.accepted <= 0.25 * 6_000


@pytest.mark.parametrize(("rate", "before"), [(1, 0.1), (5, 5), (100, 90)])
def test_calls_after_an_outage_repay_the_debt_once(rate: int, before: float) -> None:
    """The debt may exceed the size of the bucket."""
    fleet = quotas(TenantLimits(calls_per_second=rate), FLEETS["one"], log=EventLog())
    phases = ((before, 200), (1 / 30, 300), (1 / 30, 600))
    assert load(fleet, *phases, away=lambda at: 200 < at <= 300).refused == 0


def test_calls_after_an_outage_are_held_to_the_limit_again() -> None:
    log = EventLog()
    fleet = quotas(TenantLimits(calls_per_second=10), FLEETS["three"], log=log)
    load(fleet, (20, 30), (20, MINUTE), away=lambda at: at >= 30)
    assert len(log.events) <= 3 * MINUTE  # each instance asks once a second
    figures = load(fleet, (20, 6), (20, MINUTE))
    assert 0.92 * 600 <= figures.accepted <= MAX_EXCESS * allowed(10)


COSTS = {  # writes a call, by part of the limit, calls a second, and fleet
    (0.9, 5): {"one": 0.15, "three": 0.3, "twenty": 0.75, "uneven": 0.4},
    (0.9, 90): {"one": 0.01, "three": 0.02, "twenty": 0.12, "uneven": 0.06},
    (2, 10): {"one": 0.15, "three": 0.3, "twenty": 0.5, "uneven": 0.3},
    (2, 180): {"one": 0.01, "three": 0.02, "twenty": 0.1, "uneven": 0.06},
    (0.01, 1): {"one": 0.05, "three": 0.1, "twenty": 0.4, "uneven": 0.15},
    (0.05, 5): {"one": 0.03, "three": 0.03, "twenty": 0.25, "uneven": 0.1},
}


@pytest.mark.parametrize("fleet", FLEETS)
@pytest.mark.parametrize(("part", "rate"), COSTS)
def test_calls_need_less_than_a_write_each(part: float, rate: int, fleet: str) -> None:
    """In steady load each lease takes one read and one write."""
    instances = quotas(TenantLimits(calls_per_second=round(rate / part)), FLEETS[fleet])
    seconds = max(MINUTE, 200 / rate)
    figures = load(instances, (rate, MINUTE), (rate, seconds))
    print(f"{part} {rate}/s {fleet}: {figures.writes:.3f} writes, {figures.reads:.3f} reads a call")
    assert figures.writes <= COSTS[part, rate][fleet]
    assert figures.reads <= COSTS[part, rate][fleet] * (3 if part > 1 else 1.1)


def test_refused_calls_write_nothing() -> None:
    figures = load(quotas(TenantLimits(calls_per_second=5), TWENTY), (500, MINUTE))
    assert figures.accepted <= MAX_EXCESS * allowed(5)
    assert figures.writes * figures.calls <= figures.accepted
    assert figures.reads * figures.calls <= len(TWENTY) * MINUTE


def test_expired_leases_of_calls_are_not_used() -> None:
    fleet = quotas(TenantLimits(calls_per_second=100), FLEETS["one"])
    load(fleet, (1, 10))
    assert load(fleet, (1, 5)).writes == 0
    fleet.clock.advance(timedelta(seconds=LONG_LEASE_SECONDS + LONG_LEASE_STEP_SECONDS))
    assert load(fleet, (1, 5)).writes == 1 / 5
