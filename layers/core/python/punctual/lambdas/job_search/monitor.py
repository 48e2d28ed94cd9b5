"""Statistics and health of a deployment, from the planner's row and the counts of `status`."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from punctual.aws.dynamodb.control.counters import Counters, MinuteCounts
from punctual.aws.dynamodb.lists.job_counts import JobCounts
from punctual.domain.identifiers import BUCKET_LENGTH, bucket_of
from punctual.domain.leases import RUN_LEASE
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.monitor import (
    HEALTH_PERIOD,
    STATISTICS_PERIOD,
    Health,
    ReadLimits,
    Stats,
    no_limits,
)
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.lateness import quantiles
from punctual.lambdas.status.counters import (
    ENDED_COUNTS,
    LATENESS_COUNT_PREFIX,
    LIST_LAG_COUNT_PREFIX,
    QUEUED_COUNT,
    RUN_COUNT_PREFIX,
    STARTED_COUNT,
    step_milliseconds,
)

MAX_HEALTHY_LATENESS = timedelta(seconds=15)
MAX_PLANNER_SILENCE = timedelta(minutes=8)  # some of its ticks, one a minute, may be lost
STATS_LOOKAHEAD = timedelta(minutes=3)  # runs are queued up to two minutes before their time
MAX_EXECUTOR_STATES = 1_000  # jobs read to list executors
LIVE_STATUSES = ("QUEUED", "CLAIMED", "RUNNING")
HEALTH_TENANTS = ("default",)  # tenants that stand for the health of the whole deployment


class PlanningProgress(Protocol):
    """Reads the rows that the planner writes."""

    def watermark(self) -> datetime | None: ...

    def heartbeat(self) -> datetime | None: ...


LoadHeldStates = Callable[[str, int], Mapping[JobKey, StoredState]]


class DeployedMonitor:
    """Reads statistics and health. Counts lag by the delay of the stream, usually a second."""

    def __init__(
        self,
        planning_progress: PlanningProgress,
        counters: Counters,
        job_counts: JobCounts,
        load_held_states: LoadHeldStates,
        task_types: Collection[str],
        tenants: Sequence[str] = HEALTH_TENANTS,
        shared_limits: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
        used_limits: ReadLimits = no_limits,
    ) -> None:
        """`shared_limits` returns what all runs of the stage share, and how much they use.

        `used_limits` returns the same of the limits of one tenant.
        """
        self._used_limits = used_limits
        self._shared_limits = shared_limits
        self._planning_progress = planning_progress
        self._counters = counters
        self._job_counts = job_counts
        self._load_held_states = load_held_states
        self._task_types = tuple(sorted(task_types))
        self._tenants = tenants

    def stats(self, tenant: str, now: datetime) -> Stats:
        totals = self._counters.totals(tenant)
        minutes = self._counters.minutes(
            tenant, bucket_of(now - STATISTICS_PERIOD), bucket_of(now + STATS_LOOKAHEAD)
        )
        past_minutes = [minute for minute in minutes if minute.minute_at <= now]
        queued_ahead = sum(
            minute.counts.get(QUEUED_COUNT, 0) for minute in minutes if minute.minute_at > now
        )
        depth = max(0, totals.get(f"{RUN_COUNT_PREFIX}QUEUED", 0) - queued_ahead)
        queued_minutes = [
            minute.minute_at for minute in past_minutes if minute.counts.get(QUEUED_COUNT, 0) > 0
        ]
        return Stats(
            jobs=self._job_counts.read(tenant).by_status(now),
            runs=_counts_with_prefix(totals, RUN_COUNT_PREFIX),
            last_hour=[_minute_values(minute) for minute in past_minutes if _has_runs(minute)],
            lateness_ms=_lateness(past_minutes),
            list_lag_ms=_quantiles_of(past_minutes, LIST_LAG_COUNT_PREFIX),
            queue={
                "depth": depth,
                "oldest_seconds": (now - queued_minutes[0]).total_seconds()
                if depth and queued_minutes
                else 0,
            },
            executors=_executors(self._load_held_states(tenant, MAX_EXECUTOR_STATES)),
            limits=[*self._used_limits(tenant, now), *self._shared_limits()],
        )

    def has_live_runs(self, tenant: str) -> bool:
        """Return whether a run of this tenant is queued or running."""
        totals = self._counters.totals(tenant)
        return any(totals.get(f"{RUN_COUNT_PREFIX}{status}", 0) > 0 for status in LIVE_STATUSES)

    def health(self, now: datetime) -> Health:
        """Return the health: late if runs start late, down if the planner is silent for minutes."""
        heartbeat = self._planning_progress.heartbeat()
        minutes = [
            minute
            for tenant in self._tenants
            for minute in self._counters.minutes(tenant, bucket_of(now - HEALTH_PERIOD), now)
        ]
        p99 = _lateness(minutes)["p99"]
        status = "ok"
        if p99 is not None and p99 > MAX_HEALTHY_LATENESS / timedelta(milliseconds=1):
            status = "late"
        if heartbeat is None or now - heartbeat > MAX_PLANNER_SILENCE:
            status = "down"
        return Health(
            *(status, p99, self._planning_progress.watermark(), heartbeat, self._task_types),
            planner_interval=BUCKET_LENGTH,
        )


def _executors(states: Mapping[JobKey, StoredState]) -> list[dict[str, Any]]:
    """Return the executors that hold runs. Lambda has no list of its environments."""
    renewals_by_executor: dict[str, list[datetime]] = {}
    for stored in states.values():
        for run in stored.state.runs:
            if run.is_held and run.executor_id:
                lease = stored.leases.get(run.run_id)
                renewed_at = (
                    lease.until - RUN_LEASE if lease is not None and lease.is_renewed else None
                )
                renewals_by_executor.setdefault(run.executor_id, []).append(
                    renewed_at or run.changed_at
                )
    return [
        {"executor_id": name, "last_heartbeat": max(renewals), "running": len(renewals)}
        for name, renewals in sorted(renewals_by_executor.items())
    ]


def _counts_with_prefix(totals: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): count
        for name, count in totals.items()
        if name.startswith(prefix) and count > 0
    }


def _has_runs(minute: MinuteCounts) -> bool:
    return any(minute.counts.get(name, 0) for name in (STARTED_COUNT, *ENDED_COUNTS))


def _minute_values(minute: MinuteCounts) -> dict[str, Any]:
    counts = {name: minute.counts.get(name, 0) for name in (STARTED_COUNT, *ENDED_COUNTS)}
    return {"minute": minute.minute_at, **counts, "lateness_ms": _lateness([minute])}


def _lateness(minutes: Sequence[MinuteCounts]) -> Mapping[str, float | None]:
    return _quantiles_of(minutes, LATENESS_COUNT_PREFIX)


def _quantiles_of(minutes: Sequence[MinuteCounts], prefix: str) -> Mapping[str, float | None]:
    """Return percentiles from counted steps, correct within five percent."""
    steps: Counter[int] = Counter()
    for minute in minutes:
        for name, count in minute.counts.items():
            if name.startswith(prefix):
                steps[int(name.removeprefix(prefix))] += count
    return quantiles(steps, step_milliseconds)
