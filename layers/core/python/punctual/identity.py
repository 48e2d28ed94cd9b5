"""Ids of this process: sortable by time, rising, and unlike any other process's."""

import os
from collections.abc import Callable
from datetime import datetime

from punctual.domain.placement import sortable_id

_COUNTED = 2**22


def new_id(clock: Callable[[], datetime]) -> Callable[[], str]:
    """48 bits of time, a counter that starts anew each time it is full, and random bits."""
    pool = bytearray()
    count = int.from_bytes(os.urandom(2), "big")

    def make() -> str:
        nonlocal pool, count
        if len(pool) < 7:
            pool = bytearray(os.urandom(7 * 512))
        count = (count + 1) % _COUNTED
        entropy = count << 52 | int.from_bytes(pool[-7:], "big") >> 4
        del pool[-7:]
        return sortable_id(clock(), entropy.to_bytes(10, "big"))

    return make
