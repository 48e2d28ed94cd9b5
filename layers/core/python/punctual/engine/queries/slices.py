"""Cuts long work of a request into slices, so that other work proceeds in between.

A long function is a generator. It yields after each step of a few milliseconds, and returns its
result. It reads no clock.

`SlicedWork` runs the steps of one slice at a time. It stops work that uses too much processor time.
A step that waits for the disk blocks the thread too, so either clock ends a slice.
"""

from collections.abc import Callable, Generator
from time import thread_time
from typing import Generic, TypeVar

from punctual.domain.errors import TooMuchWork

T = TypeVar("T")
Sliced = Generator[None, None, T]
CpuTime = Callable[[], float]
Steady = Callable[[], float]

SLICE_SECONDS = 0.02  # of processor time, or of the steady clock
MAX_WORK_SECONDS = 2.0


class SlicedWork(Generic[T]):
    """One piece of long work.

    `cpu` returns the processor time of the thread in seconds. `steady` is a monotonic clock, needed
    if other work waits for this thread.
    """

    def __init__(
        self, steps: Sliced[T], cpu: CpuTime = thread_time, steady: Steady = lambda: 0.0
    ) -> None:
        self._steps = steps
        self._cpu = cpu
        self._steady = steady
        self._used_seconds = 0.0
        self.results: list[T] = []  # one result after the work has finished

    def run_slice(self, seconds: float = SLICE_SECONDS) -> bool:
        """Run steps for up to `seconds` of processor time. Return whether steps are left."""
        started, used_seconds, slice_end = self._cpu(), 0.0, self._steady() + SLICE_SECONDS
        try:
            if self._used_seconds > MAX_WORK_SECONDS:
                self._steps.throw(_too_much_work())
            while used_seconds < seconds:
                next(self._steps)
                used_seconds = self._cpu() - started
                if self._steady() >= slice_end:
                    break
        except StopIteration as stop:
            self.results.append(stop.value)
            return False
        self._used_seconds += used_seconds
        return True

    def close(self) -> None:
        """Abandon the work."""
        self._steps.close()


def finish(steps: Sliced[T], cpu: CpuTime = thread_time) -> T:
    """Run all steps in this thread, where no other work waits, and return the result."""
    work = SlicedWork(steps, cpu)
    while work.run_slice():
        pass
    return work.results[0]


def _too_much_work() -> TooMuchWork:
    return TooMuchWork(
        f"The answer takes over {MAX_WORK_SECONDS:g} s of processor time: "
        "ask for a shorter range, or for one job."
    )
