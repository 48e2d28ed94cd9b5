"""The quotas of a deployment: limits that all instances share through leased rows."""

from collections.abc import Callable
from datetime import datetime
from math import floor, inf

from punctual.domain.errors import Unavailable
from punctual.domain.tenants.quota_ledger import SECOND, CallRow, CallRule, Window, WindowRule
from punctual.engine.ports.log import Log
from punctual.engine.ports.quota_rows import QuotaRows
from punctual.engine.ports.quotas import Granted, LimitsOf
from punctual.engine.quotas.leased_row import Contended, RecentDemand
from punctual.engine.quotas.leased_window import LeasedWindow, microseconds
from punctual.engine.quotas.limits import too_many_calls

CALLS, JOBS, ORDERS = "calls", "jobs", "orders"
COUNT_DELAY_SECONDS = 15  # after it a new job is surely in the counters
MINUTE_SECONDS = 60
OUTAGE_JOBS_PART = 20  # one part of so many of the quota, a minute and instance, without the rows
OUTAGE_CALLS_PART = 50  # least part of the rate that an instance admits without the rows
OUTAGE_PACE = 0.8  # of the calls an instance was granted in the last seconds
GRANTED_SECONDS = 10.0
OUTAGE_SECONDS = 60  # failures so close together are one outage, with one pace
SECONDS_BETWEEN_ASKS = 1
LOAN_SECONDS = 1.5


class _Calls:
    """The calls of one tenant at this instance, and its pace while the row does not answer."""

    def __init__(self, rule: CallRule) -> None:
        self.rule = rule
        self.granted = RecentDemand(GRANTED_SECONDS)
        self._pace = 0.0
        self._credit = 0.0  # calls that the pace has earned
        self._lent_at: int | None = None

    def lent(self, now: int) -> int:
        """Return how many calls may pass without the row until it is asked again."""
        if self._lent_at is None or now > self._lent_at + OUTAGE_SECONDS * SECOND:
            recent = min(self.rule.rate, OUTAGE_PACE * self.granted.per_second(now))
            self._pace = max(recent, self.rule.rate / OUTAGE_CALLS_PART)
            self._credit = 1.0
        else:
            earned = max(0, now - self._lent_at) / SECOND * self._pace
            self._credit = min(self._credit + earned, max(1.0, LOAN_SECONDS * self._pace))
        self._lent_at = now
        count = floor(self._credit)
        self._credit -= count
        return count


class LeasedQuotas:
    """Quotas that fail open within bounds if the rows do not answer.

    Calls then go at four fifths of the instance's recent pace. Orders go by the instance's own
    count, up to the whole limit. New jobs go up to a twentieth of the quota a minute.
    """

    def __init__(
        self,
        limits_of: LimitsOf,
        rows: QuotaRows,
        counted_jobs: Callable[[str], int],
        clock: Callable[[], datetime],
        log: Log,
    ) -> None:
        self._limits_of = limits_of
        self._counted_jobs = counted_jobs
        self._clock = clock
        self._log = log
        self._calls_leased = LeasedWindow(rows, CALLS, CallRow(), clock, SECONDS_BETWEEN_ASKS)
        self._jobs_leased = LeasedWindow(rows, JOBS, Window(), clock)
        self._orders_leased = LeasedWindow(rows, ORDERS, Window(), clock)
        self._calls: dict[str, _Calls] = {}
        self._local: dict[tuple[str, str], tuple[int, int]] = {}

    def call(self, tenant: str) -> None:
        limits = self._limits_of(tenant)
        if limits.calls_per_second is None:
            return
        rule = CallRule(limits.calls_per_second, limits.at_once)
        calls = self._calls.get(tenant)
        if calls is None:
            calls = self._calls[tenant] = _Calls(rule)
        if rule != calls.rule:
            calls.rule = rule
            self._calls_leased.drop(tenant)
        granted = self._granted_call(tenant, calls)
        if not granted.number:
            raise too_many_calls(limits, granted.again_after)
        calls.granted.add(1, microseconds(self._clock()))

    def _granted_call(self, tenant: str, calls: _Calls) -> Granted:
        try:
            return self._calls_leased.take(tenant, 1, lambda: calls.rule)
        except Contended:
            return Granted(0, SECONDS_BETWEEN_ASKS)
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit=CALLS, error=error.message)
        count = calls.lent(microseconds(self._clock()))
        self._calls_leased.lend(tenant, count, LOAN_SECONDS)
        return Granted(self._calls_leased.spend(tenant, 1), SECONDS_BETWEEN_ASKS)

    def jobs(self, tenant: str, asked: int) -> int:
        limit = self._limits_of(tenant).jobs
        if limit is None:
            return asked

        def rule(limit: int = limit) -> WindowRule:
            return WindowRule(max(0, limit - self._counted_jobs(tenant)), COUNT_DELAY_SECONDS)

        try:
            return self._jobs_leased.take(tenant, asked, rule).number
        except Unavailable as error:
            part = max(1, limit // OUTAGE_JOBS_PART)
            return self._counted_locally(tenant, JOBS, asked, part, error)

    def orders(self, tenant: str, asked: int, whole: bool = False) -> Granted:
        limit = self._limits_of(tenant).runs_per_minute
        if limit is None or asked == 0:
            return Granted(asked)
        rule = WindowRule(limit, MINUTE_SECONDS)
        if whole and asked > limit:
            return Granted(0, inf)
        try:
            return self._orders_leased.take(tenant, asked, lambda: rule, whole)
        except Unavailable as error:
            count = self._counted_locally(tenant, ORDERS, asked, limit, error)
            if whole and count < asked:
                return Granted(0, MINUTE_SECONDS)
            return Granted(count, 0.0 if count == asked else MINUTE_SECONDS)

    def _counted_locally(
        self, tenant: str, what: str, asked: int, limit: int, error: Unavailable
    ) -> int:
        """Return how many may pass, by this instance's own count of the minute."""
        if isinstance(error, Contended):
            raise error
        self._log("limits_unavailable", tenant=tenant, limit=what, error=error.message)
        now = microseconds(self._clock()) // SECOND
        since, used = self._local.get((tenant, what), (now, 0))
        if not since <= now < since + MINUTE_SECONDS:
            since, used = now, 0
        count = max(0, min(asked, limit - used))
        self._local[tenant, what] = since, used + count
        return count
