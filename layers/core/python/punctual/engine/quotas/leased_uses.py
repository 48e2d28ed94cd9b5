"""How much of its leased limits a tenant uses, by the rows that all instances share."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeVar

from punctual.domain.tenants.limits import TenantLimits
from punctual.domain.tenants.quota_ledger import (
    MICROSECONDS_PER_SECOND,
    CallRow,
    CallRule,
    Places,
    UseWindow,
    count_holders,
    count_places,
    count_uses,
    drop_expired_places,
    drop_expired_uses,
    full_bucket,
    refill,
    tokens,
)
from punctual.engine.ports.tenants.quota_rows import QuotaRows
from punctual.engine.quotas.leased_quotas import CALLS_LIMIT, RUN_REQUESTS_LIMIT
from punctual.engine.quotas.leased_row import LeasedRow
from punctual.engine.quotas.leased_window import microseconds
from punctual.engine.quotas.run_permits import PLACES_LIMIT, STARTS_LIMIT, executor_queues

S = TypeVar("S")


class LeasedUses:
    """Reads one row for each limit that is set, and changes none.

    What an instance has leased counts as used.
    """

    def __init__(
        self,
        rows: QuotaRows,
        count_jobs: Callable[[str], int],
        executors: Mapping[str, int] | None = None,
    ) -> None:
        """`executors` is the number of executors that take from each queue at a time."""
        self._rows = rows
        self._count_jobs = count_jobs
        self._queues = executor_queues(executors)

    def __call__(self, tenant: str, limits: TenantLimits, at: datetime) -> Mapping[str, float]:
        now = microseconds(at)
        uses: dict[str, float] = {}
        if limits.calls_per_second is not None:
            uses["calls_per_second"] = self._used_calls(tenant, limits, now)
        if limits.jobs is not None:
            uses["jobs"] = self._count_jobs(tenant)
        if limits.runs_per_minute is not None:
            uses["runs_per_minute"] = max(
                self._used_window(tenant, name, now) for name in (STARTS_LIMIT, RUN_REQUESTS_LIMIT)
            )
        if limits.concurrent_runs is not None or limits.lane_percent is not None:
            places = self._read(tenant, PLACES_LIMIT, Places())
            places = drop_expired_places(places, now // MICROSECONDS_PER_SECOND)
            uses["concurrent_runs"] = count_places(places)
            shares = [
                100 * count_holders(places, queue.prefix) / queue.executors
                for queue in self._queues.values()
                if queue.executors
            ]
            if shares:
                uses["lane_percent"] = round(max(shares), 1)
        return uses

    def _used_calls(self, tenant: str, limits: TenantLimits, now: int) -> float:
        """Return the part of the bucket that is leased, as a part of the rate."""
        rule = CallRule(limits.calls_per_second or 0, limits.burst_size)
        bucket = self._read(tenant, CALLS_LIMIT, CallRow()).bucket
        bucket = refill(bucket or full_bucket(rule.capacity, now), rule.rate, rule.capacity, now)
        leased = min(rule.capacity, max(0, rule.capacity - tokens(bucket)))
        return round(rule.rate * leased / rule.capacity, 1)

    def _used_window(self, tenant: str, limit_name: str, now: int) -> int:
        window = self._read(tenant, limit_name, UseWindow())
        return count_uses(drop_expired_uses(window, now // MICROSECONDS_PER_SECOND))

    def _read(self, tenant: str, limit_name: str, empty_row: S) -> S:
        def decide(row: S) -> tuple[S, S]:
            return row, row

        return LeasedRow(self._rows, limit_name, empty_row).change(tenant, decide)
