"""The real clock, and waiting: named here alone."""

import time
from datetime import UTC, datetime

wait = time.sleep
monotonic = time.monotonic


def now() -> datetime:
    return datetime.now(UTC)
