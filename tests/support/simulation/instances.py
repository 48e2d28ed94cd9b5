"""Instances that share a limit through rows in memory. Some of them crash."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, cycle
from random import Random
from typing import Generic, TypeVar

from punctual.aws.server_time import StoreClock
from punctual.domain.errors import Unavailable
from punctual.domain.tenants.limits import TenantLimits
from punctual.engine.ports.tenants.quota_rows import QuotaRow, QuotaRows
from punctual.engine.quotas.leased_quotas import LeasedQuotas
from punctual.engine.quotas.run_permits import RunPermits
from tests.support.builders import ManualClock

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
MINUTE = 60
IN_STEP = (0.0,)
SECONDS_APART = (-2.5, 2.5, 0.0, 2.5, -2.5, 1.2, -0.7, 2.5, -2.5, 0.4)
UNEVEN = (50, 10, 5, 3, 2, 1, 1, 1, 1, 1)
FLEETS = {"one": (1,), "three": (1, 1, 1), "twenty": (1,) * 20, "uneven": UNEVEN}
Instance = TypeVar("Instance")


class MemoryQuotaRows:
    """The rows, counts of their operations, and a switch for outages."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], QuotaRow] = {}
        self.counts: Counter[str] = Counter()
        self.away = False

    def read(self, tenant: str, row_name: str) -> QuotaRow | None:
        self._count("reads")
        return self.rows.get((tenant, row_name))

    def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
        self._count("writes")
        present = self.rows.get((tenant, row_name), QuotaRow("", 0))
        if present.version != expect:
            return present
        self.rows[tenant, row_name] = QuotaRow(text, expect + 1)
        return None

    def _count(self, row_name: str) -> None:
        self.counts[row_name] += 1
        if self.away:
            raise Unavailable("The table does not answer.")


class InstanceRows:
    """The rows as one instance sees them.

    The instance's clock is off, and answers correct it. The times of its writes are kept.
    """

    def __init__(self, rows: QuotaRows, true_clock: ManualClock, off: timedelta) -> None:
        self._rows = rows
        self._true_clock = true_clock
        self.off = off
        self.clock = StoreClock(lambda: true_clock() + self.off)
        self.written_at: list[datetime] = []

    def read(self, tenant: str, row_name: str) -> QuotaRow | None:
        row = self._rows.read(tenant, row_name)
        self.correct_clock()
        return row

    def swap(self, tenant: str, row_name: str, expect: int, text: str) -> QuotaRow | None:
        self.written_at.append(self._true_clock())
        present = self._rows.swap(tenant, row_name, expect, text)
        self.correct_clock()
        return present

    def correct_clock(self) -> None:
        own = self.clock.read_uncorrected()
        self.clock.correct(self._true_clock().replace(microsecond=0), own, own)


class EventLog:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str, /, **_fields: object) -> None:
        self.events.append(event)


def no_log(event: str, /, **_fields: object) -> None:
    raise AssertionError(event)


class Fleet(Generic[Instance]):
    """A group of instances that `make` starts.

    Each has a share of the load, and some crash often.
    """

    def __init__(
        self,
        make: Callable[[InstanceRows], Instance],
        weights: Sequence[float],
        seed: int = 7,
        crash_every: float = 0,
        skews: Sequence[float] = IN_STEP,
        rows: MemoryQuotaRows | None = None,
    ) -> None:
        self.clock = ManualClock(NOON)
        self.rows = rows or MemoryQuotaRows()
        self.instance_rows: list[InstanceRows] = []
        self._skews = cycle(skews)
        self._make = make
        self.instances = [self._start() for _ in weights]
        self.weights = weights
        self.random = Random(seed)
        self._crash_every = crash_every
        self._crash_at = crash_every

    def load(self, rate: float, seconds: float) -> Iterator[Instance]:
        """Yield the instance that each of `rate` uses a second reaches."""
        start = self.clock()
        for number in range(round(rate * seconds)):
            self.clock.set(start + timedelta(seconds=number / rate))
            self._crash(number / rate)
            yield self.random.choices(self.instances, self.weights)[0]
        self.clock.set(start + timedelta(seconds=seconds))

    @property
    def seconds(self) -> float:
        return (self.clock() - NOON).total_seconds()

    def _start(self) -> Instance:
        off = timedelta(seconds=next(self._skews))
        self.instance_rows.append(InstanceRows(self.rows, self.clock, off))
        return self._make(self.instance_rows[-1])

    def _crash(self, seconds: float) -> None:
        if self._crash_every and seconds >= self._crash_at:
            self._crash_at += self._crash_every
            self.instances[self.random.randrange(len(self.instances))] = self._start()


def quotas(
    limits: Callable[[], TenantLimits] | TenantLimits,
    weights: Sequence[float],
    jobs: Callable[[], int] = lambda: 0,
    log: Callable[..., None] = no_log,
    seed: int = 7,
    crash_every: float = 0,
    skews: Sequence[float] = IN_STEP,
    rows: MemoryQuotaRows | None = None,
) -> Fleet[LeasedQuotas]:
    limits_of = limits if callable(limits) else lambda: limits

    def make(rows_of_instance: InstanceRows) -> LeasedQuotas:
        return LeasedQuotas(
            lambda _: limits_of(), rows_of_instance, lambda _: jobs(), rows_of_instance.clock, log
        )

    return Fleet(make, weights, seed, crash_every, skews, rows)


def permits(
    limits: TenantLimits,
    weights: Sequence[float],
    crash_every: float = 0,
    skews: Sequence[float] = IN_STEP,
    executors: dict[str, int] | None = None,
) -> Fleet[RunPermits]:
    names = count(1)

    def make(rows: InstanceRows) -> RunPermits:
        name = f"{next(names):012x}"
        return RunPermits(lambda _: limits, rows, name, rows.clock, no_log, executors)

    return Fleet(make, weights, 7, crash_every, skews)


class MovingMinute:
    """The highest number of uses in any 60 seconds."""

    def __init__(self) -> None:
        self.max_in_a_minute = 0
        self._times: deque[float] = deque()

    def add(self, seconds: float, uses: int = 1) -> None:
        self._times.extend([seconds] * uses)
        while self._times and self._times[0] <= seconds - MINUTE:
            self._times.popleft()
        self.max_in_a_minute = max(self.max_in_a_minute, len(self._times))


def max_in_a_second(times: Sequence[datetime]) -> int:
    """Return how many of these times, at most, lie within less than a second."""
    second = timedelta(seconds=1)
    return max(
        (sum(at <= t < at + second for t in times[i : i + 20]) for i, at in enumerate(times)),
        default=0,
    )
