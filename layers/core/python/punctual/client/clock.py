"""Time, chance and waiting, as this machine has them: nothing else here asks for any."""

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
    """For `Idempotency-Key`: 122 random bits."""
    return str(uuid.uuid4())
