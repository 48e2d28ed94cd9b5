"""Quota rows with concurrent writes of other instances, or with lost answers."""

from random import Random

import pytest

from punctual.domain.errors import LimitExceeded, Unavailable
from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.ports.tenants.quota_rows import QuotaRow
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.leased_row import MAX_ROW_SWAPS
from punctual.engine.quotas.run_permits import RunPermits
from tests.simulation.quotas.test_limits_calls import MAX_EXCESS, allowed, load
from tests.support.builders import ManualClock
from tests.support.simulation.instances import NOON, EventLog, MemoryQuotaRows, no_log, quotas

SMALL_LIMITS = TenantLimits(calls_per_second=10, jobs=100, runs_per_minute=20, concurrent_runs=5)


class ContendedRows(MemoryQuotaRows):
    """Rows to which another instance writes first, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
        if self.times:
            self.times -= 1
            present = self.rows.get((tenant, row_name), QuotaRow("", 0))
            self.rows[tenant, row_name] = QuotaRow(present.text, present.version + 1)
        return super().swap(tenant, row_name, expect, text)


def contended_quotas(times: int) -> tuple[LeasedQuotas, ContendedRows, ManualClock]:
    clock, rows = ManualClock(NOON), ContendedRows(times)
    return LeasedQuotas(lambda _: SMALL_LIMITS, rows, lambda _: 0, clock, no_log), rows, clock


def test_calls_that_lose_every_swap_are_refused_for_a_second() -> None:
    instance, rows, clock = contended_quotas(MAX_ROW_SWAPS)
    for _ in range(20):
        with pytest.raises(LimitExceeded) as refused:
            instance.check_call("acme")
    assert 0 < refused.value.retry_after_seconds <= 1
    assert rows.counts["writes"] == MAX_ROW_SWAPS
    clock.set(NOON.replace(second=1))
    instance.check_call("acme")


def test_requested_runs_and_jobs_that_lose_every_swap_are_unavailable() -> None:
    instance, _, _ = contended_quotas(2 * MAX_ROW_SWAPS)
    with pytest.raises(Unavailable, match="try again"):
        instance.take_run_requests("acme", 1)
    with pytest.raises(Unavailable, match="try again"):
        instance.available_jobs("acme", 1)
    assert (instance.take_run_requests("acme", 1).number, instance.available_jobs("acme", 1)) == (
        1,
        1,
    )


def test_runs_that_lose_every_swap_wait_for_a_second() -> None:
    clock, rows = ManualClock(NOON), ContendedRows(MAX_ROW_SWAPS)
    instance = RunPermits(lambda _: SMALL_LIMITS, rows, "instance", clock, no_log)
    permitted = instance.request("acme", 10)
    assert (permitted.number, permitted.retry_after_seconds) == (0, 1)
    clock.set(NOON.replace(second=2))
    assert instance.request("acme", 10).number == 5


@pytest.mark.parametrize("rate", [5, 20, 100])
def test_calls_that_lose_one_swap_of_four_are_rarely_refused(rate: int) -> None:
    chance = Random(17)

    class Rows(MemoryQuotaRows):
        def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
            if chance.random() < 0.25:
                present = self.rows.get((tenant, row_name), QuotaRow("", 0))
                self.rows[tenant, row_name] = QuotaRow(present.text, present.version + 1)
            return super().swap(tenant, row_name, expect, text)

    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * 20, rows=Rows())
    assert load(fleet, (0.8 * rate, 120)).refused <= 0.02


@pytest.mark.parametrize("rate", [5, 100])
def test_calls_keep_the_limit_when_answers_of_writes_are_lost(rate: int) -> None:
    """Such a lease is lost. The calls accepted meanwhile are a debt."""
    chance = Random(17)

    class Rows(MemoryQuotaRows):
        def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
            present = super().swap(tenant, row_name, expect, text)
            if chance.random() < 0.25:
                raise Unavailable("The answer is lost.")
            return present

    fleet = quotas(TenantLimits(calls_per_second=rate), (1,) * 20, log=EventLog(), rows=Rows())
    figures = load(fleet, (2.0 * rate, 90))
    assert figures.accepted >= 0.7 * 90 * rate
    assert figures.max_in_a_minute <= MAX_EXCESS * allowed(rate)
