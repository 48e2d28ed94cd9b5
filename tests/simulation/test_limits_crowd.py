"""A tenant that asks from many places at once: its limits hold, though the row is always lost."""

from typing import Any

import pytest

from punctual.domain.errors import LimitExceeded, Unavailable
from punctual.domain.tenants.limits import Limits
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.leased_row import TRIES, Row
from punctual.engine.quotas.run_permits import RunPermits
from punctual.node.clock import ManualClock
from tests.simulation.instances import NOON, MemoryShares

FEW = Limits(calls_per_second=10, jobs=100, runs_per_minute=20, concurrent_runs=5)


class Crowded(MemoryShares):
    """Somebody else is faster each time, so many times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def swap(self, tenant: str, what: str, expect: int, text: str) -> Row | None:
        if self.times:
            self.times -= 1
            stood = self.rows.get((tenant, what), Row("", 0))
            self.rows[tenant, what] = Row(stood.text, stood.version + 1)
        return super().swap(tenant, what, expect, text)


def no_log(event: str, /, **_fields: Any) -> None:
    raise AssertionError(f"the row answered, and yet {event}")


def quotas(shares: Crowded, clock: ManualClock) -> LeasedQuotas:
    return LeasedQuotas(lambda _: FEW, shares, lambda _: 0, clock, clock.monotonic, no_log)


def test_calls_of_a_crowd_come_again_soon_and_are_then_let_in() -> None:
    clock, shares = ManualClock(NOON), Crowded(TRIES)
    one = quotas(shares, clock)
    for _ in range(20):
        with pytest.raises(LimitExceeded) as refused:
            one.call("acme")
    assert 0 < refused.value.again_after <= 1
    assert shares.did["writes"] == TRIES  # who is refused does not ask on and on
    clock.set(NOON.replace(second=1))
    one.call("acme")


def test_orders_and_jobs_of_a_crowd_are_not_accepted_and_not_refused_for_good() -> None:
    shares = Crowded(2 * TRIES)
    one = quotas(shares, ManualClock(NOON))
    with pytest.raises(Unavailable, match="try again"):
        one.orders("acme", 1)
    with pytest.raises(Unavailable, match="try again"):
        one.jobs("acme", 1)
    assert (one.orders("acme", 1).number, one.jobs("acme", 1)) == (1, 1)


def test_runs_of_a_crowd_wait_for_a_second() -> None:
    clock, shares = ManualClock(NOON), Crowded(TRIES)
    one = RunPermits(lambda _: FEW, shares, "instance", clock, clock.monotonic, no_log)
    waits = one.ask("acme", 10)
    assert (waits.number, waits.again_after) == (0, 1)
    clock.set(NOON.replace(second=2))
    assert one.ask("acme", 10).number == 5
