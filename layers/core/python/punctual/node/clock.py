"""The real clock, and one that tests turn by hand."""

import time
from datetime import UTC, datetime, timedelta

from punctual.engine.clock import ClockReading

DRIFT = timedelta(milliseconds=250)  # between two looks, which are a second apart at the most


def wall() -> datetime:
    return datetime.now(UTC)


def monotonic() -> float:
    return time.monotonic()


class Sets:
    """Notices that the wall clock was set: it then moves against the one that only goes on."""

    def __init__(self, first: ClockReading) -> None:
        self._last = first

    def by(self, now: ClockReading) -> timedelta:
        """Return how far it was set since the last call; zero for what a clock drifts."""
        before, self._last = self._last, now
        return _beyond_drift(now.set_since(before))

    def is_due(self, now: ClockReading) -> bool:
        """Whether `by` has something to tell."""
        return bool(_beyond_drift(now.set_since(self._last)))


def _beyond_drift(by: timedelta) -> timedelta:
    return by if abs(by) > DRIFT else timedelta(0)


class ManualClock:
    """Stands until it is told to go on, or is set."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._ran = 0.0  # seconds

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self._ran

    def advance(self, by: timedelta) -> None:
        self.now += by
        self._ran += by.total_seconds()

    def set(self, now: datetime) -> None:
        """Let time pass until then."""
        self.advance(now - self.now)

    def go_on_to(self, steady: float) -> None:
        """Let time pass until the steady clock says so; it never goes back."""
        if steady > self._ran:
            self.now += timedelta(seconds=steady - self._ran)
            self._ran = steady

    def jump(self, by: timedelta) -> None:
        """Set the wall clock, forward or back. No time passes."""
        self.now += by
