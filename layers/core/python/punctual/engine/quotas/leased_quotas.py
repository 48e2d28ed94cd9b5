"""What calls of a deployment ask: the limits that its instances share, through leases."""

from collections.abc import Callable
from datetime import datetime

from punctual.domain.errors import Unavailable
from punctual.engine.quotas.leased_calls import LeasedCalls
from punctual.engine.quotas.leased_row import Contended, Shares
from punctual.engine.quotas.leased_window import LeasedWindow
from punctual.engine.quotas.limits import Granted, LimitsOf, Log

JOBS, ORDERS = "jobs", "orders"
COUNTED = 15  # seconds after which a new job is surely among those counted
MINUTE = 60
TWENTIETH = 20  # of a quota goes through while nobody can be asked, for each instance


class LeasedQuotas:
    """Where the rows do not answer, calls and orders go by each instance's own count, for the
    whole limit each, and new jobs up to a twentieth of theirs a minute: a limit must not be what
    makes an installation fail."""

    def __init__(
        self,
        limits_of: LimitsOf,
        shares: Shares,
        counted: Callable[[str], int],
        clock: Callable[[], datetime],
        steady: Callable[[], float],
        log: Log,
    ) -> None:
        self._limits_of = limits_of
        self._counted = counted
        self._steady = steady
        self._log = log
        self._calls = LeasedCalls(limits_of, shares, clock, steady, log)
        self._jobs = LeasedWindow(shares, JOBS, COUNTED, clock, steady)
        self._orders = LeasedWindow(shares, ORDERS, MINUTE, clock, steady)
        self._alone: dict[tuple[str, str], tuple[float, int]] = {}

    def call(self, tenant: str) -> None:
        self._calls.call(tenant)

    def jobs(self, tenant: str, asked: int) -> int:
        most = self._limits_of(tenant).jobs
        if most is None:
            return asked
        limit = most
        try:
            return self._jobs.take(
                tenant, asked, lambda: max(0, limit - self._counted(tenant))
            ).number
        except Unavailable as error:
            return self._by_itself(tenant, JOBS, asked, max(1, most // TWENTIETH), error)

    def orders(self, tenant: str, asked: int, whole: bool = False) -> Granted:
        most = self._limits_of(tenant).runs_per_minute
        if most is None or asked == 0:
            return Granted(asked)
        limit = most
        try:
            return self._orders.take(tenant, asked, lambda: limit, whole)
        except Unavailable as error:
            count = self._by_itself(tenant, ORDERS, asked, most, error)
            if whole and count < asked:
                return Granted(0, MINUTE)
            return Granted(count, 0.0 if count == asked else MINUTE)

    def _by_itself(self, tenant: str, what: str, asked: int, most: int, error: Unavailable) -> int:
        if isinstance(error, Contended):  # a crowd is asked to come again, not let through
            raise error
        self._log("limits_unavailable", tenant=tenant, limit=what, error=error.message)
        now = self._steady()
        since, used = self._alone.get((tenant, what), (now, 0))
        if now - since >= MINUTE:
            since, used = now, 0
        count = max(0, min(asked, most - used))
        self._alone[tenant, what] = since, used + count
        return count
