"""Statistics of the node: lateness, outcomes of the last hour, and queue depth."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from punctual.domain.identifiers import bucket_of
from punctual.domain.run import Run, RunStatus
from punctual.domain.utc import MICROSECOND
from punctual.engine.clock import ClockReading
from punctual.engine.ports.monitor import (
    HEALTH_PERIOD,
    STATISTICS_PERIOD,
    Health,
    HealthWarning,
    ReadLimits,
    Stats,
    no_limits,
)
from punctual.engine.queries.lateness import quantiles, step_of, units_of
from punctual.node.sqlite.rows import Codec, from_minute, to_minute
from punctual.node.sqlite.transaction import Transaction

MAX_HEALTHY_LATENESS_MS = 15_000
MAX_PLAN_AGE_SECONDS = 60.0
COUNTER_WRITE_SECONDS = 1.0  # between writes of the counters, each in the commit of a step
SUCCEEDED_RUN_STATUSES = frozenset({RunStatus.SUCCESS.value})
FAILED_RUN_STATUSES = frozenset({RunStatus.FAILED.value, RunStatus.TIMED_OUT.value})


class Minute(msgspec.Struct, rename={"lateness_counts": "late", "max_lateness_us": "latest"}):
    """Counters of one minute.

    `lateness_counts` counts first starts by the step of their lateness in microseconds.
    """

    started: int = 0
    succeeded: int = 0
    failed: int = 0
    lateness_counts: dict[int, int] = {}
    max_lateness_us: int = 0  # microseconds


_MINUTE_CODEC = Codec(Minute, packed=True)


class SqliteMinutes:
    """Counters for each minute of the last hour. A restart keeps them."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def load_since(self, first: datetime) -> dict[datetime, Minute]:
        """Return the minutes from `first` on. An unreadable minute counts as empty."""
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT minute, counted FROM minutes WHERE minute >= ?", (to_minute(first),)
            ).fetchall()
        minutes = {}
        for minute_number, encoded in rows:
            try:
                minutes[from_minute(minute_number)] = _MINUTE_CODEC.decode(encoded)
            except msgspec.MsgspecError:
                continue  # It holds only statistics, which must not stop a start.
        return minutes

    def save(self, counted: Mapping[datetime, Minute], first: datetime) -> None:
        """Write these minutes, and remove all minutes before `first`."""
        rows = [
            (to_minute(minute_at), _MINUTE_CODEC.encode(counts))
            for minute_at, counts in counted.items()
        ]
        with self._transaction:
            self._transaction.begin()
            self._transaction.db.executemany("INSERT OR REPLACE INTO minutes VALUES (?, ?)", rows)
            self._transaction.db.execute(
                "DELETE FROM minutes WHERE minute < ?", (to_minute(first),)
            )


class StoreCounts(Protocol):
    """Counts of the store."""

    def count_jobs(self, tenant: str) -> Mapping[str, int]: ...

    def count_runs(self, tenant: str) -> Mapping[str, int]: ...

    def count_queued(self, tenant: str) -> int: ...

    def oldest_queued(self, tenant: str) -> datetime | None: ...


class MinuteStore(Protocol):
    """Counters that survive a restart. See `SqliteMinutes`."""

    def load_since(self, first_minute: datetime, /) -> dict[datetime, Minute]: ...

    def save(self, minutes: Mapping[datetime, Minute], first_minute: datetime, /) -> None: ...


class Sized(Protocol):
    def __len__(self) -> int: ...


class TaskTypes(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...


class ScriptQueue(Protocol):
    """The scripts that wait for the node's memory."""

    def limit(self) -> Mapping[str, Any]: ...

    def count_waiting_for_memory(self, tenant: str, now: datetime, /) -> int: ...


class NodeMonitor:
    """Counts starts, ends and lateness by minute.

    Only runs due since `since`, a start or a change of the wall clock, count for the health.

    Lateness is counted in steps, which are exact to 5 %. The maximum is exact.
    """

    def __init__(
        self,
        store: StoreCounts,
        minute_store: MinuteStore,
        running_tasks: Sized,
        attempt_runner: TaskTypes,
        executor_id: str,
        monotonic: Callable[[], float],
        since: datetime,
        warnings: Callable[[], Sequence[HealthWarning]] = tuple,
        script_queue: ScriptQueue | None = None,
        used_limits: ReadLimits = no_limits,
    ) -> None:
        self._used_limits = used_limits
        self._script_queue = script_queue
        self._store = store
        self._warnings = warnings
        self._minute_store = minute_store
        self._running_tasks = running_tasks
        self._types = tuple(sorted({"event", *attempt_runner.types}))
        self._executor_id = executor_id
        self._monotonic = monotonic
        self._since = since
        self._minutes = minute_store.load_since(bucket_of(since - STATISTICS_PERIOD))
        self._changed_minutes: set[datetime] = set()
        self._written_steady = 0.0
        # lateness of the runs that were due since `_since`
        self._lateness_counts: dict[datetime, Counter[int]] = {}
        self._planned_at: datetime | None = None
        self._planned_steady = 0.0  # by the steady clock
        self._watermark: datetime | None = None
        self._closing = False

    def note_plan(self, now: ClockReading, watermark: datetime) -> None:
        self._planned_at, self._planned_steady, self._watermark = now.wall, now.steady, watermark

    def on_clock_set(self, now: datetime) -> None:
        """Forget the lateness so far.

        For runs that were due before, it measures the change of the clock.
        """
        self._since = now
        self._lateness_counts.clear()

    def close(self) -> None:
        """Report the node as down from now on, because it starts no more runs."""
        self._closing = True

    def write(self, now: ClockReading) -> None:
        """Write the changed counters in the transaction of a step that commits anyway."""
        if not self._changed_minutes or (
            now.steady - self._written_steady < COUNTER_WRITE_SECONDS and not self._closing
        ):
            return
        changed = {
            minute_at: self._minutes[minute_at]
            for minute_at in self._changed_minutes
            if minute_at in self._minutes
        }
        self._minute_store.save(changed, bucket_of(now.wall - STATISTICS_PERIOD))
        self._changed_minutes.clear()
        self._written_steady = now.steady

    def on_rollback(self) -> None:
        """Mark all minutes as changed. The last write may have been rolled back."""
        self._changed_minutes.update(self._minutes)

    def count_started(self, runs: Sequence[Run]) -> None:
        """Count a batch of attempts that began. The attempts of one batch share a start time."""
        for started_at, count in Counter([run.attempt_at for run in runs]).items():
            if started_at is not None:
                self._change_minute(started_at).started += count
        first_starts = Counter(
            [
                (run.attempt_at, run.due_at if run.admitted_at is None else _expected_at(run))
                for run in runs
                if run.attempt_at is not None and run.attempt_at == run.started_at
            ]
        )
        for (started_at, expected_at), count in first_starts.items():
            self._count_lateness(self._change_minute(started_at), started_at, expected_at, count)

    def count_ended(self, runs: Sequence[Run]) -> None:
        """Count a batch of runs that ended."""
        counts = Counter([(run.ended_at, run.status._value_) for run in runs])
        for (ended_at, status), count in counts.items():
            if ended_at is not None:
                self._count_status(ended_at, status, count)

    def _count_status(self, ended_at: datetime, status: str, count: int) -> None:
        if status in SUCCEEDED_RUN_STATUSES:
            self._change_minute(ended_at).succeeded += count
        elif status in FAILED_RUN_STATUSES:
            self._change_minute(ended_at).failed += count

    def _count_lateness(
        self, minute: Minute, started_at: datetime, expected_at: datetime, count: int
    ) -> None:
        lateness_us = (started_at - expected_at) // MICROSECOND
        step = step_of(lateness_us)
        minute.lateness_counts[step] = minute.lateness_counts.get(step, 0) + count
        minute.max_lateness_us = max(minute.max_lateness_us, lateness_us)
        if expected_at >= self._since:
            self._lateness_counts.setdefault(bucket_of(started_at), Counter())[step] += count

    def _change_minute(self, counted_at: datetime) -> Minute:
        """Return the minute of a moment and mark it as changed."""
        bucket = bucket_of(counted_at)
        self._changed_minutes.add(bucket)
        minute = self._minutes.get(bucket)
        if minute is None:
            oldest = bucket - STATISTICS_PERIOD
            self._minutes = {
                counted_at: counts
                for counted_at, counts in self._minutes.items()
                if counted_at > oldest
            }
            self._lateness_counts = {
                counted_at: counts
                for counted_at, counts in self._lateness_counts.items()
                if counted_at > oldest
            }
            minute = self._minutes[bucket] = Minute()
        return minute

    def stats(self, tenant: str, now: datetime) -> Stats:
        oldest_due_at = self._store.oldest_queued(tenant)
        last_hour = [
            (minute_at, minute)
            for minute_at, minute in sorted(self._minutes.items())
            if _is_within(minute_at, now, STATISTICS_PERIOD)
        ]
        return Stats(
            jobs=self._store.count_jobs(tenant),
            runs=self._run_counts(tenant, now),
            last_hour=[_minute_view(minute_at, minute) for minute_at, minute in last_hour],
            lateness_ms=_lateness_view([minute for _, minute in last_hour]),
            queue={
                "depth": self._store.count_queued(tenant),
                "oldest_seconds": max(0.0, (now - oldest_due_at).total_seconds())
                if oldest_due_at
                else 0,
            },
            executors=[
                {
                    "executor_id": self._executor_id,
                    "last_heartbeat": now,  # The thread that answers this request is the executor.
                    "running": len(self._running_tasks),
                }
            ],
            limits=[
                *self._used_limits(tenant, now),
                *([] if self._script_queue is None else [self._script_queue.limit()]),
            ],
        )

    def _run_counts(self, tenant: str, now: datetime) -> Mapping[str, int]:
        """Return the number of runs by the status that they are shown with."""
        counts = self._store.count_runs(tenant)
        queue = self._script_queue
        waiting = 0 if queue is None else queue.count_waiting_for_memory(tenant, now)
        if not waiting:
            return counts
        changes = {RunStatus.QUEUED.value: -waiting, RunStatus.WAITING.value: waiting}
        changed = {**counts, **{name: counts.get(name, 0) + by for name, by in changes.items()}}
        return {name: count for name, count in changed.items() if count}

    def health(self, now: datetime) -> Health:
        """Return the health: late if runs start late, down if there was no plan for a minute."""
        steps: Counter[int] = Counter()
        for minute_at, counts in self._lateness_counts.items():
            if _is_within(minute_at, now, HEALTH_PERIOD):
                steps.update(counts)
        p99 = quantiles(steps, _step_ms)["p99"]
        status = "ok"
        if p99 is not None and p99 > MAX_HEALTHY_LATENESS_MS:
            status = "late"
        is_silent = (
            self._planned_at is None
            or self._monotonic() - self._planned_steady > MAX_PLAN_AGE_SECONDS
        )
        if is_silent or self._closing:
            status = "down"
        return Health(status, p99, self._watermark, self._planned_at, self._types, self._warnings())


def _expected_at(run: Run) -> datetime:
    return run.due_at + run.wait_queue_time


def _is_within(minute: datetime, now: datetime, period: timedelta) -> bool:
    return bucket_of(now - period) < minute <= now


def _minute_view(minute_at: datetime, counts_of_minute: Minute) -> dict[str, Any]:
    counts = {
        "started": counts_of_minute.started,
        "succeeded": counts_of_minute.succeeded,
        "failed": counts_of_minute.failed,
    }
    return {"minute": minute_at, **counts, "lateness_ms": _lateness_view([counts_of_minute])}


def _lateness_view(minutes: Sequence[Minute]) -> Mapping[str, float | None]:
    steps: Counter[int] = Counter()
    for minute in minutes:
        steps.update(minute.lateness_counts)
    max_ms = max((minute.max_lateness_us for minute in minutes), default=0) / 1_000
    percentiles = quantiles(steps, _step_ms)
    capped = {name: None if ms is None else min(ms, max_ms) for name, ms in percentiles.items()}
    return {**capped, "max": max_ms if steps else None}


def _step_ms(step: int) -> float:
    """Return the lateness of a step.

    Step 0 holds the runs that started on time to a microsecond.
    """
    return round(units_of(step) / 1_000, 3) if step else 0.0
