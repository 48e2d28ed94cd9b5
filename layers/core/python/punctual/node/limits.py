"""Limits on the node. They are exact, because one thread accepts all calls and starts all runs."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from math import inf
from typing import Protocol

from punctual.domain.run import Run
from punctual.domain.tenants.limits import TenantLimits
from punctual.domain.tenants.quota_ledger import (
    TokenBucket,
    full_bucket,
    refill,
    remove_tokens,
    seconds_until_token,
    tokens,
)
from punctual.engine.ports.quotas import LimitsOf, QuotaGrant
from punctual.engine.ports.tenants.artifact_rows import ArtifactRows
from punctual.engine.quotas.leased_row import RecentDemand
from punctual.engine.quotas.limits import NoQuotas, too_many_calls, unlimited
from punctual.engine.quotas.used_limits import ArtifactUses, ReadUses, UsedLimits
from punctual.node.sqlite.recent_starts import START_KIND, START_REQUEST_KIND, START_WINDOW
from punctual.node.sqlite.state_rows import INLINE_SLOT

MAX_TOLERATED_STEP_BACK = timedelta(seconds=5)  # windows wait out a smaller step back


class StartStore(Protocol):
    """Starts and start requests that survive a restart. See `SqliteStarts`."""

    def add(
        self, kind: str, tenant: str, started_at: datetime, count: int, remove_until: datetime, /
    ) -> None: ...

    def times_since(self, kind: str, tenant: str, after: datetime, /) -> Sequence[datetime]: ...


CountJobs = Callable[[str], Mapping[str, int]]
_LIVE_STATUSES = ("SCHEDULED", "PAUSED")


class RateWindow:
    """The times of the last minute at which a tenant used its limit."""

    def __init__(self, times: Iterable[datetime] = ()) -> None:
        self._times = deque(times)

    def room(self, limit: int, now: datetime) -> int:
        return max(0, limit - self.used(now))

    def used(self, now: datetime) -> int:
        """Return how many times lie in the minute before `now`."""
        self._cap_future_times(now)
        self._forget(now - START_WINDOW)
        return len(self._times)

    def __len__(self) -> int:
        return len(self._times)

    def add(self, used_at: datetime) -> None:
        """Add a time. Times come in order unless the clock was set back."""
        # `room` may never be called: a tenant may have a limit on concurrent runs alone
        self._forget(used_at - START_WINDOW)
        self._times.append(max(used_at, self._times[-1]) if self._times else used_at)

    def _forget(self, until: datetime) -> None:
        while self._times and self._times[0] <= until:
            self._times.popleft()

    def _cap_future_times(self, now: datetime) -> None:
        """Cap times of the future at `now`.

        A clock that was ahead wrote them, so they count for one more minute.
        """
        if self._times and self._times[-1] > now + MAX_TOLERATED_STEP_BACK:
            self._times = deque(min(used_at, now) for used_at in self._times)

    def free_at(self, limit: int, requested: int = 1) -> datetime | None:
        """Return when there is room for `requested` more, or None if there is room now."""
        excess = len(self._times) + requested - limit
        return self._times[excess - 1] + START_WINDOW if excess > 0 else None


class RateWindows:
    """The windows of all tenants, read from the store on first use."""

    def __init__(self, kind: str, starts: StartStore) -> None:
        self._kind = kind
        self._starts = starts
        self._windows: dict[str, RateWindow] = {}
        self._changed_tenants: set[str] = set()

    def window_of(self, tenant: str, now: datetime) -> RateWindow:
        window = self._windows.get(tenant)
        if window is None:
            times = self._starts.times_since(self._kind, tenant, now - START_WINDOW)
            window = self._windows[tenant] = RateWindow(times)
        return window

    def add(self, tenant: str, used_at: datetime, count: int) -> None:
        if not count:
            return
        window = self.window_of(tenant, used_at)
        self._changed_tenants.add(tenant)
        for _ in range(count):
            window.add(used_at)
        self._starts.add(self._kind, tenant, used_at, count, used_at - START_WINDOW)

    def on_commit(self) -> None:
        """Accept the additions of a committed transaction."""
        self._changed_tenants.clear()

    def on_rollback(self) -> None:
        """Forget the windows that a rolled back transaction touched.

        The store has their true content, also where a write failed half way.
        """
        for tenant in self._changed_tenants:
            self._windows.pop(tenant, None)
        self._changed_tenants.clear()


class NodeQuotas:
    """Quotas of calls, jobs and start requests. All calls come from the node's one thread."""

    def __init__(
        self,
        limits_of: LimitsOf,
        count_jobs: CountJobs,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        starts: StartStore,
    ) -> None:
        self._limits_of = limits_of
        self._count_jobs = count_jobs
        self._clock = clock
        self._monotonic = monotonic
        self._call_buckets: dict[str, TokenBucket] = {}
        self._start_requests = RateWindows(START_REQUEST_KIND, starts)
        self._recent_calls: dict[str, RecentDemand] = {}

    def uses(self, tenant: str, limits: TenantLimits, now: datetime) -> Mapping[str, float]:
        """Return how much of the limits on requests is used, by limit."""
        uses: dict[str, float] = {"jobs": self._live_jobs(tenant)}
        if limits.calls_per_second is not None:
            calls = self._recent_calls.get(tenant)
            used = 0.0 if calls is None else calls.per_second(self._steady_micros())
            uses["calls_per_second"] = round(used, 1)
        if limits.runs_per_minute is not None:
            uses["runs_per_minute"] = self._start_requests.window_of(tenant, now).used(now)
        return uses

    def check_call(self, tenant: str) -> None:
        limits = self._limits_of(tenant)
        rate = limits.calls_per_second
        if rate is None:
            return
        now = self._steady_micros()
        previous = self._call_buckets.get(tenant) or full_bucket(limits.burst_size, now)
        call_bucket = refill(previous, rate, limits.burst_size, now)
        if not tokens(call_bucket):
            self._call_buckets[tenant] = call_bucket
            raise too_many_calls(limits, seconds_until_token(call_bucket, rate))
        self._call_buckets[tenant] = remove_tokens(call_bucket, 1)
        self._recent_calls.setdefault(tenant, RecentDemand()).add(1, now)

    def available_jobs(self, tenant: str, requested: int) -> int:
        limit = self._limits_of(tenant).jobs
        if limit is None:
            return requested
        return max(0, min(requested, limit - self._live_jobs(tenant)))

    def take_run_requests(
        self, tenant: str, requested: int, all_or_none: bool = False
    ) -> QuotaGrant:
        limit = self._limits_of(tenant).runs_per_minute
        if limit is None or requested == 0:
            return QuotaGrant(requested)
        if all_or_none and requested > limit:
            return QuotaGrant(0, inf)
        now = self._clock()
        window = self._start_requests.window_of(tenant, now)
        granted = min(requested, window.room(limit, now))
        if all_or_none and granted < requested:
            granted = 0
        self._start_requests.add(tenant, now, granted)
        free_at = window.free_at(limit, requested if all_or_none else 1)
        return QuotaGrant(
            granted,
            0 if granted == requested or free_at is None else (free_at - now).total_seconds(),
        )

    def _live_jobs(self, tenant: str) -> int:
        job_counts = self._count_jobs(tenant)
        return sum(job_counts.get(status, 0) for status in _LIVE_STATUSES)

    def _steady_micros(self) -> int:
        return round(self._monotonic() * 1_000_000)

    def on_commit(self) -> None:
        self._start_requests.on_commit()

    def on_rollback(self) -> None:
        self._start_requests.on_rollback()


def node_quotas(
    limits_of: LimitsOf | None,
    count_jobs: CountJobs,
    clock: Callable[[], datetime],
    monotonic: Callable[[], float],
    starts: StartStore,
) -> NodeQuotas | NoQuotas:
    return NodeQuotas(limits_of, count_jobs, clock, monotonic, starts) if limits_of else NoQuotas()


def used_limits(
    limits_of: LimitsOf | None,
    artifacts: ArtifactRows,
    admission: "Admission",
    quotas: NodeQuotas | NoQuotas,
) -> UsedLimits:
    """Return the reader of all uses that this node counts."""
    readers: list[ReadUses] = [ArtifactUses(artifacts)]
    if isinstance(quotas, NodeQuotas):
        readers += [admission.uses, quotas.uses]
    return UsedLimits(limits_of or unlimited, readers)


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
        starts: StartStore,
        slots: Mapping[str, int] | None = None,
    ) -> None:
        """`slots` is the number of runs that run at a time, by slot."""
        self.is_enabled = limits_of is not None
        self._slots = slots or {}
        self._limits_of = limits_of or unlimited
        self._clock = clock
        self._starts = RateWindows(START_KIND, starts)
        # The slot of each running run, by tenant and run id.
        self._running: dict[str, dict[str, str]] = {}
        self._started_runs: list[tuple[str, str]] = []  # runs that this transaction began

    def may_hold_runs(self, tenant: str) -> bool:
        return self._limits_of(tenant).restricts_runs

    def room(self, tenant: str, now: datetime, limit: int, slot: str) -> int:
        """Return how many runs may start now.

        Inline runs end one by one, so one free place admits all of them.
        """
        is_inline = slot == INLINE_SLOT
        limits = self._limits_of(tenant)
        if limits.runs_per_minute is not None:
            limit = min(limit, self._window(tenant).room(limits.runs_per_minute, now))
        if limits.concurrent_runs is not None:
            free = limits.concurrent_runs - len(self._running.get(tenant, ()))
            limit = min(limit, limit if is_inline and free > 0 else free)
        lane_slots = limits.max_executors(self._slots[slot]) if slot in self._slots else None
        if lane_slots is not None:
            running = Counter(self._running.get(tenant, {}).values())
            limit = min(limit, lane_slots - running[slot])
        return max(0, limit)

    def uses(self, tenant: str, limits: TenantLimits, now: datetime) -> Mapping[str, float]:
        """Return how much of the limits on runs is used, by limit."""
        running = Counter(self._running.get(tenant, {}).values())
        shares = [100 * running[slot] / size for slot, size in self._slots.items() if size]
        uses: dict[str, float] = {
            "concurrent_runs": running.total(),
            "lane_percent": round(max(shares, default=0), 1),
        }
        if limits.runs_per_minute is not None:
            uses["runs_per_minute"] = self._window(tenant).used(now)
        return uses

    def free_at(self, tenant: str) -> datetime | None:
        """Return when time alone makes room.

        It is None if there is room now, or if only the end of a run makes room.
        """
        limit = self._limits_of(tenant).runs_per_minute
        if limit is None or self._window(tenant).room(limit, self._clock()):
            return None
        return self._window(tenant).free_at(limit)

    def add_started(self, runs: Iterable[tuple[str, Run]], slot: str) -> None:
        """Count the runs that started."""
        if not self.is_enabled:
            return
        start_counts: Counter[tuple[str, datetime]] = Counter()
        for tenant, run in runs:
            if run.attempt_at is not None and self.may_hold_runs(tenant):
                start_counts[tenant, run.attempt_at] += 1
            if slot != INLINE_SLOT:
                self._started_runs.append((tenant, run.run_id))
                self._running.setdefault(tenant, {})[run.run_id] = slot
        for (tenant, started_at), count in start_counts.items():
            self._starts.add(tenant, started_at, count)

    def remove_ended(self, tenant: str, run_id: str) -> None:
        self._running.get(tenant, {}).pop(run_id, None)

    def on_commit(self) -> None:
        """Accept the runs of a committed transaction."""
        self._started_runs.clear()
        self._starts.on_commit()

    def on_rollback(self) -> None:
        self._starts.on_rollback()
        for tenant, run_id in self._started_runs:
            self.remove_ended(tenant, run_id)
        self._started_runs.clear()

    def _window(self, tenant: str) -> RateWindow:
        return self._starts.window_of(tenant, self._clock())
