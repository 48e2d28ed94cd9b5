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

    def set_since(self, earlier: "ClockReading") -> timedelta:
        """Return how far the wall clock was set since `earlier`. A negative value means back."""
        elapsed = timedelta(seconds=self.steady - earlier.steady)
        return self.wall - earlier.wall - elapsed


class Clocks:
    def __init__(self, wall: Clock, steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady

    def read(self) -> ClockReading:
        return ClockReading(self._wall(), self._steady())

    def countdown(self, duration: timedelta) -> Callable[[], bool]:
        """Return a check that becomes True after `duration` on the monotonic clock."""
        end = self._steady() + duration.total_seconds()
        return lambda: self._steady() > end

    def elapsed_since(self, earlier: ClockReading) -> timedelta:
        """Return the time since `earlier`, by the clock that advanced further."""
        now = self.read()
        return max(now.wall - earlier.wall, timedelta(seconds=now.steady - earlier.steady))
