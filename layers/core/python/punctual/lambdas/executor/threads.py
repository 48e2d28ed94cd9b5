"""Runs work in threads beside the loop of an invocation."""

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from punctual.domain.errors import Unavailable
from punctual.lambdas.telemetry import Telemetry

T = TypeVar("T")
Work = Callable[[], None]


class TaskRunner(Protocol):
    def start(self, work: Work, /) -> None:
        """Run `work` in the background. It must not raise."""

    def wait(self, seconds: float, /) -> None:
        """Wait until some work has ended, for at most `seconds`."""


class TaskThreads:
    """Runs each task in a thread of its own, so a hanging task blocks no other."""

    def __init__(self, pause: Callable[[float], None]) -> None:
        self._pause = pause
        self._condition = threading.Condition()
        self._running_count = 0
        self._ended_count = 0
        self._seen_count = 0

    def start(self, work: Work, /) -> None:
        with self._condition:
            self._running_count += 1
        threading.Thread(target=self._run_work, args=(work,), name="task", daemon=True).start()

    def _run_work(self, work: Work) -> None:
        try:
            work()
        finally:
            with self._condition:
                self._running_count -= 1
                self._ended_count += 1
                self._condition.notify()

    def wait(self, seconds: float, /) -> None:
        with self._condition:
            if self._ended_count == self._seen_count and self._running_count:
                self._condition.wait(seconds)
            elif self._ended_count == self._seen_count:
                self._pause(seconds)
            self._seen_count = self._ended_count


def call_in_background(
    task_runner: TaskRunner, call: Callable[[], T], keep_alive: Callable[[], float]
) -> T:
    """Run the call in a thread and return its result. The caller runs `keep_alive` in between.

    `keep_alive` returns the seconds until its next call. If it raises, the call is abandoned.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run_call() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    task_runner.start(run_call)
    while not results and not errors:
        task_runner.wait(keep_alive())
    if errors:
        raise errors[0]
    return results[0]


class BackgroundCalls:
    """Runs calls that may hang or fail in threads.

    It logs failures, and the loop repeats the calls.
    """

    def __init__(self, task_runner: TaskRunner, log: Telemetry) -> None:
        self._task_runner = task_runner
        self._log = log
        self._active: set[int] = set()
        self._started = 0
        self._crash: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        return bool(self._active)

    def start(self, work: Work, failure_event: str) -> None:
        self._started += 1
        number = self._started
        self._active.add(number)

        def run_work() -> None:
            try:
                self.run_logged(work, failure_event)
            except BaseException as crash:
                self._crash = crash
            finally:
                self._active.discard(number)

        self._task_runner.start(run_work)

    def run_logged(self, work: Work, failure_event: str) -> None:
        try:
            work()
        except Unavailable as error:
            self._log(failure_event, error=error.message)

    def raise_crash(self) -> None:
        """Raise the error of a crashed thread."""
        if self._crash is not None:
            raise self._crash
