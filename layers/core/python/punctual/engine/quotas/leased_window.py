"""Uses of a limit that this instance leased from the tenant's row: calls, orders, jobs, starts."""

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from punctual.domain.identifiers import EPOCH
from punctual.domain.tenants.quota_ledger import SECOND, Lease, LeaseRequest, Rule
from punctual.engine.ports.quota_rows import QuotaRows
from punctual.engine.ports.quotas import Granted
from punctual.engine.quotas.leased_row import LeasedRow, RecentDemand

S = TypeVar("S")


def microseconds(at: datetime) -> int:
    return round((at - EPOCH).total_seconds() * SECOND)


class _Leased:
    """What this instance has of one tenant's limit."""

    def __init__(self) -> None:
        self.demand = RecentDemand()
        self.lease = Lease(0)
        self.left = 0
        self.unused = 0  # of the lease, to be given back
        self.owed = 0  # admitted without the row
        self.lent = 0  # of `left`, when the row did not answer
        self.asked_at: int | None = None

    def end(self) -> None:
        """Give up what is left."""
        if not self.lent:
            self.unused = min(self.left, self.lease.counted)
        self.settle_loan()
        self.left = 0

    def settle_loan(self) -> None:
        self.owed += max(0, self.lent - self.left) if self.lent else 0
        self.lent = 0


class LeasedWindow(Generic[S]):
    """Uses are spent from memory. If too few are left, a lease brings what is needed and a spare.

    The wall clock decides when a lease ends: a steady clock may stand still while the environment
    of a function is frozen.
    """

    def __init__(
        self,
        rows: QuotaRows,
        what: str,
        empty: S,
        clock: Callable[[], datetime],
        seconds_between_asks: int = 0,
    ) -> None:
        """`seconds_between_asks`: the row is asked again after so long; until then uses fail."""
        self._row = LeasedRow(rows, what, empty)
        self._clock = clock
        self._pause = seconds_between_asks * SECOND
        self._leased: dict[str, _Leased] = {}

    def take(
        self, tenant: str, asked: int, rule: Callable[[], Rule[S]], whole: bool = False
    ) -> Granted:
        """Use up to `asked`; all or none if `whole`. `rule` is called only to ask the row."""
        mine = self._leased.setdefault(tenant, _Leased())
        now = self._now()
        mine.demand.add(asked, now)
        if mine.left and now >= mine.lease.ends_at:
            mine.end()
        if mine.left >= asked:
            mine.left -= asked
            return Granted(asked)
        if mine.asked_at is not None and mine.asked_at <= now < mine.asked_at + self._pause:
            resumes_in = (mine.asked_at + self._pause - now) / SECOND
            return Granted(0 if whole else self.spend(tenant, asked), resumes_in)
        return self._ask(tenant, mine, asked, rule(), whole)

    def _ask(self, tenant: str, mine: _Leased, asked: int, rule: Rule[S], whole: bool) -> Granted:
        mine.settle_loan()
        need = asked - mine.left
        per_second = mine.demand.per_second(self._now())
        request = LeaseRequest(need, per_second, whole, mine.lease, mine.unused, mine.owed)
        try:
            # The time is read after the row: the answer may have put the clock right.
            lease = self._row.change(tenant, lambda row: rule.lease(row, request, self._now()))
        finally:
            mine.asked_at = self._now()
        if lease.number or mine.owed:
            mine.lease, mine.owed, mine.unused = lease, 0, 0
        if not lease.number:
            return Granted(0 if whole else self.spend(tenant, asked), lease.wait)
        granted = lease.number + mine.left
        mine.left = lease.spare
        return Granted(granted, 0.0 if granted == asked else lease.wait)

    def lend(self, tenant: str, count: int, seconds: float) -> None:
        """Allow uses while the row does not answer; the next lease pays for those that are used."""
        mine = self._leased.setdefault(tenant, _Leased())
        mine.left = mine.lent = count
        mine.lease = mine.lease._replace(ends_at=self._now() + round(seconds * SECOND))

    def put_back(self, tenant: str, count: int) -> None:
        """Return uses that were granted and not made."""
        mine = self._leased.get(tenant)
        if mine is not None and self._now() < mine.lease.ends_at:
            mine.left += count

    def drop(self, tenant: str) -> None:
        """Give up what is left of a lease, because the limit was changed."""
        mine = self._leased.get(tenant)
        if mine is not None:
            mine.end()

    def spend(self, tenant: str, asked: int) -> int:
        """Use up to `asked` of what is left, without the row."""
        mine = self._leased.get(tenant)
        if mine is None or self._now() >= mine.lease.ends_at:
            return 0
        count = min(mine.left, asked)
        mine.left -= count
        return count

    def _now(self) -> int:
        return microseconds(self._clock())
