"""A tenant's limits as they were last read, and the errors of exhausted quotas."""

from datetime import datetime, timedelta
from math import ceil, inf
from typing import NamedTuple

from punctual.domain.errors import FieldError, Invalid, LimitExceeded, Unavailable
from punctual.domain.schedules.schedule import Once, Schedule
from punctual.domain.tenants.limits import UNLIMITED, InvalidLimits, TenantLimits, limits_from
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.log import Log
from punctual.engine.ports.quotas import Overrides, QuotaGrant, Quotas

LIMITS_CACHE_DURATION = timedelta(seconds=60)
LIMITS_RETRY_DELAY = timedelta(seconds=5)  # after limits could not be read
JOBS_RETRY_SECONDS = 60.0  # only ends of jobs and cancels make room


def unlimited(_tenant: str) -> TenantLimits:
    return UNLIMITED


class _CachedLimits(NamedTuple):
    limits: TenantLimits
    until: datetime


class LimitsCache:
    """A tenant's limits as they were read in the last minute.

    `load_overrides` returns the stored limits of one tenant, or None. If they cannot be read, or
    are invalid, the last known limits hold, else the defaults.
    """

    def __init__(
        self, defaults: TenantLimits, load_overrides: Overrides, clock: Clock, log: Log
    ) -> None:
        self._defaults = defaults
        self._load_overrides = load_overrides
        self._clock = clock
        self._log = log
        self._entries: dict[str, _CachedLimits] = {}

    def limits_of(self, tenant: str) -> TenantLimits:
        entry = self._entries.get(tenant)
        now = self._clock()
        if entry is None or now >= entry.until:
            entry = self._entries[tenant] = self._read(tenant, entry, now)
        return entry.limits

    def _read(self, tenant: str, previous: _CachedLimits | None, now: datetime) -> _CachedLimits:
        try:
            limits = limits_from(self._load_overrides(tenant) or {}, self._defaults)
        except (Unavailable, InvalidLimits) as error:
            self._log("limits_unread", tenant=tenant, error=str(error))
            limits = self._defaults if previous is None else previous.limits
            return _CachedLimits(limits, now + LIMITS_RETRY_DELAY)
        return _CachedLimits(limits, now + LIMITS_CACHE_DURATION)


class NoQuotas:
    """Allow everything."""

    def check_call(self, _tenant: str, /) -> None:
        """Allow the call."""

    def available_jobs(self, _tenant: str, requested: int, /) -> int:
        return requested

    def take_run_requests(
        self, _tenant: str, requested: int, _all_or_none: bool = False, /
    ) -> QuotaGrant:
        return QuotaGrant(requested)


def too_many_calls(limits: TenantLimits, seconds: float) -> LimitExceeded:
    text = (
        f"This tenant may call {limits.calls_per_second} times a second, and {limits.burst_size} "
        f"times at once: try again in {_whole_seconds(seconds)} s."
    )
    return LimitExceeded(text, seconds)


def starts_run_at_once(schedule: Schedule | None, requested_at: datetime) -> bool:
    """Return whether a job with this schedule requests a run at once, as run-now does."""
    return isinstance(schedule, Once) and schedule.at <= requested_at


def check_run_quota(quotas: Quotas, tenant: str) -> None:
    grant = quotas.take_run_requests(tenant, 1)
    if not grant.number:
        raise too_many_runs(grant.retry_after_seconds)


def check_backfill_quota(quotas: Quotas, tenant: str, run_count: int) -> None:
    """Allow all runs or none. More runs than the limit of a minute are invalid."""
    grant = quotas.take_run_requests(tenant, run_count, True)
    if grant.number == run_count:
        return
    if grant.retry_after_seconds == inf:
        text = f"the range holds {run_count} runs, more than runs_per_minute allows"
        raise Invalid.of(FieldError("to", text))
    raise too_many_runs(grant.retry_after_seconds)


def too_many_jobs() -> LimitExceeded:
    text = (
        "This tenant has reached its limit of jobs that are neither CANCELLED nor COMPLETED: "
        "cancel some (DELETE /jobs/{job_id}), wait until some complete, or ask for a higher limit "
        "(jobs)."
    )
    return LimitExceeded(text, JOBS_RETRY_SECONDS)


def too_many_runs(seconds: float) -> LimitExceeded:
    text = (
        "This tenant has reached its limit of requested runs in a minute (runs_per_minute): "
        f"try again in {_whole_seconds(seconds)} s. Runs of schedules are not affected."
    )
    return LimitExceeded(text, seconds)


def _whole_seconds(seconds: float) -> int:
    return max(1, ceil(seconds))
