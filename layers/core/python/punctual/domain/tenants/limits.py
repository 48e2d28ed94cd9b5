"""What a tenant may use: of calls, jobs, runs and bytes. Null is no limit."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

MOST = 1_000_000_000
FIELDS = (
    "calls_per_second",
    "burst",
    "jobs",
    "runs_per_minute",
    "concurrent_runs",
    "lane_percent",
    "payload_bytes",
)
AT_MOST = {name: 100 if name == "lane_percent" else MOST for name in FIELDS}


class Limits(Struct, frozen=True, omit_defaults=True, gc=False):
    """`burst` calls may come at once where the rate is limited; null is one second's worth."""

    calls_per_second: int | None = None
    burst: int | None = None
    jobs: int | None = None  # that are neither CANCELLED nor COMPLETED
    runs_per_minute: int | None = None
    concurrent_runs: int | None = None
    lane_percent: int | None = None  # of the executors of each lane that its runs may hold
    payload_bytes: int | None = None

    @property
    def at_once(self) -> int:
        """Calls that may come together.

        >>> Limits(calls_per_second=10).at_once, Limits(calls_per_second=10, burst=30).at_once
        (10, 30)
        """
        return self.burst or self.calls_per_second or 0

    @property
    def hold_runs(self) -> bool:
        """Whether a run that is due may have to wait for its tenant's others."""
        return (
            self.runs_per_minute is not None
            or self.concurrent_runs is not None
            or self.lane_percent is not None
        )

    def executors(self, places: int) -> int | None:
        """How many of a lane's executors its runs may hold at a time; None is no limit.

        >>> Limits(lane_percent=50).executors(80), Limits(lane_percent=1).executors(80)
        (40, 1)
        """
        return None if self.lane_percent is None else max(1, places * self.lane_percent // 100)


UNLIMITED = Limits()


class WrongLimits(ValueError):
    """Limits that mean nothing; the message names every wrong field."""


def shown(limits: Limits) -> dict[str, int | None]:
    """All fields, as the API and operators see them.

    >>> shown(Limits(jobs=5))["jobs"], shown(UNLIMITED)["burst"]
    (5, None)
    """
    return {name: getattr(limits, name) for name in FIELDS}


def limits_from(values: Mapping[str, Any], base: Limits = UNLIMITED) -> Limits:
    """`base`, but for what `values` says.

    >>> limits_from({"jobs": None, "burst": 7}, Limits(jobs=5))
    Limits(calls_per_second=None, burst=7, jobs=None, runs_per_minute=None, concurrent_runs=None, \
lane_percent=None, payload_bytes=None)
    >>> limits_from({"jobs": 0, "job": 1})
    Traceback (most recent call last):
    punctual.domain.tenants.limits.WrongLimits: job is unknown; jobs must be 1 to 1000000000, \
or null
    """
    wrong = [f"{name} is unknown" for name in sorted(set(values) - set(FIELDS))]
    for name in FIELDS:
        value = values.get(name)
        if value is None:
            continue
        most = AT_MOST[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            wrong.append(f"{name} must be 1 to {most}, or null")
    if wrong:
        raise WrongLimits("; ".join(wrong))
    return Limits(**{**shown(base), **values})


def text_of(limits: Limits) -> str:
    """
    >>> text_of(Limits(jobs=5, burst=7)), text_of(UNLIMITED)
    ('burst=7 jobs=5', '')
    """
    found = shown(limits).items()
    return " ".join(f"{name}={value}" for name, value in found if value is not None)


def limits_of_text(text: str) -> dict[str, int | None]:
    """What `jobs=500 burst=null` says.

    >>> limits_of_text("jobs=500 burst=null")
    {'jobs': 500, 'burst': None}
    >>> limits_of_text("jobs")
    Traceback (most recent call last):
    punctual.domain.tenants.limits.WrongLimits: 'jobs' is not field=number, or field=null
    """
    found: dict[str, int | None] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        is_number = value.isascii() and value.isdecimal()
        if not (name and equals and (is_number or value == "null")):
            raise WrongLimits(f"{part!r} is not field=number, or field=null")
        found[name] = int(value) if is_number else None
    limits_from(found)
    return found
