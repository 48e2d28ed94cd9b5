"""Ids that sort by time, increase within a process, and differ between processes."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from struct import unpack

from punctual.domain.utc import EPOCH

_COUNTER_SIZE = 2**22
_RANDOM_BLOCK_SIZE = 512


def new_id(clock: Callable[[], datetime]) -> Callable[[], str]:
    """Return a function that makes version 7 UUIDs.

    An id has 48 bits of time, a counter that wraps, and 52 random bits. Each request makes ids, so
    the function formats the parts by hand and draws random bits in blocks.
    """
    count = int.from_bytes(os.urandom(2), "big")
    random_numbers: Iterator[int] = iter(())
    prefix, last_ms = "", -1

    def make() -> str:
        nonlocal count, random_numbers, prefix, last_ms
        random_bits = next(random_numbers, None)
        if random_bits is None:
            random_numbers = iter(
                unpack(f"{_RANDOM_BLOCK_SIZE}Q", os.urandom(8 * _RANDOM_BLOCK_SIZE))
            )
            random_bits = next(random_numbers)
        count = (count + 1) % _COUNTER_SIZE
        elapsed = clock() - EPOCH
        now_ms = (elapsed.days * 86_400 + elapsed.seconds) * 1_000 + elapsed.microseconds // 1_000
        if now_ms != last_ms:
            text = f"{max(0, now_ms) & 0xFFFFFFFFFFFF:012x}"
            prefix, last_ms = f"{text[:8]}-{text[8:]}-7", now_ms
        group = 0x8000 | (count & 0x3FF) << 4 | random_bits >> 60
        return f"{prefix}{count >> 10:03x}-{group:04x}-{random_bits & 0xFFFFFFFFFFFF:012x}"

    return make
