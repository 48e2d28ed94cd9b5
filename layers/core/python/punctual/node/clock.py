"""The real clock, and the detection that it was set."""

import time
from datetime import UTC, datetime, timedelta

from punctual.engine.clock import ClockReading

# tolerated between two readings, which are at most a second apart
MAX_CLOCK_DRIFT = timedelta(milliseconds=250)


def wall() -> datetime:
    return datetime.now(UTC)


def monotonic() -> float:
    return time.monotonic()


class ClockChangeDetector:
    """Detects that the wall clock was set. It then moves against the steady clock."""

    def __init__(self, first_reading: ClockReading) -> None:
        self._last_reading = first_reading

    def detect(self, now: ClockReading) -> timedelta:
        """Return how far the wall clock was set since the last call, or zero if it only drifted."""
        previous, self._last_reading = self._last_reading, now
        return _without_drift(now.set_since(previous))

    def has_change(self, now: ClockReading) -> bool:
        """Return whether `detect` would return more than zero."""
        return bool(_without_drift(now.set_since(self._last_reading)))


def _without_drift(change: timedelta) -> timedelta:
    return change if abs(change) > MAX_CLOCK_DRIFT else timedelta(0)
