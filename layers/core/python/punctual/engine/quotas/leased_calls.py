"""Calls, limited over many instances: each is promised a part of the rate for some seconds."""

from collections.abc import Callable
from datetime import datetime

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import EPOCH
from punctual.domain.tenants.limits import Limits
from punctual.domain.tenants.quota_ledger import TOKEN
from punctual.domain.tenants.streams import AFTER, FINE, SECOND, Stream
from punctual.engine.quotas.drips import Drip, Pace
from punctual.engine.quotas.leased_row import Contended, Heat, Leases, Shares
from punctual.engine.quotas.limits import LimitsOf, Log, too_many_calls
from punctual.engine.quotas.promising import LONGEST, NOTHING, SHUT, WORTH, Grant, Wish, granted

CALLS = "calls"
LIVES = 1.0  # seconds that leased tokens may be used
CUP = 2  # tokens that an instance keeps of what flows to it
CUP_SECONDS = 0.5  # of a flow, where that is more
BACK = 2  # tokens of what spilled over come back, and so many seconds' worth: what was not used
BACK_SECONDS = 3  # long ago is nothing that others may use now
SPAN = 10.0  # seconds over which an instance's pace is taken
FIRST = 4  # seconds that an instance's first promise may last; each may twice as long
SHUT_MOST = 2.0  # seconds at most until an instance that got too little asks again
ALONE = 1.0  # seconds until a row that did not answer is asked again,
ALONE_MOST = 2.0  # and at the most; all that could not renew at once do not ask at once
LITTLE = 50  # who was promised less than this part of the rate has it meanwhile
EXACT = 3  # calls a second up to which no flow is promised: some of it would always be idle
_PARTS = TOKEN // FINE  # that a flow of one brings in a second


class _Mine:
    """What this instance has of one tenant's tokens."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.heat = Heat()
        self.asked = Pace(SPAN)
        self.given = Pace(SPAN)
        self.left = 0  # of what was taken at once
        self.taken_at = 0.0
        self.stored = 0  # of what was set aside
        self.aside = (0, 0)  # how many that were, and the second of the row's clock until when
        self.drip = Drip(0, 0.0, 0.0, 0.0)
        self.until = 0  # second of the row's clock, until which it is promised
        self.turn = FIRST
        self.spare = 0  # parts that were taken, and not used
        self.tried_at = -1.0
        self.shut_until = 0.0
        self.alone = False  # the drip is nobody's promise
        self.again = ALONE
        self.pace = 0  # the flow of such
        self.owed = 0  # tokens used of it
        self.humble_until = 0.0

    def has(self, now: float, wall: int) -> bool:
        """A token of its own; it is used then."""
        self._tidy(now, wall)
        if self.drip.take(now):
            self.owed += self.alone
        elif self.left:
            self.left -= 1
        elif self.stored:
            self.stored -= 1
        else:
            return False
        self.given.add(now)
        return True

    def _tidy(self, now: float, wall: int) -> None:
        """What was set aside too long ago is nobody's: the row has forgotten it. A steady clock
        need not go on while nobody calls, so that is the wall's to say."""
        if self.left and now - self.taken_at >= LIVES:
            self.spare += self.left * TOKEN
            self.left = 0
        if self.stored and wall >= self.aside[1] * SECOND:
            self.stored = 0

    def allow(self, rate: int) -> None:
        """What was set aside under another limit is nobody's."""
        if rate != self.rate:
            self.rate, self.stored = rate, 0

    def may_ask(self, now: float) -> bool:
        """Not before there is something, but once when its promise has ended."""
        return now >= self.shut_until or now >= self.drip.until > self.tried_at

    def wish(self, rate: int, heat: int, now: float) -> Wish:
        self.tried_at = now
        self.drip.run(now)
        if rate <= EXACT:
            return Wish(1, 0, self.turn, self.spare, self.owed, store=WORTH, aside=self.aside)
        flow = self.asked.flow(now)
        if self.alone or now < self.humble_until:
            flow = min(flow, self.pace)
        flows = now < self.drip.until + AFTER and not self.alone
        back = min(self.drip.spilt, BACK * TOKEN + BACK_SECONDS * flow * _PARTS)
        return Wish(
            max(heat, _cup(flow)),
            flow,
            self.turn,
            self.spare + (0 if self.alone else back),
            self.owed,
            (self.drip.flow, self.until) if flows else (0, 0),
            WORTH,
            self.aside,
        )

    def got(self, grant: Grant, wish: Wish, now: float) -> None:
        enough = grant.tokens >= wish.tokens
        self.shut_until = now if enough else now + min(SHUT_MOST, grant.gathers)
        if not grant.changed:
            return
        self.spare = self.owed = 0
        parts = 0 if self.alone else self.drip.parts
        if self.alone:  # the others come back as well, and had the rest
            self.alone, self.humble_until = False, now + self.again
        self.aside = grant.aside
        self.stored = grant.aside[0]
        self.until = grant.until
        self.turn = min(LONGEST, 2 * self.turn)
        self.drip = _drip(grant.flow, now, grant.seconds, parts)
        if grant.flow and grant.tokens <= _cup(grant.flow):
            self.drip.pour(grant.tokens * TOKEN)
        else:
            self.left, self.taken_at = grant.tokens, now

    def go_alone(self, rate: int, now: float) -> None:
        """At four fifths of its promise; what is used so is owed."""
        self.again = min(ALONE_MOST, self.again * 1.2) if self.alone else ALONE
        self.shut_until = now + self.again
        if now < self.drip.until:
            return
        if not self.alone:
            self.spare += self.drip.spilt + self.drip.parts
            flow = self.drip.flow or min(rate * FINE, self.given.flow(now))
            self.pace = max(flow * 4 // 5, rate * FINE // LITTLE)
            self.alone = True
            self.drip.parts = max(TOKEN, self.drip.parts)
        self.drip = _drip(self.pace, now, self.again, self.drip.parts)


def _drip(flow: int, now: float, seconds: float, parts: int) -> Drip:
    return Drip(flow, now, now + seconds, max(_cup(flow), CUP_SECONDS * flow / FINE), parts)


def _cup(flow: int) -> int:
    """Nobody is promised less than one a second, so all cups hold two seconds' worth at most."""
    return CUP if flow >= FINE else 1


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
        self._leases = Leases(shares, CALLS, NOTHING, Stream, steady)
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
            mine = self._mine[tenant] = _Mine(rate)
        now = self._steady()
        mine.allow(rate)
        mine.asked.add(now)
        heat = min(mine.heat.add(1, now), rate)
        if mine.has(now, self._wall()):
            return
        if mine.may_ask(now):
            self._lease(tenant, mine, limits, rate, mine.wish(rate, heat, now), now)
            if mine.has(now, self._wall()):
                return
        raise too_many_calls(limits, min(mine.drip.next_in(now), max(0.0, mine.shut_until - now)))

    def _lease(
        self, tenant: str, mine: _Mine, limits: Limits, rate: int, wish: Wish, now: float
    ) -> None:
        # What comes in a second fits in, or it would be lost between two that ask.
        holds = max(limits.at_once, rate)
        try:
            grant = self._leases.change(
                tenant, lambda stream: granted(stream, rate, holds, self._wall(), wish)
            )
        except Contended:  # whoever calls from many places at once is not let in by that
            mine.shut_until = now + SHUT
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit=CALLS, error=error.message)
            mine.go_alone(rate, now)
        else:
            mine.got(grant, wish, now)

    def _wall(self) -> int:
        """Asked for once the row was read: its answer may have put the clock right."""
        return round((self._clock() - EPOCH).total_seconds() * SECOND)
