"""The real clock and sleep. No other module of the command line names them."""

import time
from datetime import UTC, datetime

sleep = time.sleep
steady_seconds = time.monotonic


def utc_now() -> datetime:
    return datetime.now(UTC)
