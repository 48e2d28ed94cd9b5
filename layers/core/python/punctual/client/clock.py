"""The real clock, random source and sleep. No other module of the client calls them directly."""

import asyncio
import random
import time
import uuid

seconds = time.monotonic
wall = time.time
chance = random.random
pause = time.sleep
pause_async = asyncio.sleep


def new_key() -> str:
    """Return a new `Idempotency-Key` with 122 random bits."""
    return str(uuid.uuid4())
