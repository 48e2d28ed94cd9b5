"""Limits on the node. They are exact, because one thread accepts all calls and starts all runs."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Protocol

from punctual.domain.run import Run
from punctual.domain.tenants.quota_ledger import Bucket, full, refilled, tokens, wait, without
from punctual.engine.ports.quotas import Granted, LimitsOf
from punctual.engine.quotas.limits import NoQuotas, too_many_calls, unlimited
from punctual.node.run_queue.slots import INLINE
from punctual.node.sqlite.recent_starts import MINUTE, ORDER, START

SET_BACK = timedelta(seconds=5)  # windows wait out a smaller step back


class Kept(Protocol):
    """Starts and start requests that survive a restart. See `SqliteStarts`."""

    def add(self, kind: str, tenant: str, at: datetime, count: int, gone: datetime, /) -> None: ...

    def since(self, kind: str, tenant: str, at: datetime, /) -> Sequence[datetime]: ...


JobsOf = Callable[[str], Mapping[str, int]]
_ALIVE = ("SCHEDULED", "PAUSED")


class Window:
    """The times of the last minute at which a tenant used its limit."""

    def __init__(self, times: Iterable[datetime] = ()) -> None:
        self._times = deque(times)

    def room(self, most: int, now: datetime) -> int:
        self._set_back(now)
        self._forget(now - MINUTE)
        return max(0, most - len(self._times))

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at: datetime) -> None:
        """Add a time. Times come in order unless the clock was set back."""
        # `room` may never be called: a tenant may have a limit on concurrent runs alone
        self._forget(at - MINUTE)
        self._times.append(max(at, self._times[-1]) if self._times else at)

    def _forget(self, until: datetime) -> None:
        while self._times and self._times[0] <= until:
            self._times.popleft()

    def _set_back(self, now: datetime) -> None:
        """Cap times of the future at `now`.

        A clock that was ahead wrote them, so they count for one more minute.
        """
        if self._times and self._times[-1] > now + SET_BACK:
            self._times = deque(min(at, now) for at in self._times)

    def free_at(self, most: int, asked: int = 1) -> datetime | None:
        """Return when there is room for `asked` more, or None if there is room now."""
        over = len(self._times) + asked - most
        return self._times[over - 1] + MINUTE if over > 0 else None


class Windows:
    """The windows of all tenants, read from the store on first use."""

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
        """Accept the additions of a committed transaction."""
        self._touched.clear()

    def undo(self) -> None:
        """Forget the windows that a rolled back transaction touched.

        The store has their true content, also where a write failed half way.
        """
        for tenant in self._touched:
            self._known.pop(tenant, None)
        self._touched.clear()


class NodeQuotas:
    """Quotas of calls, jobs and start requests. All calls come from the node's one thread."""

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
    """Decides which runs may start.

    A tenant starts at most `runs_per_minute` runs in any minute and has at most `concurrent_runs`
    at a time. They use at most `lane_percent` of the slots of a lane. Other runs stay QUEUED.

    A rolled back transaction counts none of the runs that it began.
    """

    def __init__(
        self,
        limits_of: LimitsOf | None,
        clock: Callable[[], datetime],
        kept: Kept,
        slots: Mapping[str, int] | None = None,
    ) -> None:
        """Create the admission. `slots` says how many runs of each kind run at a time."""
        self.on = limits_of is not None
        self._slots = slots or {}
        self._limits_of = limits_of or unlimited
        self._clock = clock
        self._starts = Windows(START, kept)
        # the kind of each running run, by tenant and run id
        self._running: dict[str, dict[str, str]] = {}
        self._begun: list[tuple[str, str]] = []  # runs that this transaction began

    def holds(self, tenant: str) -> bool:
        return self._limits_of(tenant).hold_runs

    def room(self, tenant: str, now: datetime, most: int, kind: str) -> int:
        """Return how many runs may start now.

        Inline runs end one by one, so one free place admits all of them.
        """
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
        """Return when time alone makes room.

        It is None if there is room now, or if only the end of a run makes room.
        """
        most = self._limits_of(tenant).runs_per_minute
        if most is None or self._window(tenant).room(most, self._clock()):
            return None
        return self._window(tenant).free_at(most)

    def begin(self, runs: Iterable[tuple[str, Run]], kind: str) -> None:
        """Count the runs that started."""
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
        """Accept the runs of a committed transaction."""
        self._begun.clear()
        self._starts.keep()

    def undo(self) -> None:
        self._starts.undo()
        for tenant, run_id in self._begun:
            self.end(tenant, run_id)
        self._begun.clear()

    def _window(self, tenant: str) -> Window:
        return self._starts.of(tenant, self._clock())
