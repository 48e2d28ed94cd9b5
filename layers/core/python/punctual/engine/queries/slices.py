"""Long work of a request, cut into slices so that other work goes on in between.

A function that may take long is a generator: it yields after each step of a few milliseconds at
most, and returns its result. It knows no clock. `SlicedWork` runs its steps for one slice at a
time and ends it when it has used too much of the processor. A step that waits for the disk holds
the thread as well, so a slice ends by either clock.
"""

from collections.abc import Callable, Generator
from time import thread_time
from typing import Generic, TypeVar

from punctual.domain.errors import TooMuchWork

T = TypeVar("T")
Sliced = Generator[None, None, T]
CpuTime = Callable[[], float]
Steady = Callable[[], float]

SLICE_SECONDS = 0.02  # of processor time, or on the steady clock; then other work has its turn
MAX_SECONDS = 2.0


class SlicedWork(Generic[T]):
    """One piece of long work.

    `cpu` is the processor time of the thread, in seconds. `steady` is a clock that only goes
    forward, where others wait for this thread.
    """

    def __init__(
        self, steps: Sliced[T], cpu: CpuTime = thread_time, steady: Steady = lambda: 0.0
    ) -> None:
        self._steps = steps
        self._cpu = cpu
        self._steady = steady
        self._spent = 0.0
        self.results: list[T] = []  # one, once the work is done

    def run_slice(self, seconds: float = SLICE_SECONDS) -> bool:
        """Work for `seconds` of processor time at most; True when there is more to do."""
        began, used, end = self._cpu(), 0.0, self._steady() + SLICE_SECONDS
        try:
            if self._spent > MAX_SECONDS:
                self._steps.throw(_too_much())
            while used < seconds:
                next(self._steps)
                used = self._cpu() - began
                if self._steady() >= end:
                    break
        except StopIteration as done:
            self.results.append(done.value)
            return False
        self._spent += used
        return True

    def close(self) -> None:
        """Give the work up."""
        self._steps.close()


def finish(steps: Sliced[T], cpu: CpuTime = thread_time) -> T:
    """Do all of it here and now, where no other work waits for this thread."""
    work = SlicedWork(steps, cpu)
    while work.run_slice():
        pass
    return work.results[0]


def _too_much() -> TooMuchWork:
    return TooMuchWork(
        f"Answering this takes over {MAX_SECONDS:g} s of processor time: "
        "ask for a shorter range, or for one job."
    )
