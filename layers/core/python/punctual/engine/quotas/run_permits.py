"""Permits for runs to start: leased starts of a minute, and places held for each tenant."""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from math import ceil
from threading import Lock
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.tenants.limits import Limits
from punctual.domain.tenants.quota_ledger import (
    SECOND,
    Places,
    Window,
    WindowRule,
    busy,
    current_places,
    held,
    hold,
)
from punctual.engine.ports.log import Log
from punctual.engine.ports.quota_rows import QuotaRows
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.quotas.leased_row import Contended, LeasedRow, RecentDemand
from punctual.engine.quotas.leased_window import LeasedWindow, microseconds

STARTS, PLACES = "starts", "places"
MINUTE_SECONDS = 60
PLACE_SECONDS = 30  # that a place is held; after a crash others have it then
RENEW_SECONDS = 15  # before its end a place is renewed
RETRY_SECONDS = 1  # at least, until an instance that got too few asks again
PLACE_RETRY_SECONDS = 5  # until a place may be free
QUEUE_MARKS = "ghijklmn"  # an instance's name is hexadecimal, so it begins with none of them


class Permitted(NamedTuple):
    """How many may start; the others may be asked for again after so many seconds."""

    number: int
    again_after: float = 0.0


class Queue(NamedTuple):
    """The queue that an instance takes from, and how many executors take from it at a time."""

    mark: str = ""  # one character; the names of holders of its places begin with it
    executors: int = 0


class _Held(NamedTuple):
    """`is_tight` if other instances may lack places."""

    places: int
    is_tight: bool


class _Tenant:
    """What this instance has of one tenant's places."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.demand = RecentDemand()
        self.places = 0
        self.until = 0  # second
        self.active = 0
        self.is_tight = False
        self.refused_at: int | None = None
        self.again_at = 0  # microseconds, as `refused_at`


class RunPermits:
    """Permits for runs to start, from `ask` until `end`, which is called once for each.

    An instance that holds places counts as one executor of its queue, however many it holds.
    """

    def __init__(
        self,
        limits_of: LimitsOf,
        rows: QuotaRows,
        name: str,
        clock: Callable[[], datetime],
        log: Log,
        executors: Mapping[str, int] | None = None,
    ) -> None:
        """`executors`: how many take from each queue at a time."""
        self._limits_of = limits_of
        self._starts = LeasedWindow(rows, STARTS, Window(), clock)
        self._places = LeasedRow(rows, PLACES, Places())
        self._name = name[-12:]  # the random end; the row grows with it
        self._clock = clock
        self._log = log
        queues = sorted((executors or {}).items())
        self._queues = {
            queue: Queue(mark, count)
            for mark, (queue, count) in zip(QUEUE_MARKS, queues, strict=False)
        }
        self._tenants: dict[str, _Tenant] = {}
        self._lock = Lock()

    def ask(self, tenant: str, wanted: int, queue: str = "") -> Permitted:
        limits = self._limits_of(tenant)
        if not limits.hold_runs:
            return Permitted(wanted)
        with self._lock:
            return self._ask(tenant, limits, wanted, self._queues.get(queue, Queue()))

    def _ask(self, tenant: str, limits: Limits, wanted: int, queue: Queue) -> Permitted:
        mine = self._tenants.setdefault(tenant, _Tenant(queue))
        if mine.queue != queue:  # the next lease is for this queue
            mine.queue, mine.places = queue, 0
        now = self._now()
        mine.demand.add(wanted, now)
        is_asked = mine.refused_at is None or not (
            mine.refused_at <= now < mine.refused_at + RETRY_SECONDS * SECOND
        )
        try:
            permitted = self._permitted(tenant, limits, mine, wanted, is_asked)
        except Contended:
            permitted = Permitted(0, RETRY_SECONDS)
        except Unavailable as error:
            # The claims that follow bound it: they need the store as well.
            self._log("limits_unavailable", tenant=tenant, limit="runs", error=error.message)
            permitted = Permitted(wanted)
        mine.active += permitted.number
        if permitted.number == wanted:
            return permitted
        now = self._now()
        if is_asked:
            mine.refused_at = now
            mine.again_at = now + round(permitted.again_after * SECOND)
        return Permitted(permitted.number, max(RETRY_SECONDS, (mine.again_at - now) / SECOND))

    def _permitted(
        self, tenant: str, limits: Limits, mine: _Tenant, wanted: int, is_asked: bool
    ) -> Permitted:
        """Return the permits; the row is asked only if `is_asked`."""
        number, again_after = wanted, 0.0
        if self._needs_places(limits, mine):
            if is_asked and self._free_places(limits, mine) < wanted:
                self._lease_places(tenant, limits, mine, wanted)
            number = min(wanted, self._free_places(limits, mine))
            again_after = 0.0 if number == wanted else PLACE_RETRY_SECONDS
        limit = limits.runs_per_minute
        if limit is None or not number:
            return Permitted(number, again_after)
        rule = WindowRule(limit, MINUTE_SECONDS)
        if not is_asked:
            return Permitted(self._starts.spend(tenant, number))
        starts = self._starts.take(tenant, number, lambda: rule)
        return Permitted(starts.number, max(again_after, starts.again_after))

    def end(self, tenant: str, started: bool) -> None:
        """End one permit; a run that never started leaves its start to another."""
        mine = self._tenants.get(tenant)
        if mine is None or not mine.active:
            return
        mine.active -= 1
        if not started:
            self._starts.put_back(tenant, 1)

    def tend(self) -> None:
        """Renew the places of runs that work; another thread may call it."""
        with self._lock:
            for tenant, mine in list(self._tenants.items()):
                if self._is_aging(mine):
                    places = min(mine.places, mine.active)
                    self._settle(tenant, mine, places, self._second() + PLACE_SECONDS)

    @property
    def aging(self) -> bool:
        """Whether places of runs that work are to be renewed."""
        return any(self._is_aging(mine) for mine in list(self._tenants.values()))

    def rest(self) -> None:
        """Give back places that others lack: nothing runs here for now."""
        with self._lock:
            for tenant, mine in self._tenants.items():
                if mine.is_tight and mine.places > mine.active and self._second() < mine.until:
                    self._settle(tenant, mine, mine.active, mine.until)

    def _is_aging(self, mine: _Tenant) -> bool:
        is_held = bool(mine.active and mine.places)
        return is_held and self._second() >= mine.until - RENEW_SECONDS

    def _settle(self, tenant: str, mine: _Tenant, places: int, until: int) -> None:
        def decide(row: Places) -> tuple[Places, None]:
            row = current_places(row, self._second())
            return hold(row, self._holder(mine), places, until), None

        try:
            self._places.change(tenant, decide)
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit="runs", error=error.message)
            return
        mine.places, mine.until = places, until

    def _needs_places(self, limits: Limits, mine: _Tenant) -> bool:
        return limits.concurrent_runs is not None or self._executors(limits, mine) is not None

    def _executors(self, limits: Limits, mine: _Tenant) -> int | None:
        return limits.executors(mine.queue.executors) if mine.queue.mark else None

    def _free_places(self, limits: Limits, mine: _Tenant) -> int:
        if self._second() >= mine.until:
            mine.places = 0
        if limits.concurrent_runs is not None:
            return max(0, mine.places - mine.active)
        return sys.maxsize if mine.places else 0

    def _holder(self, mine: _Tenant) -> str:
        return mine.queue.mark + self._name

    def _lease_places(self, tenant: str, limits: Limits, mine: _Tenant, wanted: int) -> None:
        spare = ceil(mine.demand.per_second(self._now()))

        def decide(row: Places) -> tuple[Places, _Held | None]:
            return self._leased_places(row, limits, mine, wanted, spare)

        leased = self._places.change(tenant, decide)
        mine.is_tight = leased is None or leased.is_tight
        if leased is not None:
            mine.places, mine.until = leased.places, self._second() + PLACE_SECONDS

    def _leased_places(
        self, row: Places, limits: Limits, mine: _Tenant, wanted: int, spare: int
    ) -> tuple[Places, _Held | None]:
        """Return the row with places for up to `wanted` more, and spare ones while half is free."""
        holder, present = self._holder(mine), current_places(row, self._second())
        for queue in self._queues.values():
            if queue != mine.queue:  # an instance takes from one queue at a time
                present = hold(present, queue.mark + self._name, 0, 0)
        executors, is_tight = self._executors(limits, mine), False
        if executors is not None:
            others = busy(present, mine.queue.mark, but=holder)
            if others >= executors:
                return row, None
            # An idle executor keeps its place for a while, unless others may soon lack it.
            is_tight = 2 * (others + 1) > executors
        number, limit = wanted, limits.concurrent_runs
        if limit is None:
            spare = 0
        else:
            free = limit - held(present, but=holder) - mine.active
            number = min(wanted, free)
            if number <= 0:
                return row, None
            spare = max(0, min(spare, (free - number - limit // 2) // 4))
            is_tight |= free <= number + spare
        places = mine.active + number + spare
        present = hold(present, holder, places, self._second() + PLACE_SECONDS)
        return present, _Held(places, is_tight)

    def _now(self) -> int:
        return microseconds(self._clock())

    def _second(self) -> int:
        return self._now() // SECOND
