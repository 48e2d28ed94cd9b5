"""Who may how much: what a tenant's limits are, and the questions that are asked of them."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import ceil, inf
from typing import Any, NamedTuple, Protocol

from punctual.domain.errors import FieldError, Invalid, LimitExceeded, Unavailable
from punctual.domain.schedules.schedule import Once, Schedule
from punctual.domain.tenants.limits import UNLIMITED, Limits, WrongLimits, limits_from
from punctual.engine.ports.clock import Clock

FRESH = timedelta(seconds=60)  # so long what was read of a tenant's limits holds
AGAIN = timedelta(seconds=5)  # until what could not be read is asked for once more
JOBS_AGAIN = 60.0  # seconds; only its jobs' ends and people make room

LimitsOf = Callable[[str], Limits]
Log = Callable[..., None]
Overrides = Callable[[str], Mapping[str, Any] | None]


def unlimited(_tenant: str) -> Limits:
    return UNLIMITED


class _Known(NamedTuple):
    limits: Limits
    until: datetime


class KnownLimits:
    """A tenant's limits as they were read in the last minute.

    `overrides` answers what is written for one tenant, None where nothing is. Where it cannot be
    read, or means nothing, what was last known holds, else what everybody has.
    """

    def __init__(self, defaults: Limits, overrides: Overrides, clock: Clock, log: Log) -> None:
        self._defaults = defaults
        self._overrides = overrides
        self._clock = clock
        self._log = log
        self._known: dict[str, _Known] = {}

    def of(self, tenant: str) -> Limits:
        known = self._known.get(tenant)
        now = self._clock()
        if known is None or now >= known.until:
            known = self._known[tenant] = self._read(tenant, known, now)
        return known.limits

    def _read(self, tenant: str, last: _Known | None, now: datetime) -> _Known:
        try:
            said = self._overrides(tenant)
            return _Known(limits_from(said or {}, self._defaults), now + FRESH)
        except (Unavailable, WrongLimits) as error:
            self._log("limits_unread", tenant=tenant, error=str(error))
            return _Known(self._defaults if last is None else last.limits, now + AGAIN)


class Granted(NamedTuple):
    """`again_after` seconds there may be room for the rest; never, where it is infinite."""

    number: int
    again_after: float = 0.0


class Quotas(Protocol):
    """What is asked before anything is accepted: for whom nothing is limited, it costs nothing."""

    def call(self, tenant: str, /) -> None:
        """`LimitExceeded` where the tenant calls too often."""

    def jobs(self, tenant: str, asked: int, /) -> int:
        """How many of so many new jobs there is room for."""

    def orders(self, tenant: str, asked: int, whole: bool = False, /) -> Granted:
        """How many of so many runs may be ordered now; `whole`: all of them, or none."""


class NoQuotas:
    """Everybody may everything."""

    def call(self, _tenant: str, /) -> None:
        """Never refused."""

    def jobs(self, _tenant: str, asked: int, /) -> int:
        return asked

    def orders(self, _tenant: str, asked: int, _whole: bool = False, /) -> Granted:
        return Granted(asked)


def too_many_calls(limits: Limits, seconds: float) -> LimitExceeded:
    text = (
        f"This tenant may call {limits.calls_per_second} times a second, {limits.at_once} at once: "
        f"try again in {_seconds(seconds)} s."
    )
    return LimitExceeded(text, seconds)


def is_order(schedule: Schedule | None, asked_at: datetime) -> bool:
    """Whether who gives a job this schedule orders a run at once, as with run-now."""
    return isinstance(schedule, Once) and schedule.at <= asked_at


def check_order(quotas: Quotas, tenant: str) -> None:
    granted = quotas.orders(tenant, 1)
    if not granted.number:
        raise too_many_orders(granted.again_after)


def check_backfill(quotas: Quotas, tenant: str, runs: int) -> None:
    """All of it, or none; what will never be allowed is no matter of waiting."""
    granted = quotas.orders(tenant, runs, True)
    if granted.number == runs:
        return
    if granted.again_after == inf:
        text = f"the range holds {runs} runs, more than may be ordered in a minute"
        raise Invalid.of(FieldError("to", text))
    raise too_many_orders(granted.again_after)


def too_many_jobs() -> LimitExceeded:
    text = (
        "This tenant has as many jobs that are neither CANCELLED nor COMPLETED as it may (the limit"
        " jobs): cancel some (DELETE /jobs/{job_id}), wait until some complete, or have the limit "
        "raised."
    )
    return LimitExceeded(text, JOBS_AGAIN)


def too_many_orders(seconds: float) -> LimitExceeded:
    text = (
        "This tenant has ordered as many runs as it may in a minute (runs_per_minute): "
        f"try again in {_seconds(seconds)} s. What schedules bring is not affected."
    )
    return LimitExceeded(text, seconds)


def _seconds(seconds: float) -> int:
    return max(1, ceil(seconds))
