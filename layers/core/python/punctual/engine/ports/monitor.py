"""The port for statistics and health."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

STATISTICS_PERIOD = timedelta(hours=1)
HEALTH_PERIOD = timedelta(minutes=5)  # of runs that count for the health


class Stats(NamedTuple):
    jobs: Mapping[str, int]
    runs: Mapping[str, int]
    last_hour: Sequence[Mapping[str, Any]]
    lateness_ms: Mapping[str, float | None]
    queue: Mapping[str, float]
    executors: Sequence[Mapping[str, Any]]
    # How long after a change lists show it. None where they show each change at once.
    list_lag_ms: Mapping[str, float | None] | None = None
    limits: Sequence[Mapping[str, Any]] = ()  # each with its name, what is allowed, and used


class HealthWarning(NamedTuple):
    """A problem that needs action before it causes a failure. It names no tenant and no path."""

    code: str
    text: str


class Health(NamedTuple):
    status: str
    lateness_ms_p99: float | None
    watermark: datetime | None
    planner_heartbeat: datetime | None
    task_types: Sequence[str]
    warnings: Sequence[HealthWarning] = ()
    planner_interval: timedelta = timedelta(0)  # between two heartbeats of the planner


ReadLimits = Callable[[str, datetime], Sequence[Mapping[str, Any]]]
"""Returns the limits of a tenant that are set, each with its name, what is allowed, and used."""


def no_limits(_tenant: str, _now: datetime) -> Sequence[Mapping[str, Any]]:
    return ()


class Monitor(Protocol):
    """Reports statistics and health. Each adapter has its own."""

    def stats(self, tenant: str, now: datetime) -> Stats: ...

    def health(self, now: datetime) -> Health: ...
