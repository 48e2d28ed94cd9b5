"""Calls, limited over many instances: each leases tokens for about a second of its calls."""

from collections.abc import Callable
from datetime import datetime

from punctual.domain.errors import Unavailable
from punctual.domain.limits import Limits
from punctual.domain.placement import EPOCH
from punctual.domain.shares import Bucket, full, refilled, tokens, wait, without
from punctual.engine.leasing import Contended, Heat, Leases, Shares
from punctual.engine.limits import LimitsOf, Log, too_many_calls

CALLS = "calls"
LIVES = 1.0  # seconds that leased tokens may be used
KEPT = 60.0  # seconds that a twentieth of a second's worth may: for who calls now and then
TWENTIETH = 20
MANY = 100  # calls a second, for which gathering spares writes and refuses nobody
SHUT = 0.5  # seconds at least until an instance that got nothing asks again
OPEN = 5.0  # seconds that an instance goes by its own count, where the row does not answer
_NOTHING = Bucket(0, -1)  # nobody has called yet


class _Mine:
    """What this instance has of one tenant's tokens."""

    def __init__(self) -> None:
        self.heat = Heat()
        self.left = 0
        self.leased_at = 0.0
        self.shut_until = 0.0
        self.token_at = 0.0  # when there may be another, while it is shut
        self.alone: Bucket | None = None  # while the row does not answer
        self.alone_until = 0.0


class LeasedCalls:
    def __init__(
        self,
        limits_of: LimitsOf,
        shares: Shares,
        clock: Callable[[], datetime],
        steady: Callable[[], float],
        log: Log,
    ) -> None:
        self._limits_of = limits_of
        self._leases = Leases(shares, CALLS, _NOTHING, Bucket, steady)
        self._clock = clock
        self._steady = steady
        self._log = log
        self._mine: dict[str, _Mine] = {}

    def call(self, tenant: str) -> None:
        limits = self._limits_of(tenant)
        rate = limits.calls_per_second
        if rate is None:
            return
        mine = self._mine.get(tenant)
        if mine is None:
            mine = self._mine[tenant] = _Mine()
        now = self._steady()
        wanted = min(mine.heat.add(1, now), rate)
        age = now - mine.leased_at
        if age >= LIVES:
            mine.left = min(mine.left, rate // TWENTIETH) if age < KEPT else 0
        if not mine.left and now >= mine.shut_until:
            self._lease(tenant, mine, limits, rate, wanted)
        if not mine.left:
            raise too_many_calls(limits, max(0.0, mine.token_at - now))
        mine.left -= 1

    def _lease(self, tenant: str, mine: _Mine, limits: Limits, rate: int, wanted: int) -> None:
        now = self._steady()
        if now < mine.alone_until:
            self._go_alone(mine, limits, rate, now)
            return
        # What comes in a second fits in, or it would be lost between two that ask.
        holds = max(limits.at_once, rate)
        most = max(wanted, rate // TWENTIETH)
        wall = (self._clock() - EPOCH).total_seconds()
        try:
            mine.left, missing = self._leases.change(
                tenant, lambda bucket: _take(bucket, rate, holds, round(wall * 1_000_000), most)
            )
        except Contended:  # whoever calls from many places at once is not let in by that
            mine.token_at = mine.shut_until = now + SHUT
            return
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit=CALLS, error=error.message)
            mine.alone_until = now + OPEN
            mine.alone = mine.alone or full(rate, round(now * 1_000_000))
            self._go_alone(mine, limits, rate, now)
            return
        mine.alone = None
        mine.leased_at = now
        if mine.left < most:  # that was all: what comes is gathered before it is asked for
            mine.token_at = now + missing
            gather = SHUT * min(1.0, rate / MANY) if mine.left else SHUT
            mine.shut_until = now + max(missing, gather)

    def _go_alone(self, mine: _Mine, limits: Limits, rate: int, now: float) -> None:
        """The whole rate for each instance: open, but not without a bound."""
        holds = max(limits.at_once, rate)
        bucket = refilled(mine.alone or _NOTHING, rate, holds, round(now * 1_000_000))
        mine.left = min(1, tokens(bucket))
        mine.leased_at = now
        mine.alone = without(bucket, mine.left)
        mine.token_at = now + wait(mine.alone, rate)


def _take(
    bucket: Bucket, rate: int, holds: int, now: int, most: int
) -> tuple[Bucket, tuple[int, float]]:
    there = full(holds, now) if bucket.at < 0 else refilled(bucket, rate, holds, now)
    count = min(most, tokens(there))
    if not count:  # written only where it fills from another moment on
        return there if there.at < bucket.at else bucket, (0, wait(there, rate))
    rest = without(there, count)
    return rest, (count, wait(rest, rate))
