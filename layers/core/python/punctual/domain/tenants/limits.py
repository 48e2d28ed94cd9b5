"""The limits of a tenant on calls, jobs, runs and bytes.

None means no limit, except for artifacts, which have a default.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

MAX_LIMIT_VALUE = 1_000_000_000
# What a tenant without limits of its own may store. Files cost money until they are deleted.
DEFAULT_MAX_ARTIFACTS = 1_000
DEFAULT_MAX_ARTIFACT_MB = 20_480
LIMIT_FIELDS = (
    "calls_per_second",
    "burst",
    "jobs",
    "runs_per_minute",
    "concurrent_runs",
    "lane_percent",
    "payload_bytes",
    "artifacts",
    "artifact_mb",
)
MAX_VALUE_BY_LIMIT = {
    name: 100 if name == "lane_percent" else MAX_LIMIT_VALUE for name in LIMIT_FIELDS
}


class TenantLimits(Struct, frozen=True, omit_defaults=True, gc=False):
    """The limits of a tenant. Without a `burst`, one second's calls may come at once."""

    calls_per_second: int | None = None
    burst: int | None = None
    jobs: int | None = None  # jobs that are neither CANCELLED nor COMPLETED
    runs_per_minute: int | None = None
    concurrent_runs: int | None = None
    lane_percent: int | None = None  # share of the executors of each lane
    payload_bytes: int | None = None
    artifacts: int | None = None
    artifact_mb: int | None = None  # of all artifacts together

    @property
    def burst_size(self) -> int:
        """Return how many calls may come at once.

        >>> [TenantLimits(calls_per_second=10, burst=burst).burst_size for burst in (None, 30)]
        [10, 30]
        """
        return self.burst or self.calls_per_second or 0

    @property
    def max_artifacts(self) -> int:
        """Return how many artifacts the tenant may have."""
        return DEFAULT_MAX_ARTIFACTS if self.artifacts is None else self.artifacts

    @property
    def max_artifact_mb(self) -> int:
        """Return how many MB all artifacts of the tenant may have together.

        >>> TenantLimits().max_artifact_mb, TenantLimits(artifact_mb=5).max_artifact_mb
        (20480, 5)
        """
        return DEFAULT_MAX_ARTIFACT_MB if self.artifact_mb is None else self.artifact_mb

    @property
    def restricts_runs(self) -> bool:
        """Return whether a due run may have to wait for other runs of its tenant."""
        return (
            self.runs_per_minute is not None
            or self.concurrent_runs is not None
            or self.lane_percent is not None
        )

    def max_executors(self, executors: int) -> int | None:
        """Return how many of a lane's executors the tenant's runs may hold; None means no limit.

        >>> [TenantLimits(lane_percent=percent).max_executors(80) for percent in (50, 1)]
        [40, 1]
        """
        return None if self.lane_percent is None else max(1, executors * self.lane_percent // 100)


UNLIMITED = TenantLimits()


class InvalidLimits(ValueError):
    """Invalid limits; the message names every wrong field."""


def limit_values(limits: TenantLimits) -> dict[str, int | None]:
    """Return all fields as they are set.

    >>> limit_values(TenantLimits(jobs=5))["jobs"], limit_values(UNLIMITED)["burst"]
    (5, None)
    """
    return {name: getattr(limits, name) for name in LIMIT_FIELDS}


def effective_limits(limits: TenantLimits) -> dict[str, int | None]:
    """Return all fields with the defaults, as the API and operators see them.

    >>> effective_limits(UNLIMITED)["artifacts"], effective_limits(UNLIMITED)["jobs"]
    (1000, None)
    """
    stored = {"artifacts": limits.max_artifacts, "artifact_mb": limits.max_artifact_mb}
    return {**limit_values(limits), **stored}


def limits_from(values: Mapping[str, Any], defaults: TenantLimits = UNLIMITED) -> TenantLimits:
    """Return `defaults` with the fields of `values`.

    >>> limits_from({"jobs": None, "burst": 7}, TenantLimits(jobs=5))
    TenantLimits(calls_per_second=None, burst=7, jobs=None, runs_per_minute=None, \
concurrent_runs=None, lane_percent=None, payload_bytes=None, artifacts=None, artifact_mb=None)
    >>> try:
    ...     limits_from({"jobs": 0, "job": 1})
    ... except InvalidLimits as error:
    ...     print(error)
    job is unknown; jobs must be 1 to 1000000000, or null
    """
    problems = [f"{name} is unknown" for name in sorted(set(values) - set(LIMIT_FIELDS))]
    for name in LIMIT_FIELDS:
        value = values.get(name)
        if value is None:
            continue
        max_value = MAX_VALUE_BY_LIMIT[name]
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= max_value:
            problems.append(f"{name} must be 1 to {max_value}, or null")
    if problems:
        raise InvalidLimits("; ".join(problems))
    return TenantLimits(**{**limit_values(defaults), **values})


def format_limits(limits: TenantLimits) -> str:
    """Return the limits that are set, in the form that `parse_limits` reads.

    >>> format_limits(TenantLimits(jobs=5, burst=7)), format_limits(UNLIMITED)
    ('burst=7 jobs=5', '')
    """
    fields = limit_values(limits).items()
    return " ".join(f"{name}={value}" for name, value in fields if value is not None)


def parse_limits(text: str) -> dict[str, int | None]:
    """Return the limits that a text sets, for example `jobs=500 burst=null`.

    >>> parse_limits("jobs=500 burst=null")
    {'jobs': 500, 'burst': None}
    >>> try:
    ...     parse_limits("jobs")
    ... except InvalidLimits as error:
    ...     print(error)
    'jobs' is not field=number, or field=null
    """
    limits: dict[str, int | None] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        is_number = value.isascii() and value.isdecimal()
        if not (name and equals and (is_number or value == "null")):
            raise InvalidLimits(f"{part!r} is not field=number, or field=null")
        limits[name] = int(value) if is_number else None
    limits_from(limits)
    return limits
