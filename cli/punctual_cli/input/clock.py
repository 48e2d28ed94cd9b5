"""The real clock and sleep. No other module of the command line names them."""

import time
from datetime import UTC, datetime

wait = time.sleep
monotonic = time.monotonic


def now() -> datetime:
    return datetime.now(UTC)
