"""How the node does: lateness, what ran in the last hour, what waits."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from punctual.domain.placement import EPOCH, bucket_of
from punctual.domain.run import Run, Status
from punctual.engine.clocks import Reading
from punctual.engine.views import Health, HealthWarning, Stats

HOUR = timedelta(hours=1)
NEVER = EPOCH
MILLISECOND = timedelta(milliseconds=1)
SAMPLES = 10_000
STALE = timedelta(
    milliseconds=200
)  # so old lateness is shown again: whoever asks often costs no run
RECENT = timedelta(minutes=5)
LATE = timedelta(seconds=15)
SILENT = 60.0  # seconds without a plan
COUNTED = {
    Status.SUCCESS.value: "succeeded",
    Status.FAILED.value: "failed",
    Status.TIMED_OUT.value: "failed",
}


class Counted(Protocol):
    """What the store can tell."""

    def count_jobs(self, tenant: str) -> Mapping[str, int]: ...

    def count_runs(self, tenant: str) -> Mapping[str, int]: ...

    def count_queued(self, tenant: str) -> int: ...

    def oldest_queued(self, tenant: str) -> datetime | None: ...


class Sized(Protocol):
    def __len__(self) -> int: ...


class Typed(Protocol):
    @property
    def types(self) -> tuple[str, ...]: ...


class NodeMonitor:
    """`monotonic` tells how long ago was planned; `since`: what was due before it makes none late.

    That is the start, or when the wall clock was set: what is late then was due before.
    """

    def __init__(
        self,
        store: Counted,
        holding: Sized,
        registry: Typed,
        executor_id: str,
        monotonic: Callable[[], float],
        since: datetime,
        warnings: Callable[[], Sequence[HealthWarning]] = tuple,
    ) -> None:
        self._store = store
        self._warnings = warnings
        self._holding = holding
        self._types = tuple(sorted({"event", *registry.types}))
        self._executor_id = executor_id
        self._monotonic = monotonic
        self._since = since
        self._late: deque[tuple[datetime, datetime]] = deque(maxlen=SAMPLES)  # and when expected
        self._lateness_of: dict[timedelta, tuple[datetime, Mapping[str, float | None]]] = {}
        self._minutes: dict[datetime, dict[str, int]] = {}
        self._counted_at: datetime | None = None
        self._counted: dict[str, int] = {}
        self._planned_at: datetime | None = None
        self._planned = 0.0  # by the steady clock
        self._watermark: datetime | None = None

    def planned(self, now: Reading, watermark: datetime) -> None:
        self._planned_at, self._planned, self._watermark = now.wall, now.steady, watermark

    def clock_was_set(self, now: datetime) -> None:
        """The lateness of what was due before is the clock's, and its times say nothing now."""
        self._since = now
        self._late.clear()
        self._lateness_of.clear()

    def started(self, run: Run) -> None:
        started = run.attempt_at
        if started is None:
            return
        self._count(started, "started")
        if started == run.started_at:
            self._late.append((started, _expected_at(run)))

    def performed(self, runs: Sequence[Run]) -> None:
        """What was started and ended by one swap, a batch at a time."""
        self._late.extend(
            (run.attempt_at, run.due_at if run.let_in_at is None else _expected_at(run))
            for run in runs
            if run.attempt_at is not None and run.attempt_at == run.started_at
        )
        counted = Counter([(run.attempt_at, run.ended_at, run.status._value_) for run in runs])
        for (started, ended, status), many in counted.items():
            what = COUNTED.get(status)
            if started is not None:
                self._count(started, "started", many)
            if what is not None and ended is not None:
                self._count(ended, what, many)

    def ended(self, run: Run) -> None:
        what = COUNTED.get(run.status.value)
        if what is not None and run.ended_at is not None:
            self._count(run.ended_at, what)

    def _count(self, at: datetime, what: str, many: int = 1) -> None:
        if at is not self._counted_at:  # those of one batch share their moment
            self._counted_at, self._counted = at, self._of_minute(bucket_of(at))
        self._counted[what] += many

    def _of_minute(self, minute: datetime) -> dict[str, int]:
        counts = self._minutes.get(minute)
        if counts is None:
            self._minutes = {m: c for m, c in self._minutes.items() if minute - m < HOUR}
            counts = self._minutes[minute] = {"started": 0, "succeeded": 0, "failed": 0}
        return counts

    def stats(self, tenant: str, now: datetime) -> Stats:
        oldest = self._store.oldest_queued(tenant)
        return Stats(
            jobs=self._store.count_jobs(tenant),
            runs=self._store.count_runs(tenant),
            last_hour=self._last_hour(now),
            lateness_ms=self._lateness(now, HOUR),
            queue={
                "depth": self._store.count_queued(tenant),
                "oldest_seconds": max(0.0, (now - oldest).total_seconds()) if oldest else 0,
            },
            executors=[
                {
                    "executor_id": self._executor_id,
                    "last_heartbeat": now,  # it is the thread that answers this
                    "running": len(self._holding),
                }
            ],
        )

    def _last_hour(self, now: datetime) -> Sequence[Mapping[str, Any]]:
        return [
            {"minute": minute, **counts}
            for minute, counts in sorted(self._minutes.items())
            if now - minute < HOUR
        ]

    def _lateness(
        self, now: datetime, past: timedelta, due: datetime = NEVER
    ) -> Mapping[str, float | None]:
        at, known = self._lateness_of.get(past, (None, {}))
        if at is None or not timedelta(0) <= now - at < STALE:
            known = _quantiles(self._late, now - past, due)
            self._lateness_of[past] = now, known
        return known

    def health(self, now: datetime) -> Health:
        """Late when runs start late; down when nothing has been planned for a minute."""
        p99 = self._lateness(now, RECENT, self._since)["p99"]
        status = "ok"
        if p99 is not None and p99 > LATE.total_seconds() * 1_000:
            status = "late"
        if self._planned_at is None or self._monotonic() - self._planned > SILENT:
            status = "down"
        planned = self._watermark, self._planned_at
        return Health(status, p99, *planned, self._types, self._warnings())


def _expected_at(run: Run) -> datetime:
    return run.due_at + run.in_line


def _quantiles(
    late: Iterable[tuple[datetime, datetime]], since: datetime, due_since: datetime
) -> Mapping[str, float | None]:
    values = sorted(
        round((at - due) / MILLISECOND, 3) for at, due in late if at >= since and due >= due_since
    )
    if not values:
        return {"p50": None, "p99": None, "max": None}
    return {
        "p50": values[len(values) // 2],
        "p99": values[min(len(values) - 1, len(values) * 99 // 100)],
        "max": values[-1],
    }
