"""The real clock, and a clock that tests move by hand."""

import time
from datetime import UTC, datetime, timedelta

from punctual.engine.clock import ClockReading

# tolerated between two readings, which are at most a second apart
DRIFT = timedelta(milliseconds=250)


def wall() -> datetime:
    return datetime.now(UTC)


def monotonic() -> float:
    return time.monotonic()


class Sets:
    """Detects that the wall clock was set. It then moves against the steady clock."""

    def __init__(self, first: ClockReading) -> None:
        self._last = first

    def by(self, now: ClockReading) -> timedelta:
        """Return how far the wall clock was set since the last call, or zero if it only drifted."""
        before, self._last = self._last, now
        return _beyond_drift(now.set_since(before))

    def is_due(self, now: ClockReading) -> bool:
        """Return whether `by` would return more than zero."""
        return bool(_beyond_drift(now.set_since(self._last)))


def _beyond_drift(by: timedelta) -> timedelta:
    return by if abs(by) > DRIFT else timedelta(0)


class ManualClock:
    """A clock that stands still until a test moves or sets it."""

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
        """Let time pass until `now`."""
        self.advance(now - self.now)

    def go_on_to(self, steady: float) -> None:
        """Let time pass until the steady clock shows `steady`. It never goes back."""
        if steady > self._ran:
            self.now += timedelta(seconds=steady - self._ran)
            self._ran = steady

    def jump(self, by: timedelta) -> None:
        """Set the wall clock forward or back. No time passes."""
        self.now += by
