"""The time of a decision: read once where the decision begins, and then passed on as a value.

What decides, and what follows from a decision, takes a `ClockReading` or its wall time. It holds no
clock, so it cannot see a later time than the one it was decided with.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.ports.clock import Clock


class ClockReading(NamedTuple):
    """One moment, by the wall clock and by the clock that nothing sets."""

    wall: datetime
    steady: float

    def steady_at(self, wall: datetime) -> float:
        """Return when the steady clock reaches this wall time, unless the wall clock is set."""
        return self.steady + (wall - self.wall).total_seconds()

    def set_since(self, before: "ClockReading") -> timedelta:
        """Return how far the wall clock was set in between: forward, or back where negative."""
        ran = timedelta(seconds=self.steady - before.steady)
        return self.wall - before.wall - ran


class Clocks:
    def __init__(self, wall: Clock, steady: Callable[[], float]) -> None:
        self._wall = wall
        self._steady = steady

    def read(self) -> ClockReading:
        return ClockReading(self._wall(), self._steady())

    def countdown(self, span: timedelta) -> Callable[[], bool]:
        """Return a check that turns true when `span` has passed, whatever the wall clock says."""
        end = self._steady() + span.total_seconds()
        return lambda: self._steady() > end

    def passed(self, since: ClockReading) -> timedelta:
        """Return how long ago `since` was, by the clock that went further."""
        now = self.read()
        return max(now.wall - since.wall, timedelta(seconds=now.steady - since.steady))
