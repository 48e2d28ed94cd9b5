"""Who may how much: what a tenant's limits are, and the questions that are asked of them."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from math import ceil
from typing import Any, NamedTuple, Protocol

from punctual.domain.errors import LimitExceeded, Unavailable
from punctual.domain.limits import Limits, WrongLimits, limits_from
from punctual.engine.ports import Clock

FRESH = timedelta(seconds=60)  # so long what was read of a tenant's limits holds
AGAIN = timedelta(seconds=5)  # until what could not be read is asked for once more
JOBS_AGAIN = 60.0  # seconds; only its jobs' ends and people make room

LimitsOf = Callable[[str], Limits]
Log = Callable[..., None]
Overrides = Callable[[str], Mapping[str, Any] | None]


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


class Quotas(Protocol):
    """What is asked before anything is accepted: for whom nothing is limited, it costs nothing."""

    def call(self, tenant: str, /) -> None:
        """`LimitExceeded` where the tenant calls too often."""

    def jobs(self, tenant: str, asked: int, /) -> int:
        """How many of so many new jobs there is room for."""

    def orders(self, tenant: str, asked: int, /) -> float | None:
        """None where so many runs may be ordered now, else in how many seconds they may."""

    def payload_bytes(self, tenant: str, /) -> int | None: ...


class NoQuotas:
    """Everybody may everything."""

    def call(self, _tenant: str, /) -> None:
        """Never refused."""

    def jobs(self, _tenant: str, asked: int, /) -> int:
        return asked

    def orders(self, _tenant: str, _asked: int, /) -> float | None:
        return None

    def payload_bytes(self, _tenant: str, /) -> int | None:
        return None


def too_many_calls(limits: Limits, seconds: float) -> LimitExceeded:
    text = (
        f"This tenant may call {limits.calls_per_second} times a second, {limits.at_once} at once: "
        f"try again in {_seconds(seconds)} s."
    )
    return LimitExceeded(text, seconds)


def too_many_jobs(limits_jobs: int | None) -> LimitExceeded:
    text = (
        f"This tenant may have {limits_jobs} jobs that are neither CANCELLED nor COMPLETED (jobs): "
        "cancel some (DELETE /jobs/{job_id}), wait until some complete, or have the limit raised."
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
