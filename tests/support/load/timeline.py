"""Virtual time for many processes: one runs at a time, from one wait to the next.

So all of them interleave at their calls, in the same order on any machine.
"""

import heapq
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
_STACK_BYTES = 1 << 20  # of a thread, since there are many


class _Process:
    def __init__(self, work: Callable[[], None]) -> None:
        self.go, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.error: BaseException | None = None
        self.is_over = False
        self.lanes: list[float] | None = None  # of a pool while it maps
        self._work = work
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.go.acquire()
        try:
            self._work()
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.back.release()


class Timeline:
    """The clock of all processes. Times are seconds after `start`."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.seconds = 0.0
        self._events: list[tuple[float, int, _Process | Callable[[], None]]] = []
        self._count = 0
        self._running: _Process | None = None

    def __call__(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    @property
    def is_in_process(self) -> bool:
        return self._running is not None

    def begin(self, seconds: float, work: Callable[[], None]) -> None:
        """Start a process at that time."""
        former = threading.stack_size(_STACK_BYTES)
        try:
            process = _Process(work)
            process.thread.start()
        finally:
            threading.stack_size(former)
        self._push(seconds, process)

    def call(self, seconds: float, event: Callable[[], None]) -> None:
        """Call `event` at that time. It must not wait."""
        self._push(seconds, event)

    def spend(self, processor: float, waiting: float) -> None:
        """Let the running process work, and then wait for an answer.

        In a pool the other threads work while one waits.
        """
        process = self._running
        if process is None:
            return
        if process.lanes is None:
            self.pause(processor + waiting)
        else:
            self.seconds += processor + waiting
            process.lanes.append(waiting)

    def pause(self, seconds: float) -> None:
        process = self._running
        assert process is not None, "only a process waits"
        if process.lanes is not None:
            self.seconds += seconds
            return
        self._push(self.seconds + max(0.0, seconds), process)
        process.back.release()
        process.go.acquire()

    def run(self, until: float) -> None:
        """Play all events up to that time."""
        while self._events and self._events[0][0] <= until:
            self.seconds, _, event = heapq.heappop(self._events)
            if not isinstance(event, _Process):
                event()
                continue
            self._running = event
            event.go.release()
            event.back.acquire()
            self._running = None
            if event.is_over:
                event.thread.join()
                if event.error is not None:
                    raise event.error

    def map(self, work: Callable[[A], B], items: Iterable[A], threads: int) -> list[B]:
        """Do the work for all items in so many threads of one processor.

        Each item begins when a thread is free and the processor has done its part of the others.
        """
        process, all_items = self._running, list(items)
        if process is None or process.lanes is not None or len(all_items) <= 1:
            return [work(item) for item in all_items]
        began = self.seconds
        free_at = [began] * threads
        processor_at, last = began, began
        results: list[B] = []
        for item in all_items:
            process.lanes = []
            begins = self.seconds = max(processor_at, heapq.heappop(free_at))
            results.append(work(item))
            ends = self.seconds
            processor_at = begins + (ends - begins - sum(process.lanes))
            heapq.heappush(free_at, ends)
            last = max(last, ends)
        process.lanes = None
        self.seconds = began
        self.pause(last - began)
        return results

    def _push(self, seconds: float, event: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(seconds, self.seconds), self._count, event))


class Pool:
    """Stands for `ThreadPool`, in virtual time."""

    def __init__(self, timeline: Timeline, threads: int) -> None:
        self._timeline = timeline
        self._threads = threads

    def map(self, work: Callable[[A], B], items: Iterable[A]) -> list[B]:
        return self._timeline.map(work, items, self._threads)
