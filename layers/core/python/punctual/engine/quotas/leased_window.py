"""Uses of a limit that this instance leased from the row: calls, run requests, jobs, starts."""

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from punctual.domain.tenants.quota_ledger import (
    MICROSECONDS_PER_SECOND,
    LeaseRequest,
    QuotaLease,
    QuotaRule,
)
from punctual.domain.utc import EPOCH
from punctual.engine.ports.quotas import QuotaGrant
from punctual.engine.ports.tenants.quota_rows import QuotaRows
from punctual.engine.quotas.leased_row import LeasedRow, RecentDemand

MINUTE_SECONDS = 60  # the span of limits that count by the minute

S = TypeVar("S")


def microseconds(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * MICROSECONDS_PER_SECOND)


class _TenantLease:
    """The part of one tenant's limit that this instance holds."""

    def __init__(self) -> None:
        self.demand = RecentDemand()
        self.lease = QuotaLease(0)
        self.remaining = 0
        self.unused = 0  # of the lease, to be returned
        self.debt = 0  # admitted without the row
        self.loan = 0  # of `remaining`, when the row did not answer
        self.asked_at: int | None = None

    def give_up(self) -> None:
        """Give up the remaining uses."""
        if not self.loan:
            self.unused = min(self.remaining, self.lease.counted)
        self.settle_loan()
        self.remaining = 0

    def settle_loan(self) -> None:
        self.debt += max(0, self.loan - self.remaining) if self.loan else 0
        self.loan = 0


class LeasedWindow(Generic[S]):
    """Spends uses from memory. If too few are left, it leases the needed ones and a spare.

    The wall clock decides when a lease ends. A steady clock may stand still while the environment
    of a function is frozen.
    """

    def __init__(
        self,
        rows: QuotaRows,
        limit_name: str,
        empty_row: S,
        clock: Callable[[], datetime],
        retry_seconds: int = 0,
    ) -> None:
        """The row is asked again after `retry_seconds`. Until then uses fail."""
        self._row = LeasedRow(rows, limit_name, empty_row)
        self._clock = clock
        self._retry_microseconds = retry_seconds * MICROSECONDS_PER_SECOND
        self._leases: dict[str, _TenantLease] = {}

    def take(
        self,
        tenant: str,
        requested: int,
        rule: Callable[[], QuotaRule[S]],
        all_or_none: bool = False,
    ) -> QuotaGrant:
        """Use up to `requested`, or all or none. `rule` is called only to ask the row."""
        tenant_lease = self._leases.setdefault(tenant, _TenantLease())
        now = self._now()
        tenant_lease.demand.add(requested, now)
        if tenant_lease.remaining and now >= tenant_lease.lease.ends_at:
            tenant_lease.give_up()
        if tenant_lease.remaining >= requested:
            tenant_lease.remaining -= requested
            return QuotaGrant(requested)
        if (
            tenant_lease.asked_at is not None
            and tenant_lease.asked_at <= now < tenant_lease.asked_at + self._retry_microseconds
        ):
            retry_after_seconds = (
                tenant_lease.asked_at + self._retry_microseconds - now
            ) / MICROSECONDS_PER_SECOND
            return QuotaGrant(
                0 if all_or_none else self.spend(tenant, requested), retry_after_seconds
            )
        return self._request_lease(tenant, tenant_lease, requested, rule(), all_or_none)

    def _request_lease(
        self,
        tenant: str,
        tenant_lease: _TenantLease,
        requested: int,
        rule: QuotaRule[S],
        all_or_none: bool,
    ) -> QuotaGrant:
        tenant_lease.settle_loan()
        needed = requested - tenant_lease.remaining
        per_second = tenant_lease.demand.per_second(self._now())
        request = LeaseRequest(
            needed,
            per_second,
            all_or_none,
            tenant_lease.lease,
            tenant_lease.unused,
            tenant_lease.debt,
        )
        try:
            # The time is read after the row: the answer may have put the clock right.
            lease = self._row.change(tenant, lambda row: rule.lease(row, request, self._now()))
        finally:
            tenant_lease.asked_at = self._now()
        if lease.number or tenant_lease.debt:
            tenant_lease.lease, tenant_lease.debt, tenant_lease.unused = lease, 0, 0
        if not lease.number:
            return QuotaGrant(
                0 if all_or_none else self.spend(tenant, requested), lease.retry_after_seconds
            )
        granted = lease.number + tenant_lease.remaining
        tenant_lease.remaining = lease.spare
        return QuotaGrant(granted, 0.0 if granted == requested else lease.retry_after_seconds)

    def lend(self, tenant: str, count: int, seconds: float) -> None:
        """Allow uses while the row does not answer; the next lease pays for those that are used."""
        tenant_lease = self._leases.setdefault(tenant, _TenantLease())
        tenant_lease.remaining = tenant_lease.loan = count
        tenant_lease.lease = tenant_lease.lease._replace(
            ends_at=self._now() + round(seconds * MICROSECONDS_PER_SECOND)
        )

    def put_back(self, tenant: str, count: int) -> None:
        """Put back uses that were granted and not used."""
        tenant_lease = self._leases.get(tenant)
        if tenant_lease is not None and self._now() < tenant_lease.lease.ends_at:
            tenant_lease.remaining += count

    def drop(self, tenant: str) -> None:
        """Give up the remaining uses of a lease, because the limit was changed."""
        tenant_lease = self._leases.get(tenant)
        if tenant_lease is not None:
            tenant_lease.give_up()

    def spend(self, tenant: str, requested: int) -> int:
        """Use up to `requested` of the remaining uses, without the row."""
        tenant_lease = self._leases.get(tenant)
        if tenant_lease is None or self._now() >= tenant_lease.lease.ends_at:
            return 0
        count = min(tenant_lease.remaining, requested)
        tenant_lease.remaining -= count
        return count

    def _now(self) -> int:
        return microseconds(self._clock())
