"""Long work of a request, cut into slices so that other work goes on in between.

A function that may take long is a generator: it yields after each step of a few milliseconds at
most, and returns its result. It knows no clock. `SlicedWork` runs its steps for one slice at a
time and ends it when it has used too much of the processor.
"""

from collections.abc import Callable, Generator
from time import thread_time
from typing import Generic, TypeVar

from punctual.domain.errors import TooMuchWork

T = TypeVar("T")
Sliced = Generator[None, None, T]
CpuTime = Callable[[], float]

SLICE_SECONDS = 0.02  # of processor time, then other work has its turn
MAX_SECONDS = 2.0


class SlicedWork(Generic[T]):
    """One piece of long work; `cpu` is the processor time of the thread, in seconds."""

    def __init__(self, steps: Sliced[T], cpu: CpuTime = thread_time) -> None:
        self._steps = steps
        self._cpu = cpu
        self._spent = 0.0
        self.results: list[T] = []  # one, once the work is done

    def run_slice(self) -> bool:
        """Work for one slice; True when there is more to do."""
        began, used = self._cpu(), 0.0
        try:
            if self._spent > MAX_SECONDS:
                self._steps.throw(_too_much())
            while used < SLICE_SECONDS:
                next(self._steps)
                used = self._cpu() - began
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
