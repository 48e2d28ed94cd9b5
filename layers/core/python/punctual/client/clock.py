"""The real clock, random source and sleep. No other module of the client calls them directly."""

import asyncio
import random
import time
import uuid

steady_seconds = time.monotonic
unix_seconds = time.time
random_fraction = random.random
sleep = time.sleep
sleep_async = asyncio.sleep


def new_idempotency_key() -> str:
    """Return a new `Idempotency-Key` with 122 random bits."""
    return str(uuid.uuid4())
