"""Which runs an instance may start: permits for starts and for places, leased for each tenant."""

from collections.abc import Callable, Mapping
from datetime import datetime
from math import floor
from threading import Lock
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import EPOCH
from punctual.domain.tenants.limits import Limits
from punctual.domain.tenants.quota_ledger import (
    EMPTY,
    Ledger,
    at,
    busy,
    held,
    hold,
    room_in,
    take,
    used,
)
from punctual.engine.quotas.leased_row import Contended, Heat, Leases, Shares
from punctual.engine.quotas.limits import LimitsOf, Log

RUNS = "runs"
MINUTE = 60
AHEAD = 10  # seconds that starts beyond the need may be used
SOON_USED = 2  # seconds, where few are left
PLACES = 30  # seconds that places are held: after a crash others have them then
RENEW = 15  # seconds before their end they are renewed
SHUT = 1.0  # seconds at least until an instance that got too few asks again
MARKS = "ghijklmn"  # of queues; no instance's name begins with one, for it is hexadecimal
SOON = 5  # seconds until a place may be free, where none is


class Permitted(NamedTuple):
    """How many may start; the others may be asked for in so many seconds."""

    number: int
    again_after: float = 0.0


class Place(NamedTuple):
    """The queue that an instance takes from, and how many executors take from it at a time."""

    mark: str = ""  # one character; what is held for this queue has a name that begins with it
    executors: int = 0


class _Got(NamedTuple):
    """What was leased: starts until then, and places; `wait` seconds for what was not."""

    wait: int
    tight: bool = False
    starts: int = 0
    until: int = 0
    places: int | None = None


class _Mine:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.heat = Heat()
        self.starts = 0  # leased and not used
        self.starts_until = 0
        self.booked = 0  # by the last lease, which counts until `counted`
        self.counted = 0
        self.unused = 0  # of those, to be given back
        self.places = 0
        self.places_until = 0
        self.active = 0
        self.tight = False  # nothing was left for others
        self.shut_until = 0.0
        self.again_at = 0.0


class RunPermits:
    """A start counts for a minute after the last moment at which it may be used, so there are
    never more in a minute than may be; a place is one's own until its time is over or it is given
    back. An instance that holds places is one executor of its queue, however many it holds.
    `ask` reserves; each of what it permits is then `end`ed, once."""

    def __init__(
        self,
        limits_of: LimitsOf,
        shares: Shares,
        name: str,
        clock: Callable[[], datetime],
        steady: Callable[[], float],
        log: Log,
        executors: Mapping[str, int] | None = None,
    ) -> None:
        """`executors`: how many take from each queue at a time."""
        self._limits_of = limits_of
        self._leases = Leases(shares, RUNS, EMPTY, Ledger, steady)
        self._name = name[-12:]  # random, and rows grow with it
        self._clock = clock
        self._steady = steady
        self._log = log
        queues = sorted((executors or {}).items())
        self._places = {
            name: Place(mark, most) for mark, (name, most) in zip(MARKS, queues, strict=False)
        }
        self._mine: dict[str, _Mine] = {}
        self._one_at_a_time = Lock()

    def ask(self, tenant: str, wanted: int, queue: str = "") -> Permitted:
        limits = self._limits_of(tenant)
        if not limits.hold_runs:
            return Permitted(wanted)
        with self._one_at_a_time:
            return self._ask(tenant, limits, wanted, self._places.get(queue, Place()))

    def _ask(self, tenant: str, limits: Limits, wanted: int, place: Place) -> Permitted:
        mine = self._mine.setdefault(tenant, _Mine(place))
        if mine.place != place:  # the next lease is for this queue
            mine.place, mine.places = place, 0
        now, steady = self._now(), self._steady()
        heat = mine.heat.add(wanted, steady)
        if now >= mine.starts_until and mine.starts:
            mine.unused, mine.starts = min(mine.starts, mine.booked), 0
        if now >= mine.places_until:
            mine.places = 0
        here = self._here(limits, mine, wanted)
        if here < wanted and steady >= mine.shut_until:
            try:
                mine.again_at = steady + self._lease(tenant, limits, mine, wanted, heat)
            except Contended:
                mine.again_at = steady + SHUT
            except Unavailable as error:
                # The claims that follow are what bounds it: they need the store as well.
                self._log("limits_unavailable", tenant=tenant, limit=RUNS, error=error.message)
                mine.active += wanted
                return Permitted(wanted)
            here = self._here(limits, mine, wanted)
            if here < wanted:
                mine.shut_until = steady + SHUT
        mine.active += here
        if limits.runs_per_minute is not None:
            mine.starts -= here
        return Permitted(here, max(SHUT, mine.again_at - steady) if here < wanted else 0.0)

    def end(self, tenant: str, started: bool) -> None:
        """Of one that was permitted; one that never started leaves its start to another."""
        mine = self._mine.get(tenant)
        if mine is None or not mine.active:
            return
        mine.active -= 1
        if not started and self._now() < mine.starts_until:
            mine.starts += 1

    def tend(self) -> None:
        """Renew the places of what runs; it may be called from another thread."""
        now = self._now()
        with self._one_at_a_time:
            for tenant, mine in list(self._mine.items()):
                if mine.active and mine.places and now >= mine.places_until - RENEW:
                    self._settle(tenant, mine, min(mine.places, mine.active), now + PLACES)

    @property
    def aging(self) -> bool:
        """Whether places of what runs are to be renewed."""
        soon = self._now() + RENEW
        return any(
            mine.active and mine.places and soon >= mine.places_until
            for mine in self._mine.values()
        )

    def rest(self) -> None:
        """Nothing runs here for now: what others lack is given back."""
        now = self._now()
        with self._one_at_a_time:
            for tenant, mine in self._mine.items():
                if mine.tight and mine.places > mine.active and now < mine.places_until:
                    self._settle(tenant, mine, mine.active, mine.places_until)

    def _settle(self, tenant: str, mine: _Mine, places: int, until: int) -> None:
        now = self._now()

        def decide(ledger: Ledger) -> tuple[Ledger, None]:
            return hold(at(ledger, now), self._named(mine), places, until), None

        try:
            self._leases.change(tenant, decide)
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit=RUNS, error=error.message)
            return
        mine.places, mine.places_until = places, until

    def _here(self, limits: Limits, mine: _Mine, wanted: int) -> int:
        if limits.runs_per_minute is not None:
            wanted = min(wanted, mine.starts)
        if limits.concurrent_runs is not None:
            wanted = min(wanted, mine.places - mine.active)
        if self._executors(limits, mine) is not None and not mine.places:
            return 0
        return max(0, wanted)

    def _named(self, mine: _Mine) -> str:
        return mine.place.mark + self._name

    def _executors(self, limits: Limits, mine: _Mine) -> int | None:
        return limits.executors(mine.place.executors) if mine.place.mark else None

    def _lease(self, tenant: str, limits: Limits, mine: _Mine, wanted: int, heat: int) -> float:
        """Seconds until there may be more, where these are too few."""
        now = self._now()

        def decide(ledger: Ledger) -> tuple[Ledger, _Got]:
            return self._decided(ledger, limits, mine, wanted, heat, now)

        got = self._leases.change(tenant, decide)
        mine.tight = got.tight
        if got.starts:
            mine.starts_until = min(mine.starts_until, got.until) if mine.starts else got.until
            mine.starts += got.starts
            mine.booked, mine.counted, mine.unused = got.starts, got.until + MINUTE, 0
        if got.places is not None:
            mine.places, mine.places_until = got.places, now + PLACES
        return float(max(1, got.wait))

    def _decided(
        self, ledger: Ledger, limits: Limits, mine: _Mine, wanted: int, heat: int, now: int
    ) -> tuple[Ledger, _Got]:
        """What is free, less than is wanted where it must be; some more while half is free."""
        there = at(ledger, now)
        if mine.unused and mine.counted > now:
            there = take(there, -mine.unused, mine.counted)
        may, wait = wanted, 0
        places, starts = limits.concurrent_runs, limits.runs_per_minute
        there = self._only(there, mine)
        free = 0
        executors = self._executors(limits, mine)
        others = busy(there, mine.place.mark, but=self._named(mine))
        if executors is not None and others >= executors:
            return ledger, _Got(SOON, tight=True)
        if places is not None:
            free = places - held(there, but=self._named(mine)) - mine.active
            if free < may:
                may, wait = max(0, free), SOON
        if starts is not None and mine.starts < may:
            left = max(0, starts - used(there))
            if mine.starts + left < may:
                may, wait = mine.starts + left, max(wait, self._free_in(there, starts, left, now))
        if not may:
            return ledger, _Got(wait, tight=True)
        new, leased, until = there, 0, 0
        if starts is not None and mine.starts < may:
            need = may - mine.starts
            left = starts - used(there) - need
            more = min(heat, left // 4)
            ahead = AHEAD if left > starts // 2 else SOON_USED
            leased, until = need + more, now + (ahead if more else 1)
            new = take(new, leased, until + MINUTE)
        if places is None and executors is None:
            return new, _Got(wait, False, leased, until)
        spare = 0 if places is None else max(0, min(heat, (free - may - places // 2) // 4))
        tight = places is not None and free <= may + spare
        # An executor that rests keeps its place for a while, unless others may soon lack it.
        tight |= executors is not None and 2 * (others + 1) > executors
        mine_now = mine.active + may + spare
        new = hold(new, self._named(mine), mine_now, now + PLACES)
        return new, _Got(wait, tight, leased, until, mine_now)

    def _only(self, ledger: Ledger, mine: _Mine) -> Ledger:
        """Without what this instance held for another queue: it takes from one at a time."""
        for place in self._places.values():
            if place != mine.place:
                ledger = hold(ledger, place.mark + self._name, 0, 0)
        return ledger

    def _free_in(self, ledger: Ledger, most: int, left: int, now: int) -> int:
        """Seconds until one more may start than are left, which start now."""
        soon = take(ledger, left, now + 1 + MINUTE) if left else ledger
        return room_in(soon, most, now)

    def _now(self) -> int:
        return floor((self._clock() - EPOCH).total_seconds())
