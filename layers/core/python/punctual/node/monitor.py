"""Statistics of the node: lateness, outcomes of the last hour, and queue depth."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from punctual.domain.identifiers import bucket_of
from punctual.domain.run import Run, RunStatus
from punctual.engine.clock import ClockReading
from punctual.engine.ports.monitor import Health, HealthWarning, Stats
from punctual.engine.queries.lateness import quantiles, step_of, units_of
from punctual.node.minutes import Minute

HOUR = timedelta(hours=1)
MICROSECOND = timedelta(microseconds=1)
RECENT = timedelta(minutes=5)
LATE = 15_000  # milliseconds
SILENT = 60.0  # seconds without a plan
WRITTEN = 1.0  # seconds between writes of the counters, each in the commit of a step
SUCCEEDED = frozenset({RunStatus.SUCCESS.value})
FAILED = frozenset({RunStatus.FAILED.value, RunStatus.TIMED_OUT.value})


class Counted(Protocol):
    """Counts of the store."""

    def count_jobs(self, tenant: str) -> Mapping[str, int]: ...

    def count_runs(self, tenant: str) -> Mapping[str, int]: ...

    def count_queued(self, tenant: str) -> int: ...

    def oldest_queued(self, tenant: str) -> datetime | None: ...


class Kept(Protocol):
    """Counters that survive a restart. See `SqliteMinutes`."""

    def since(self, first: datetime, /) -> dict[datetime, Minute]: ...

    def put(self, counted: Mapping[datetime, Minute], first: datetime, /) -> None: ...


class Sized(Protocol):
    def __len__(self) -> int: ...


class Typed(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...


class NodeMonitor:
    """Counts starts, ends and lateness by minute.

    Only runs due since `since`, a start or a change of the wall clock, count for the health.

    Lateness is counted in steps, which are exact to 5 %. The maximum is exact.
    """

    def __init__(
        self,
        store: Counted,
        minutes: Kept,
        holding: Sized,
        registry: Typed,
        executor_id: str,
        monotonic: Callable[[], float],
        since: datetime,
        warnings: Callable[[], Sequence[HealthWarning]] = tuple,
    ) -> None:
        self._store = store
        self._warnings = warnings
        self._kept = minutes
        self._holding = holding
        self._types = tuple(sorted({"event", *registry.types}))
        self._executor_id = executor_id
        self._monotonic = monotonic
        self._since = since
        self._minutes = minutes.since(bucket_of(since - HOUR))
        self._changed: set[datetime] = set()
        self._written = 0.0
        # lateness of the runs that were due since `_since`
        self._own: dict[datetime, Counter[int]] = {}
        self._planned_at: datetime | None = None
        self._planned = 0.0  # by the steady clock
        self._watermark: datetime | None = None
        self._closing = False

    def planned(self, now: ClockReading, watermark: datetime) -> None:
        self._planned_at, self._planned, self._watermark = now.wall, now.steady, watermark

    def clock_was_set(self, now: datetime) -> None:
        """Forget the lateness so far.

        For runs that were due before, it measures the change of the clock.
        """
        self._since = now
        self._own.clear()

    def close(self) -> None:
        """Report the node as down from now on, because it starts no more runs."""
        self._closing = True

    def write(self, now: ClockReading) -> None:
        """Write the changed counters in the transaction of a step that commits anyway."""
        if not self._changed or (now.steady - self._written < WRITTEN and not self._closing):
            return
        counted = {at: self._minutes[at] for at in self._changed if at in self._minutes}
        self._kept.put(counted, bucket_of(now.wall - HOUR))
        self._changed.clear()
        self._written = now.steady

    def undone(self) -> None:
        """Mark all minutes as changed. The last write may have been rolled back."""
        self._changed.update(self._minutes)

    def started(self, runs: Sequence[Run]) -> None:
        """Count a batch of attempts that began. The attempts of one batch share a start time."""
        for at, count in Counter([run.attempt_at for run in runs]).items():
            if at is not None:
                self._at(at).started += count
        first = Counter(
            [
                (run.attempt_at, run.due_at if run.let_in_at is None else _expected_at(run))
                for run in runs
                if run.attempt_at is not None and run.attempt_at == run.started_at
            ]
        )
        for (at, expected), count in first.items():
            self._late(self._at(at), at, expected, count)

    def ended(self, runs: Sequence[Run]) -> None:
        """Count a batch of runs that ended."""
        counted = Counter([(run.ended_at, run.status._value_) for run in runs])
        for (at, status), count in counted.items():
            if at is not None:
                self._end(at, status, count)

    def _end(self, at: datetime, status: str, many: int) -> None:
        if status in SUCCEEDED:
            self._at(at).succeeded += many
        elif status in FAILED:
            self._at(at).failed += many

    def _late(self, minute: Minute, at: datetime, expected: datetime, many: int) -> None:
        late = (at - expected) // MICROSECOND
        step = step_of(late)
        minute.late[step] = minute.late.get(step, 0) + many
        minute.latest = max(minute.latest, late)
        if expected >= self._since:
            self._own.setdefault(bucket_of(at), Counter())[step] += many

    def _at(self, at: datetime) -> Minute:
        """Return the minute of a moment and mark it as changed."""
        bucket = bucket_of(at)
        self._changed.add(bucket)
        found = self._minutes.get(bucket)
        if found is None:
            oldest = bucket - HOUR
            self._minutes = {at: one for at, one in self._minutes.items() if at > oldest}
            self._own = {at: one for at, one in self._own.items() if at > oldest}
            found = self._minutes[bucket] = Minute()
        return found

    def stats(self, tenant: str, now: datetime) -> Stats:
        oldest = self._store.oldest_queued(tenant)
        hour = [(at, one) for at, one in sorted(self._minutes.items()) if _is_past(at, now, HOUR)]
        return Stats(
            jobs=self._store.count_jobs(tenant),
            runs=self._store.count_runs(tenant),
            last_hour=[_shown(at, one) for at, one in hour],
            lateness_ms=_lateness([one for _, one in hour]),
            queue={
                "depth": self._store.count_queued(tenant),
                "oldest_seconds": max(0.0, (now - oldest).total_seconds()) if oldest else 0,
            },
            executors=[
                {
                    "executor_id": self._executor_id,
                    "last_heartbeat": now,  # The thread that answers this request is the executor.
                    "running": len(self._holding),
                }
            ],
        )

    def health(self, now: datetime) -> Health:
        """Return the health: late if runs start late, down if there was no plan for a minute."""
        steps: Counter[int] = Counter()
        for at, counted in self._own.items():
            if _is_past(at, now, RECENT):
                steps.update(counted)
        p99 = quantiles(steps, _milliseconds)["p99"]
        status = "ok"
        if p99 is not None and p99 > LATE:
            status = "late"
        silent = self._planned_at is None or self._monotonic() - self._planned > SILENT
        if silent or self._closing:
            status = "down"
        planned = self._watermark, self._planned_at
        return Health(status, p99, *planned, self._types, self._warnings())


def _expected_at(run: Run) -> datetime:
    return run.due_at + run.in_line


def _is_past(minute: datetime, now: datetime, span: timedelta) -> bool:
    return bucket_of(now - span) < minute <= now


def _shown(at: datetime, one: Minute) -> dict[str, Any]:
    counts = {"started": one.started, "succeeded": one.succeeded, "failed": one.failed}
    return {"minute": at, **counts, "lateness_ms": _lateness([one])}


def _lateness(minutes: Sequence[Minute]) -> Mapping[str, float | None]:
    steps: Counter[int] = Counter()
    for one in minutes:
        steps.update(one.late)
    most = max((one.latest for one in minutes), default=0) / 1_000
    found = quantiles(steps, _milliseconds)
    shown = {name: None if late is None else min(late, most) for name, late in found.items()}
    return {**shown, "max": most if steps else None}


def _milliseconds(step: int) -> float:
    """Return the lateness of a step.

    Step 0 holds the runs that started on time to a microsecond.
    """
    return round(units_of(step) / 1_000, 3) if step else 0.0
