"""Ids that sort by time, increase within a process, and differ between processes."""

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from struct import unpack

from punctual.domain.identifiers import EPOCH

_COUNTED = 2**22
_DRAWN = 512


def new_id(clock: Callable[[], datetime]) -> Callable[[], str]:
    """Return a function that makes version 7 UUIDs.

    An id has 48 bits of time, a counter that wraps, and 52 random bits. Each request makes ids, so
    the function formats the parts by hand and draws random bits in blocks.
    """
    count = int.from_bytes(os.urandom(2), "big")
    drawn: Iterator[int] = iter(())
    begun, last = "", -1

    def make() -> str:
        nonlocal count, drawn, begun, last
        bits = next(drawn, None)
        if bits is None:
            drawn = iter(unpack(f"{_DRAWN}Q", os.urandom(8 * _DRAWN)))
            bits = next(drawn)
        count = (count + 1) % _COUNTED
        since = clock() - EPOCH
        at = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
        if at != last:
            text = f"{max(0, at) & 0xFFFFFFFFFFFF:012x}"
            begun, last = f"{text[:8]}-{text[8:]}-7", at
        group = 0x8000 | (count & 0x3FF) << 4 | bits >> 60
        return f"{begun}{count >> 10:03x}-{group:04x}-{bits & 0xFFFFFFFFFFFF:012x}"

    return make
