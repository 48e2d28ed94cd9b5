"""The quotas of a deployment: limits that all instances share through leased rows."""

from collections.abc import Callable
from datetime import datetime
from math import floor, inf

from punctual.domain.errors import Unavailable
from punctual.domain.tenants.quota_ledger import (
    MICROSECONDS_PER_SECOND,
    CallRow,
    CallRule,
    UseWindow,
    WindowRule,
)
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import LimitsOf, QuotaGrant
from punctual.engine.ports.tenants.quota_rows import QuotaRows
from punctual.engine.quotas.leased_row import Contended, RecentDemand
from punctual.engine.quotas.leased_window import MINUTE_SECONDS, LeasedWindow, microseconds
from punctual.engine.quotas.limits import too_many_calls

CALLS_LIMIT, JOBS_LIMIT, RUN_REQUESTS_LIMIT = "calls", "jobs", "orders"
COUNT_DELAY_SECONDS = 15  # after it a new job is surely in the counters
# Without the rows an instance admits this part of the quota in a minute.
OUTAGE_JOBS_DIVISOR = 20
OUTAGE_RATE_DIVISOR = 50  # an instance admits at least this part of the rate without the rows
OUTAGE_RATE_FACTOR = 0.8  # of the calls an instance was granted in the last seconds
GRANTED_CALLS_SPAN_SECONDS = 10.0
OUTAGE_SECONDS = 60  # failures within this time are one outage, with one rate
CALL_LEASE_RETRY_SECONDS = 1
LOAN_SECONDS = 1.5


class _TenantCalls:
    """The calls of one tenant at this instance, and their rate while the row does not answer."""

    def __init__(self, rule: CallRule) -> None:
        self.rule = rule
        self.recent_grants = RecentDemand(GRANTED_CALLS_SPAN_SECONDS)
        self._outage_rate = 0.0
        self._credit = 0.0  # calls that the rate has earned
        self._lent_at: int | None = None

    def calls_without_row(self, now: int) -> int:
        """Return how many calls may pass without the row until it is requested again."""
        if self._lent_at is None or now > self._lent_at + OUTAGE_SECONDS * MICROSECONDS_PER_SECOND:
            recent_rate = min(
                self.rule.rate, OUTAGE_RATE_FACTOR * self.recent_grants.per_second(now)
            )
            self._outage_rate = max(recent_rate, self.rule.rate / OUTAGE_RATE_DIVISOR)
            self._credit = 1.0
        else:
            earned = max(0, now - self._lent_at) / MICROSECONDS_PER_SECOND * self._outage_rate
            self._credit = min(self._credit + earned, max(1.0, LOAN_SECONDS * self._outage_rate))
        self._lent_at = now
        count = floor(self._credit)
        self._credit -= count
        return count


class LeasedQuotas:
    """Quotas that fail open within bounds if the rows do not answer.

    It then admits four fifths of its recent calls, and requested runs up to the whole limit by its
    own count. It admits new jobs up to a twentieth of the quota in a minute.
    """

    def __init__(
        self,
        load_limits: LimitsOf,
        rows: QuotaRows,
        count_jobs: Callable[[str], int],
        clock: Callable[[], datetime],
        log: Log,
    ) -> None:
        self._load_limits = load_limits
        self._count_jobs = count_jobs
        self._clock = clock
        self._log = log
        self._call_leases = LeasedWindow(
            rows, CALLS_LIMIT, CallRow(), clock, CALL_LEASE_RETRY_SECONDS
        )
        self._job_leases = LeasedWindow(rows, JOBS_LIMIT, UseWindow(), clock)
        self._run_leases = LeasedWindow(rows, RUN_REQUESTS_LIMIT, UseWindow(), clock)
        self._calls: dict[str, _TenantCalls] = {}
        self._local_counts: dict[tuple[str, str], tuple[int, int]] = {}

    def check_call(self, tenant: str) -> None:
        limits = self._load_limits(tenant)
        if limits.calls_per_second is None:
            return
        rule = CallRule(limits.calls_per_second, limits.burst_size)
        calls = self._calls.get(tenant)
        if calls is None:
            calls = self._calls[tenant] = _TenantCalls(rule)
        if rule != calls.rule:
            calls.rule = rule
            self._call_leases.drop(tenant)
        grant = self._grant_call(tenant, calls)
        if not grant.number:
            raise too_many_calls(limits, grant.retry_after_seconds)
        calls.recent_grants.add(1, microseconds(self._clock()))

    def _grant_call(self, tenant: str, calls: _TenantCalls) -> QuotaGrant:
        try:
            return self._call_leases.take(tenant, 1, lambda: calls.rule)
        except Contended:
            return QuotaGrant(0, CALL_LEASE_RETRY_SECONDS)
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit=CALLS_LIMIT, error=error.message)
        count = calls.calls_without_row(microseconds(self._clock()))
        self._call_leases.lend(tenant, count, LOAN_SECONDS)
        return QuotaGrant(self._call_leases.spend(tenant, 1), CALL_LEASE_RETRY_SECONDS)

    def available_jobs(self, tenant: str, requested: int) -> int:
        limit = self._load_limits(tenant).jobs
        if limit is None:
            return requested

        def rule(limit: int = limit) -> WindowRule:
            return WindowRule(max(0, limit - self._count_jobs(tenant)), COUNT_DELAY_SECONDS)

        try:
            return self._job_leases.take(tenant, requested, rule).number
        except Unavailable as error:
            outage_limit = max(1, limit // OUTAGE_JOBS_DIVISOR)
            return self._count_locally(tenant, JOBS_LIMIT, requested, outage_limit, error)

    def take_run_requests(
        self, tenant: str, requested: int, all_or_none: bool = False
    ) -> QuotaGrant:
        limit = self._load_limits(tenant).runs_per_minute
        if limit is None or requested == 0:
            return QuotaGrant(requested)
        rule = WindowRule(limit, MINUTE_SECONDS)
        if all_or_none and requested > limit:
            return QuotaGrant(0, inf)
        try:
            return self._run_leases.take(tenant, requested, lambda: rule, all_or_none)
        except Unavailable as error:
            count = self._count_locally(tenant, RUN_REQUESTS_LIMIT, requested, limit, error)
            if all_or_none and count < requested:
                return QuotaGrant(0, MINUTE_SECONDS)
            return QuotaGrant(count, 0.0 if count == requested else MINUTE_SECONDS)

    def _count_locally(
        self, tenant: str, limit_name: str, requested: int, limit: int, error: Unavailable
    ) -> int:
        """Return how many may pass, by this instance's own count of the minute."""
        if isinstance(error, Contended):
            raise error
        self._log("limits_unavailable", tenant=tenant, limit=limit_name, error=error.message)
        now = microseconds(self._clock()) // MICROSECONDS_PER_SECOND
        start_second, used_count = self._local_counts.get((tenant, limit_name), (now, 0))
        if not start_second <= now < start_second + MINUTE_SECONDS:
            start_second, used_count = now, 0
        count = max(0, min(requested, limit - used_count))
        self._local_counts[tenant, limit_name] = start_second, used_count + count
        return count
