"""Statistics and health of a deployment, from the planner's row and the counts of `status`."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from punctual.aws.dynamodb.control.counters import Counters, Minute
from punctual.domain.durations import LEASE
from punctual.domain.identifiers import bucket_of
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.monitor import Health, Stats
from punctual.engine.ports.rows import Key
from punctual.engine.queries.lateness import quantiles
from punctual.lambdas.status.counters import ENDED, JOB, LATE, QUEUED, RUN, STARTED, milliseconds

HOUR = timedelta(hours=1)
RECENT = timedelta(minutes=5)
TOO_LATE = timedelta(seconds=15)
# Without due timers the planner writes every five minutes. It ticks each minute.
SILENT = timedelta(minutes=8)
AHEAD = timedelta(minutes=3)  # runs are queued up to two minutes before their time
ASKED = 200  # jobs read from each slot to list executors
TENANTS = ("default",)  # tenants that stand for the health of the whole deployment


class PlanningProgress(Protocol):
    """Reads the rows that the planner writes."""

    def watermark(self) -> datetime | None: ...

    def heartbeat(self) -> datetime | None: ...


Beating = Callable[[str, int], Mapping[Key, StoredState]]


class DeployedMonitor:
    """Reads statistics and health. Counts lag by the delay of the stream, usually a second."""

    def __init__(
        self,
        planned: PlanningProgress,
        tallies: Counters,
        beating: Beating,
        task_types: Collection[str],
        tenants: Sequence[str] = TENANTS,
    ) -> None:
        self._planned = planned
        self._tallies = tallies
        self._beating = beating
        self._types = tuple(sorted(task_types))
        self._tenants = tenants

    def stats(self, tenant: str, now: datetime) -> Stats:
        totals = self._tallies.totals(tenant)
        minutes = self._tallies.minutes(tenant, bucket_of(now - HOUR), bucket_of(now + AHEAD))
        past = [one for one in minutes if one.at <= now]
        ahead = sum(one.counts.get(QUEUED, 0) for one in minutes if one.at > now)
        depth = max(0, totals.get(f"{RUN}QUEUED", 0) - ahead)
        waiting = [one.at for one in past if one.counts.get(QUEUED, 0) > 0]
        return Stats(
            jobs=_named(totals, JOB),
            runs=_named(totals, RUN),
            last_hour=[_shown(one) for one in past if _happened(one)],
            lateness_ms=_lateness(past),
            queue={
                "depth": depth,
                "oldest_seconds": (now - waiting[0]).total_seconds() if depth and waiting else 0,
            },
            executors=_executors(self._beating(tenant, ASKED)),
        )

    def health(self, now: datetime) -> Health:
        """Return the health: late if runs start late, down if the planner is silent for minutes."""
        heartbeat = self._planned.heartbeat()
        minutes = [
            one
            for tenant in self._tenants
            for one in self._tallies.minutes(tenant, bucket_of(now - RECENT), now)
        ]
        p99 = _lateness(minutes)["p99"]
        status = "ok"
        if p99 is not None and p99 > TOO_LATE / timedelta(milliseconds=1):
            status = "late"
        if heartbeat is None or now - heartbeat > SILENT:
            status = "down"
        return Health(status, p99, self._planned.watermark(), heartbeat, self._types)


def _executors(beating: Mapping[Key, StoredState]) -> list[dict[str, Any]]:
    """Return the executors that hold runs. Lambda has no list of its environments."""
    held: dict[str, list[datetime]] = {}
    for stored in beating.values():
        for run in stored.head.runs:
            if run.held and run.claimer:
                lease = stored.leases.get(run.run_id)
                beat = lease.until - LEASE if lease is not None and lease.beaten else None
                held.setdefault(run.claimer, []).append(beat or run.changed_at)
    return [
        {"executor_id": name, "last_heartbeat": max(beats), "running": len(beats)}
        for name, beats in sorted(held.items())
    ]


def _named(totals: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): count
        for name, count in totals.items()
        if name.startswith(prefix) and count > 0
    }


def _happened(one: Minute) -> bool:
    return any(one.counts.get(name, 0) for name in (STARTED, *ENDED))


def _shown(one: Minute) -> dict[str, Any]:
    counts = {name: one.counts.get(name, 0) for name in (STARTED, *ENDED)}
    return {"minute": one.at, **counts, "lateness_ms": _lateness([one])}


def _lateness(minutes: Sequence[Minute]) -> Mapping[str, float | None]:
    """Return lateness percentiles from counted steps, correct within five percent."""
    steps: Counter[int] = Counter()
    for one in minutes:
        for name, count in one.counts.items():
            if name.startswith(LATE):
                steps[int(name.removeprefix(LATE))] += count
    return quantiles(steps, milliseconds)
