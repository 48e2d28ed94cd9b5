"""The time of a decision, read once where the decision begins and then passed on as a value.

A decision and its effects take a `ClockReading` or its wall time. They hold no clock, so they
cannot see a later time.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.ports.clock import Clock


class ClockReading(NamedTuple):
    """One moment, by the wall clock and by the monotonic clock."""

    wall: datetime
    steady: float

    def steady_at(self, wall: datetime) -> float:
        """Return when the monotonic clock reaches this wall time, if the wall clock is not set."""
        return self.steady + (wall - self.wall).total_seconds()

    def set_since(self, before: "ClockReading") -> timedelta:
        """Return how far the wall clock was set since `before`. A negative value means back."""
        ran = timedelta(seconds=self.steady - before.steady)
        return self.wall - before.wall - ran


class Clocks:
    def __init__(self, wall: Clock, steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady

    def read(self) -> ClockReading:
        return ClockReading(self._wall(), self._steady())

    def countdown(self, span: timedelta) -> Callable[[], bool]:
        """Return a check that becomes True after `span` on the monotonic clock."""
        end = self._steady() + span.total_seconds()
        return lambda: self._steady() > end

    def passed(self, since: ClockReading) -> timedelta:
        """Return the time since `since`, by the clock that advanced further."""
        now = self.read()
        return max(now.wall - since.wall, timedelta(seconds=now.steady - since.steady))
