"""Permits for runs to start: leased starts of a minute, and places held for each tenant."""

import sys
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import Enum
from math import ceil
from threading import Lock
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.tenants.limits import TenantLimits
from punctual.domain.tenants.quota_ledger import (
    MICROSECONDS_PER_SECOND,
    Places,
    UseWindow,
    WindowRule,
    claim_mark,
    count_holders,
    count_places,
    drop_expired_places,
    free_claims,
    hold_claim,
    set_places,
)
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import LimitsOf
from punctual.engine.ports.tenants.quota_rows import QuotaRows
from punctual.engine.quotas.leased_row import Contended, LeasedRow, RecentDemand
from punctual.engine.quotas.leased_window import MINUTE_SECONDS, LeasedWindow, microseconds

STARTS_LIMIT, PLACES_LIMIT = "starts", "places"
PLACE_LEASE_SECONDS = 30  # after a crash other instances have the places then
PLACE_RENEWAL_SECONDS = 15  # a place is renewed this long before its end
PERMIT_RETRY_SECONDS = 1  # after too few permits, before the next request
PLACE_RETRY_SECONDS = 5  # until a place may be free
QUEUE_PREFIXES = "ghijklmn"  # an instance's name is hexadecimal, so it begins with none of them


class PermitGrant(NamedTuple):
    """Permits for `number` runs. The others may be requested after `retry_after_seconds`."""

    number: int
    retry_after_seconds: float = 0.0


class Handover(Enum):
    """What became of the permit of a run that is handed over."""

    MOVED = "MOVED"  # the claim holds the place
    UNCOUNTED = "UNCOUNTED"  # no limit, or the row does not answer
    REFUSED = "REFUSED"  # no place is free


class ExecutorQueue(NamedTuple):
    """The queue that an instance takes from, and how many executors take from it at a time."""

    prefix: str = ""  # one character, with which the names of its holders begin
    executors: int = 0


def executor_queues(executors: Mapping[str, int] | None) -> dict[str, ExecutorQueue]:
    """Return the queues by name, each with the prefix of its holders."""
    queues = sorted((executors or {}).items())
    return {
        queue: ExecutorQueue(prefix, count)
        for prefix, (queue, count) in zip(QUEUE_PREFIXES, queues, strict=False)
    }


class _LeasedPlaces(NamedTuple):
    """Leased places. `is_scarce`: other instances may lack places."""

    places: int
    is_scarce: bool


class _TenantPlaces:
    """The places of one tenant that this instance holds."""

    def __init__(self, queue: ExecutorQueue) -> None:
        self.queue = queue
        self.demand = RecentDemand()
        self.places = 0
        self.lease_end_second = 0
        self.active = 0
        self.is_scarce = False
        self.refused_at: int | None = None
        self.retry_at = 0  # microseconds, as `refused_at`


class RunPermits:
    """Permits for runs to start, from `request` until one `end_permit` for each.

    An instance that holds places counts as one executor of its queue, however many it holds.
    """

    def __init__(
        self,
        load_limits: LimitsOf,
        rows: QuotaRows,
        name: str,
        clock: Callable[[], datetime],
        log: Log,
        executors: Mapping[str, int] | None = None,
        places_limit: str = PLACES_LIMIT,
    ) -> None:
        """`executors` is the number of executors that take from each queue at a time.

        `places_limit` names the rows of places. Not only tenants have some: each script function
        has a row of its own, under its name.
        """
        self._load_limits = load_limits
        self._start_leases = LeasedWindow(rows, STARTS_LIMIT, UseWindow(), clock)
        self._place_rows = LeasedRow(rows, places_limit, Places())
        self._name = name[-12:]  # the random end; the row grows with it
        self._clock = clock
        self._log = log
        self._queues = executor_queues(executors)
        self._tenants: dict[str, _TenantPlaces] = {}
        self._lock = Lock()

    def request(self, tenant: str, requested: int, queue: str = "") -> PermitGrant:
        limits = self._load_limits(tenant)
        if not limits.restricts_runs:
            return PermitGrant(requested)
        with self._lock:
            return self._request(
                tenant, limits, requested, self._queues.get(queue, ExecutorQueue())
            )

    def _request(
        self, tenant: str, limits: TenantLimits, requested: int, queue: ExecutorQueue
    ) -> PermitGrant:
        tenant_places = self._tenants.setdefault(tenant, _TenantPlaces(queue))
        if tenant_places.queue != queue:  # the next lease is for this queue
            tenant_places.queue, tenant_places.places = queue, 0
        now = self._now()
        tenant_places.demand.add(requested, now)
        may_ask_row = tenant_places.refused_at is None or not (
            tenant_places.refused_at
            <= now
            < tenant_places.refused_at + PERMIT_RETRY_SECONDS * MICROSECONDS_PER_SECOND
        )
        try:
            grant = self._grant(tenant, limits, tenant_places, requested, may_ask_row)
        except Contended:
            grant = PermitGrant(0, PERMIT_RETRY_SECONDS)
        except Unavailable as error:
            # The claims that follow bound it: they need the store as well.
            self._log("limits_unavailable", tenant=tenant, limit="runs", error=error.message)
            grant = PermitGrant(requested)
        tenant_places.active += grant.number
        if grant.number == requested:
            return grant
        now = self._now()
        if may_ask_row:
            tenant_places.refused_at = now
            tenant_places.retry_at = now + round(
                grant.retry_after_seconds * MICROSECONDS_PER_SECOND
            )
        return PermitGrant(
            grant.number,
            max(PERMIT_RETRY_SECONDS, (tenant_places.retry_at - now) / MICROSECONDS_PER_SECOND),
        )

    def _grant(
        self,
        tenant: str,
        limits: TenantLimits,
        tenant_places: _TenantPlaces,
        requested: int,
        may_ask_row: bool,
    ) -> PermitGrant:
        """Return the permits; the row is asked only if `may_ask_row`."""
        number, retry_after_seconds = requested, 0.0
        if self._needs_places(limits, tenant_places):
            if may_ask_row and self._free_places(limits, tenant_places) < requested:
                self._lease_places(tenant, limits, tenant_places, requested)
            number = min(requested, self._free_places(limits, tenant_places))
            retry_after_seconds = 0.0 if number == requested else PLACE_RETRY_SECONDS
        limit = limits.runs_per_minute
        if limit is None or not number:
            return PermitGrant(number, retry_after_seconds)
        rule = WindowRule(limit, MINUTE_SECONDS)
        if not may_ask_row:
            return PermitGrant(self._start_leases.spend(tenant, number))
        start_grant = self._start_leases.take(tenant, number, lambda: rule)
        return PermitGrant(
            start_grant.number, max(retry_after_seconds, start_grant.retry_after_seconds)
        )

    def end_permit(self, tenant: str, started: bool) -> None:
        """End one permit. The start of a run that never started is put back."""
        tenant_places = self._tenants.get(tenant)
        if tenant_places is None or not tenant_places.active:
            return
        tenant_places.active -= 1
        if not started:
            self._start_leases.put_back(tenant, 1)

    def hand_over(
        self, tenant: str, nonce: str, longest: timedelta, has_permit: bool = True
    ) -> Handover:
        """Let the claim with this nonce hold one place by itself.

        With `has_permit`, it takes over a permit of this instance. If it is MOVED, the permit has
        ended here. The place is free again when `ClaimPlaces` learns of the end of the claim, or
        after the `longest` time that the run may take.
        """
        limit = self._load_limits(tenant).concurrent_runs
        if limit is None:
            return Handover.UNCOUNTED
        with self._lock:
            tenant_places = self._tenants.setdefault(tenant, _TenantPlaces(ExecutorQueue()))
            has_permit = has_permit and tenant_places.active > 0
            active = tenant_places.active - has_permit
            holder, mark = self._holder(tenant_places), claim_mark(nonce)
            until_second = self._second() + longest // timedelta(seconds=1)

            def decide(row: Places) -> tuple[Places, int | None]:
                current_row = free_claims(drop_expired_places(row, self._second()), [mark])
                left = limit - count_places(current_row, except_name=holder) - 1
                if left < active and not has_permit:
                    return row, None
                own, own_until = current_row.places_by_holder.get(holder, (0, 0))
                own = max(active, min(own - has_permit, left)) if own else 0
                current_row = set_places(current_row, holder, own, own_until)
                return hold_claim(current_row, mark, until_second), own

            try:
                own = self._place_rows.change(tenant, decide)
            except Contended:
                return Handover.REFUSED
            except Unavailable as error:
                self._log("limits_unavailable", tenant=tenant, limit="runs", error=error.message)
                return Handover.UNCOUNTED
            if own is None:
                return Handover.REFUSED
            tenant_places.places = min(tenant_places.places, own)
            tenant_places.active = active
            return Handover.MOVED

    def renew_places(self) -> None:
        """Renew the places of active runs. Another thread may call it."""
        with self._lock:
            for tenant, tenant_places in list(self._tenants.items()):
                if self._needs_renewal(tenant_places):
                    places = min(tenant_places.places, tenant_places.active)
                    self._write_places(
                        tenant, tenant_places, places, self._second() + PLACE_LEASE_SECONDS
                    )

    @property
    def needs_renewal(self) -> bool:
        """Return whether places of active runs need a renewal."""
        return any(
            self._needs_renewal(tenant_places) for tenant_places in list(self._tenants.values())
        )

    def return_idle_places(self) -> None:
        """Give back places that other instances lack, while nothing runs here."""
        with self._lock:
            for tenant, tenant_places in self._tenants.items():
                if (
                    tenant_places.is_scarce
                    and tenant_places.places > tenant_places.active
                    and self._second() < tenant_places.lease_end_second
                ):
                    self._write_places(
                        tenant, tenant_places, tenant_places.active, tenant_places.lease_end_second
                    )

    def _needs_renewal(self, tenant_places: _TenantPlaces) -> bool:
        is_held = bool(tenant_places.active and tenant_places.places)
        return is_held and self._second() >= tenant_places.lease_end_second - PLACE_RENEWAL_SECONDS

    def _write_places(
        self, tenant: str, tenant_places: _TenantPlaces, places: int, lease_end_second: int
    ) -> None:
        def decide(row: Places) -> tuple[Places, None]:
            row = drop_expired_places(row, self._second())
            return set_places(row, self._holder(tenant_places), places, lease_end_second), None

        try:
            self._place_rows.change(tenant, decide)
        except Unavailable as error:
            self._log("limits_unavailable", tenant=tenant, limit="runs", error=error.message)
            return
        tenant_places.places, tenant_places.lease_end_second = places, lease_end_second

    def _needs_places(self, limits: TenantLimits, tenant_places: _TenantPlaces) -> bool:
        return (
            limits.concurrent_runs is not None
            or self._max_executors(limits, tenant_places) is not None
        )

    def _max_executors(self, limits: TenantLimits, tenant_places: _TenantPlaces) -> int | None:
        return (
            limits.max_executors(tenant_places.queue.executors)
            if tenant_places.queue.prefix
            else None
        )

    def _free_places(self, limits: TenantLimits, tenant_places: _TenantPlaces) -> int:
        if self._second() >= tenant_places.lease_end_second:
            tenant_places.places = 0
        if limits.concurrent_runs is not None:
            return max(0, tenant_places.places - tenant_places.active)
        return sys.maxsize if tenant_places.places else 0

    def _holder(self, tenant_places: _TenantPlaces) -> str:
        return tenant_places.queue.prefix + self._name

    def _lease_places(
        self, tenant: str, limits: TenantLimits, tenant_places: _TenantPlaces, requested: int
    ) -> None:
        spare = ceil(tenant_places.demand.per_second(self._now()))

        def decide(row: Places) -> tuple[Places, _LeasedPlaces | None]:
            return self._plan_places(row, limits, tenant_places, requested, spare)

        leased = self._place_rows.change(tenant, decide)
        tenant_places.is_scarce = leased is None or leased.is_scarce
        if leased is not None:
            tenant_places.places, tenant_places.lease_end_second = (
                leased.places,
                self._second() + PLACE_LEASE_SECONDS,
            )

    def _plan_places(
        self,
        row: Places,
        limits: TenantLimits,
        tenant_places: _TenantPlaces,
        requested: int,
        spare: int,
    ) -> tuple[Places, _LeasedPlaces | None]:
        """Return the row with places for up to `requested` more.

        Spare ones are added while half is free.
        """
        holder, current_row = self._holder(tenant_places), drop_expired_places(row, self._second())
        for queue in self._queues.values():
            if queue != tenant_places.queue:  # an instance takes from one queue at a time
                current_row = set_places(current_row, queue.prefix + self._name, 0, 0)
        max_executors, is_scarce = self._max_executors(limits, tenant_places), False
        if max_executors is not None:
            other_holders = count_holders(
                current_row, tenant_places.queue.prefix, except_name=holder
            )
            if other_holders >= max_executors:
                return row, None
            # An idle executor keeps its place for a while, unless others may soon lack it.
            is_scarce = 2 * (other_holders + 1) > max_executors
        granted, limit = requested, limits.concurrent_runs
        if limit is None:
            spare = 0
        else:
            free = limit - count_places(current_row, except_name=holder) - tenant_places.active
            granted = min(requested, free)
            if granted <= 0:
                return row, None
            spare = max(0, min(spare, (free - granted - limit // 2) // 4))
            is_scarce |= free <= granted + spare
        places = tenant_places.active + granted + spare
        current_row = set_places(current_row, holder, places, self._second() + PLACE_LEASE_SECONDS)
        return current_row, _LeasedPlaces(places, is_scarce)

    def _now(self) -> int:
        return microseconds(self._clock())

    def _second(self) -> int:
        return self._now() // MICROSECONDS_PER_SECOND
