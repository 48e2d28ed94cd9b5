"""Limits on the node, exact: it alone accepts its calls and starts its runs."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Protocol

from punctual.domain.run import Run
from punctual.domain.tenants.quota_ledger import Bucket, full, refilled, tokens, wait, without
from punctual.engine.quotas.limits import Granted, LimitsOf, NoQuotas, too_many_calls, unlimited
from punctual.node.run_queue.slots import INLINE
from punctual.node.sqlite.recent_starts import MINUTE, ORDER, START

SET_BACK = timedelta(seconds=5)  # from there on; less is waited for


class Kept(Protocol):
    """What outlives a restart of starts and orders; `SqliteStarts` says more."""

    def add(self, kind: str, tenant: str, at: datetime, count: int, gone: datetime, /) -> None: ...

    def since(self, kind: str, tenant: str, at: datetime, /) -> Sequence[datetime]: ...


JobsOf = Callable[[str], Mapping[str, int]]
_ALIVE = ("SCHEDULED", "PAUSED")


class Window:
    """What was done in the last minute, one by one."""

    def __init__(self, times: Iterable[datetime] = ()) -> None:
        self._times = deque(times)

    def room(self, most: int, now: datetime) -> int:
        self._set_back(now)
        self._forget(now - MINUTE)
        return max(0, most - len(self._times))

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at: datetime) -> None:
        """Times come in order, but for a clock that was set back."""
        self._forget(at - MINUTE)  # nobody may ask for room: places alone may be limited
        self._times.append(max(at, self._times[-1]) if self._times else at)

    def _forget(self, until: datetime) -> None:
        while self._times and self._times[0] <= until:
            self._times.popleft()

    def _set_back(self, now: datetime) -> None:
        """What a clock that was ahead wrote down was done by now: it counts for a minute yet."""
        if self._times and self._times[-1] > now + SET_BACK:
            self._times = deque(min(at, now) for at in self._times)

    def free_at(self, most: int, asked: int = 1) -> datetime | None:
        """When there is room for so many; None where there is already."""
        over = len(self._times) + asked - most
        return self._times[over - 1] + MINUTE if over > 0 else None


class Windows:
    """Each tenant's, as it is kept."""

    def __init__(self, kind: str, kept: Kept) -> None:
        self._kind = kind
        self._kept = kept
        self._known: dict[str, Window] = {}
        self._touched: set[str] = set()

    def of(self, tenant: str, now: datetime) -> Window:
        window = self._known.get(tenant)
        if window is None:
            times = self._kept.since(self._kind, tenant, now - MINUTE)
            window = self._known[tenant] = Window(times)
        return window

    def add(self, tenant: str, at: datetime, count: int) -> None:
        if not count:
            return
        window = self.of(tenant, at)
        self._touched.add(tenant)
        for _ in range(count):
            window.add(at)
        self._kept.add(self._kind, tenant, at, count, at - MINUTE)

    def keep(self) -> None:
        """What was added is committed."""
        self._touched.clear()

    def undo(self) -> None:
        """It is not: what is kept says what was, also where a write failed half way."""
        for tenant in self._touched:
            self._known.pop(tenant, None)
        self._touched.clear()


class NodeQuotas:
    """What calls ask. Everything happens on the node's one thread."""

    def __init__(
        self,
        limits_of: LimitsOf,
        jobs_of: JobsOf,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        kept: Kept,
    ) -> None:
        self._limits_of = limits_of
        self._jobs_of = jobs_of
        self._clock = clock
        self._monotonic = monotonic
        self._buckets: dict[str, Bucket] = {}
        self._ordered = Windows(ORDER, kept)

    def call(self, tenant: str) -> None:
        limits = self._limits_of(tenant)
        rate = limits.calls_per_second
        if rate is None:
            return
        now = round(self._monotonic() * 1_000_000)
        before = self._buckets.get(tenant) or full(limits.at_once, now)
        bucket = refilled(before, rate, limits.at_once, now)
        if not tokens(bucket):
            self._buckets[tenant] = bucket
            raise too_many_calls(limits, wait(bucket, rate))
        self._buckets[tenant] = without(bucket, 1)

    def jobs(self, tenant: str, asked: int) -> int:
        most = self._limits_of(tenant).jobs
        if most is None:
            return asked
        found = self._jobs_of(tenant)
        return max(0, min(asked, most - sum(found.get(state, 0) for state in _ALIVE)))

    def orders(self, tenant: str, asked: int, whole: bool = False) -> Granted:
        most = self._limits_of(tenant).runs_per_minute
        if most is None or asked == 0:
            return Granted(asked)
        if whole and asked > most:
            return Granted(0, inf)
        now = self._clock()
        window = self._ordered.of(tenant, now)
        count = min(asked, window.room(most, now))
        if whole and count < asked:
            count = 0
        self._ordered.add(tenant, now, count)
        at = window.free_at(most, asked if whole else 1)
        return Granted(count, 0 if count == asked or at is None else (at - now).total_seconds())

    def keep(self) -> None:
        self._ordered.keep()

    def undo(self) -> None:
        self._ordered.undo()


def node_quotas(
    limits_of: LimitsOf | None,
    jobs_of: JobsOf,
    clock: Callable[[], datetime],
    monotonic: Callable[[], float],
    kept: Kept,
) -> NodeQuotas | NoQuotas:
    return NodeQuotas(limits_of, jobs_of, clock, monotonic, kept) if limits_of else NoQuotas()


class Admission:
    """Which runs may start: no tenant's more than `runs_per_minute` in any minute, no more at the
    same time than `concurrent_runs`, and in no more slots of a lane than `lane_percent` of them.
    What may not stays queued.

    All that was begun in a transaction that is undone was not.
    """

    def __init__(
        self,
        limits_of: LimitsOf | None,
        clock: Callable[[], datetime],
        kept: Kept,
        slots: Mapping[str, int] | None = None,
    ) -> None:
        """`slots`: how many runs of each kind work at a time."""
        self.on = limits_of is not None
        self._slots = slots or {}
        self._limits_of = limits_of or unlimited
        self._clock = clock
        self._starts = Windows(START, kept)
        self._running: dict[str, dict[str, str]] = {}  # the kinds of runs, by tenant and run
        self._begun: list[tuple[str, str]] = []  # and still running

    def holds(self, tenant: str) -> bool:
        return self._limits_of(tenant).hold_runs

    def room(self, tenant: str, now: datetime, most: int, kind: str) -> int:
        """How many may start now; an inline run has ended when the next one begins."""
        instant = kind == INLINE
        limits = self._limits_of(tenant)
        if limits.runs_per_minute is not None:
            most = min(most, self._window(tenant).room(limits.runs_per_minute, now))
        if limits.concurrent_runs is not None:
            free = limits.concurrent_runs - len(self._running.get(tenant, ()))
            most = min(most, most if instant and free > 0 else free)
        slots = limits.executors(self._slots[kind]) if kind in self._slots else None
        if slots is not None:
            running = Counter(self._running.get(tenant, {}).values())
            most = min(most, slots - running[kind])
        return max(0, most)

    def free_at(self, tenant: str) -> datetime | None:
        """When time alone makes room; where it does not, ends of runs do."""
        most = self._limits_of(tenant).runs_per_minute
        if most is None or self._window(tenant).room(most, self._clock()):
            return None
        return self._window(tenant).free_at(most)

    def begin(self, runs: Iterable[tuple[str, Run]], kind: str) -> None:
        """Count the runs that started, by tenant."""
        if not self.on:
            return
        begun: Counter[tuple[str, datetime]] = Counter()
        for tenant, run in runs:
            if run.attempt_at is not None and self.holds(tenant):
                begun[tenant, run.attempt_at] += 1
            if kind != INLINE:
                self._begun.append((tenant, run.run_id))
                self._running.setdefault(tenant, {})[run.run_id] = kind
        for (tenant, at), count in begun.items():
            self._starts.add(tenant, at, count)

    def end(self, tenant: str, run_id: str) -> None:
        self._running.get(tenant, {}).pop(run_id, None)

    def keep(self) -> None:
        """What was begun is committed."""
        self._begun.clear()
        self._starts.keep()

    def undo(self) -> None:
        self._starts.undo()
        for tenant, run_id in self._begun:
            self.end(tenant, run_id)
        self._begun.clear()

    def _window(self, tenant: str) -> Window:
        return self._starts.of(tenant, self._clock())
