"""Instances that share a limit through rows in memory, on one clock, some of which crash."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Generic, TypeVar

from punctual.domain.errors import Unavailable
from punctual.engine.quotas.leased_row import Row, Shares
from punctual.engine.quotas.store_clock import StoreClock
from punctual.node.clock import ManualClock

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
Instance = TypeVar("Instance")


class MemoryShares:
    """The rows, what was done to them, and whether they answer."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.did: Counter[str] = Counter()
        self.away = False

    def read(self, tenant: str, what: str) -> Row | None:
        self._do("reads")
        return self.rows.get((tenant, what))

    def swap(self, tenant: str, what: str, expect: int, text: str) -> Row | None:
        self._do("writes")
        stands = self.rows.get((tenant, what), Row("", 0))
        if stands.version != expect:
            self.did["lost"] += 1
            return stands
        self.rows[tenant, what] = Row(text, expect + 1)
        return None

    def _do(self, what: str) -> None:
        self.did[what] += 1
        if self.away:
            raise Unavailable("The table does not answer.")


class ToldTime:
    """Rows whose answers name the second they were made in, for a machine's clock that is off."""

    def __init__(self, shares: Shares, truth: ManualClock, off: timedelta) -> None:
        self._shares = shares
        self._truth = truth
        self.off = off
        self.clock = StoreClock(lambda: truth() + self.off)

    def read(self, tenant: str, what: str) -> Row | None:
        found = self._shares.read(tenant, what)
        self._hear()
        return found

    def swap(self, tenant: str, what: str, expect: int, text: str) -> Row | None:
        stood = self._shares.swap(tenant, what, expect, text)
        self._hear()
        return stood

    def _hear(self) -> None:
        own = self.clock.own()
        self.clock.hear(self._truth().replace(microsecond=0), own, own)


class Fleet(Generic[Instance]):
    """`make` starts an instance; each has a share of the load, and some crash every few seconds."""

    def __init__(
        self,
        make: Callable[[MemoryShares, ManualClock], Instance],
        weights: Sequence[float],
        seed: int,
        crash_every: float = 0,
    ) -> None:
        self.clock = ManualClock(NOON)
        self.shares = MemoryShares()
        self._make = partial(make, self.shares, self.clock)
        self.instances = [self._make() for _ in weights]
        self.weights = weights
        self.random = Random(seed)
        self._crash_every = crash_every
        self._crash_at = crash_every

    def load(self, rate: float, seconds: float) -> Iterator[Instance]:
        """Whom each of so many uses a second reaches, until the time is over."""
        start = self.clock()
        for number in range(round(rate * seconds)):
            self.clock.set(start + timedelta(seconds=number / rate))
            self._crash(number / rate)
            yield self.random.choices(self.instances, self.weights)[0]
        self.clock.set(start + timedelta(seconds=seconds))

    def _crash(self, seconds: float) -> None:
        if self._crash_every and seconds >= self._crash_at:
            self._crash_at += self._crash_every
            self.instances[self.random.randrange(len(self.instances))] = self._make()
