"""So many in a span of time, over many instances: for orders, and for jobs not yet counted."""

from collections.abc import Callable
from datetime import datetime
from math import floor, inf
from typing import NamedTuple

from punctual.domain.identifiers import EPOCH
from punctual.domain.tenants.quota_ledger import EMPTY, Ledger, at, room_in, take, used
from punctual.engine.quotas.leased_row import Heat, Leases, Shares
from punctual.engine.quotas.limits import Granted

AHEAD = 10  # seconds that what was leased beyond the need may be used

SOON_USED = 2  # seconds, where few are left


class _Got(NamedTuple):
    """`more` beside what was needed, to be used before `until`; `wait` for the next."""

    number: int
    more: int = 0
    until: int = 0
    wait: int = 0


class _Mine:
    def __init__(self) -> None:
        self.heat = Heat()
        self.left = 0
        self.until = 0
        self.booked = 0  # by the last lease, which counts until `counted`
        self.counted = 0
        self.unused = 0  # of those, to be given back


class LeasedWindow:
    """What is taken counts for `span` seconds after the last moment at which it may be used, so
    never more than the limit is used in any span; up to two seconds of it are lost by that.

    An instance leases about a second's worth more than it needs, a quarter of what is left at most.
    """

    def __init__(
        self,
        shares: Shares,
        what: str,
        span: int,
        clock: Callable[[], datetime],
        steady: Callable[[], float],
    ) -> None:
        self._leases = Leases(shares, what, EMPTY, Ledger, steady)
        self._span = span
        self._clock = clock
        self._steady = steady
        self._mine: dict[str, _Mine] = {}

    def take(
        self, tenant: str, asked: int, most: Callable[[], int], whole: bool = False
    ) -> Granted:
        """`most` is asked only where this instance has not enough."""
        mine = self._mine.setdefault(tenant, _Mine())
        now = floor((self._clock() - EPOCH).total_seconds())
        heat = mine.heat.add(asked, self._steady())
        if now >= mine.until and mine.left:
            mine.unused, mine.left = min(mine.left, mine.booked), 0
        if mine.left >= asked:
            mine.left -= asked
            return Granted(asked)
        limit = most()
        if whole and asked > limit:
            return Granted(0, inf)
        need = asked - mine.left

        def decide(ledger: Ledger) -> tuple[Ledger, _Got]:
            there = at(ledger, now)
            if mine.unused and mine.counted > now:
                there = take(there, -mine.unused, mine.counted)
            free = max(0, limit - used(there))
            count = min(need, free)
            if not count or (whole and count < need):
                # As it was: a refusal writes nothing.
                return ledger, _Got(0, wait=room_in(there, limit, now, need if whole else 1))
            left = free - count
            more = min(heat, left // 4)
            ahead = AHEAD if left > limit // 2 else SOON_USED
            until = now + (ahead if more else 1)
            new = take(there, count + more, until + self._span)
            return new, _Got(count, more, until, room_in(new, limit, now))

        got = self._leases.change(tenant, decide)
        if not got.number:
            return Granted(0 if whole else self._spend(mine, asked), float(max(1, got.wait)))
        granted = got.number + mine.left
        mine.left, mine.until = got.more, got.until
        mine.booked, mine.counted, mine.unused = got.more, got.until + self._span, 0
        return Granted(granted, 0.0 if granted == asked else float(max(1, got.wait)))

    def _spend(self, mine: _Mine, asked: int) -> int:
        count = min(mine.left, asked)
        mine.left -= count
        return count
