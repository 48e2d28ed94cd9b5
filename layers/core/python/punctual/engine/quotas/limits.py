"""A tenant's limits as they were last read, and the errors of exhausted quotas."""

from datetime import datetime, timedelta
from math import ceil, inf
from typing import NamedTuple

from punctual.domain.errors import FieldError, Invalid, LimitExceeded, Unavailable
from punctual.domain.schedules.schedule import Once, Schedule
from punctual.domain.tenants.limits import UNLIMITED, Limits, WrongLimits, limits_from
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import Granted, Overrides, Quotas

LIMITS_CACHE_DURATION = timedelta(seconds=60)
LIMITS_RETRY_DELAY = timedelta(seconds=5)  # after limits could not be read
JOBS_RETRY_SECONDS = 60.0  # only ends of jobs and cancels make room


def unlimited(_tenant: str) -> Limits:
    return UNLIMITED


class _Known(NamedTuple):
    limits: Limits
    until: datetime


class KnownLimits:
    """A tenant's limits as they were read in the last minute.

    `overrides` returns what is written for one tenant, or None. If that cannot be read, or is
    invalid, the last known limits hold, else the defaults.
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
            limits = limits_from(self._overrides(tenant) or {}, self._defaults)
        except (Unavailable, WrongLimits) as error:
            self._log("limits_unread", tenant=tenant, error=str(error))
            limits = self._defaults if last is None else last.limits
            return _Known(limits, now + LIMITS_RETRY_DELAY)
        return _Known(limits, now + LIMITS_CACHE_DURATION)


class NoQuotas:
    """Allow everything."""

    def call(self, _tenant: str, /) -> None:
        """Allow the call."""

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
    """Return whether a job with this schedule orders a run at once, as run-now does."""
    return isinstance(schedule, Once) and schedule.at <= asked_at


def check_order(quotas: Quotas, tenant: str) -> None:
    granted = quotas.orders(tenant, 1)
    if not granted.number:
        raise too_many_orders(granted.again_after)


def check_backfill(quotas: Quotas, tenant: str, runs: int) -> None:
    """Allow all runs or none. More runs than the limit of a minute are invalid."""
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
    return LimitExceeded(text, JOBS_RETRY_SECONDS)


def too_many_orders(seconds: float) -> LimitExceeded:
    text = (
        "This tenant has ordered as many runs as it may in a minute (runs_per_minute): "
        f"try again in {_seconds(seconds)} s. Runs of schedules are not affected."
    )
    return LimitExceeded(text, seconds)


def _seconds(seconds: float) -> int:
    return max(1, ceil(seconds))
