"""The real clock, and one that tests turn by hand."""

import time
from datetime import UTC, datetime, timedelta


def wall() -> datetime:
    return datetime.now(UTC)


def monotonic() -> float:
    return time.monotonic()


class ManualClock:
    """Stands until it is told to go on."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.now.timestamp()

    def advance(self, by: timedelta) -> None:
        self.now += by

    def set(self, now: datetime) -> None:
        self.now = now
