"""An instance whose clock was an hour ahead: what it wrote shuts nobody out till then."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from punctual.domain.errors import LimitExceeded
from punctual.domain.tenants.limits import Limits
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.run_permits import RunPermits
from punctual.node.clock import ManualClock
from tests.simulation.instances import NOON, MemoryShares

FEW = Limits(calls_per_second=1, burst=1, jobs=5, runs_per_minute=2, concurrent_runs=2)


def no_log(event: str, /, **_fields: Any) -> None:
    raise AssertionError(event)


class Instance:
    def __init__(
        self, shares: MemoryShares, wall: Callable[[], datetime], clock: ManualClock, name: str
    ) -> None:
        self.quotas = LeasedQuotas(
            lambda _: FEW, shares, lambda _: 0, wall, clock.monotonic, no_log
        )
        self.permits = RunPermits(lambda _: FEW, shares, name, wall, clock.monotonic, no_log)

    def use_all(self) -> tuple[int, int, int]:
        self.quotas.call("acme")
        orders, jobs = self.quotas.orders("acme", 2).number, self.quotas.jobs("acme", 5)
        return orders, jobs, self.permits.ask("acme", 2).number


def test_what_a_clock_far_ahead_wrote_is_nobodys_limit() -> None:
    clock, shares = ManualClock(NOON), MemoryShares()
    ahead = Instance(shares, lambda: clock() + timedelta(hours=1), clock, "ahead")
    assert ahead.use_all() == (2, 5, 2)
    right = Instance(shares, clock, clock, "right")
    with pytest.raises(LimitExceeded):
        right.quotas.call("acme")
    clock.advance(timedelta(seconds=2))
    assert right.use_all() == (2, 5, 2)
    other = Instance(shares, clock, clock, "other")
    assert (other.quotas.orders("acme", 1).number, other.permits.ask("acme", 1).number) == (0, 0)
