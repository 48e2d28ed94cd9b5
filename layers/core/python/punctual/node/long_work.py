"""Long work of requests.

The node runs one slice in each turn, in rotation, so that other work continues.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from time import thread_time
from typing import Protocol, TypeVar

from punctual.domain.errors import LimitExceeded
from punctual.engine.queries.slices import SLICE_SECONDS, CpuTime, Sliced, SlicedWork, Steady
from punctual.node import clock

T = TypeVar("T")
MAX_LONG_REQUESTS = 16  # for each tenant
SHORT_WORK_SECONDS = 0.002  # of processor time: shorter work is done in the turn of its request


class Turn(Protocol):
    """Carries out a request with the others of its turn, and answers after the commit."""

    def __call__(self, request: Callable[[], T], /) -> Awaitable[T]: ...


class LongWork:
    """Runs at most one slice between two turns of the loop, however many requests wait."""

    def __init__(
        self, turn: Turn, cpu: CpuTime = thread_time, steady: Steady = clock.monotonic
    ) -> None:
        self._turn = turn
        self._cpu = cpu
        self._steady = steady
        self._slice_lock = asyncio.Lock()  # first come, first served
        self._long_requests: Counter[str] = Counter()

    def begin(self, steps: Sliced[T], max_seconds: float = SHORT_WORK_SECONDS) -> T | SlicedWork[T]:
        """Return the result of short work, or the work for `finish`. Called within a turn."""
        work = SlicedWork(steps, self._cpu, self._steady)
        return work if work.run_slice(max_seconds) else work.results[0]

    async def finish(
        self, tenant: str, work: SlicedWork[T], slice_seconds: float = SLICE_SECONDS
    ) -> T:
        """Return the result of the work, after the commit of its last slice."""
        if self._long_requests[tenant] >= MAX_LONG_REQUESTS:
            work.close()
            raise LimitExceeded(
                f"{MAX_LONG_REQUESTS} long requests are under way: try again later."
            )
        self._long_requests[tenant] += 1
        try:
            while True:
                async with self._slice_lock:
                    has_more = await self._turn(partial(work.run_slice, slice_seconds))
                if not has_more:
                    return work.results[0]
        finally:
            work.close()
            self._long_requests[tenant] -= 1
