"""Run one thread at a time. Each thread can pause in the middle of its work.

A simulated process is plain synchronous code. Other processes continue in the middle of its calls,
so it needs a stack of its own, and a thread provides one. Nothing runs in parallel. A thread gives
its turn away and waits until it gets the turn back. Turns change only while two processes work at
the same time, so a play stays cheap.
"""

from collections.abc import Callable
from functools import partial
from threading import Lock, Thread
from typing import ClassVar

Give = Callable[[], None]  # hands the turn to another thread


class Abandoned(BaseException):
    """The world is over. A process that pauses in a call must not continue."""


class Worker:
    """A thread that works for one world at a time."""

    free: ClassVar[list["Worker"]] = []  # only the thread with the turn uses it

    def __init__(self) -> None:
        self._gate = Lock()
        self._gate.acquire()
        self._job: Callable[[], None] = lambda: None
        Thread(target=self._work, daemon=True, name="simulated process").start()

    def begin(self, job: Callable[[], None]) -> None:
        self._job = job
        self.go_on()

    def go_on(self) -> None:
        self._gate.release()

    def wait(self) -> None:
        self._gate.acquire()

    def _work(self) -> None:
        while True:
            self.wait()
            self._job()


class Turns:
    """The turn of one world. The test or one of the workers has it."""

    def __init__(self) -> None:
        self._test = Lock()
        self._test.acquire()
        self._running: Worker | None = None
        self._error: BaseException | None = None
        self._abandoned = False

    def play(self, job: Callable[[], Give]) -> None:
        """Let workers have turns until one returns the turn to the test.

        Raise the error of any worker.

        A `job` does its work, and returns the way in which the turn continues.
        """
        self.begin(job)
        self._test.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def begin(self, job: Callable[[], Give]) -> None:
        """Give the turn to an idle worker."""
        worker = Worker.free.pop() if Worker.free else Worker()
        worker.begin(partial(self._run_job, worker, job))

    def end(self) -> None:
        """Return the turn to the test."""
        self._test.release()

    def _run_job(self, worker: Worker, job: Callable[[], Give]) -> None:
        self._running = worker
        give = self.end
        try:
            give = job()
        except Abandoned:
            pass
        except BaseException as error:  # the test raises it
            self._error = error
        Worker.free.append(worker)
        give()

    @property
    def current(self) -> Worker:
        """Return the worker that has the turn."""
        assert self._running is not None
        return self._running

    def pause(self, give: Give) -> None:
        """Give the turn away, and wait until it comes back."""
        worker = self.current
        give()
        worker.wait()
        self._running = worker
        self.check()

    def check(self) -> None:
        if self._abandoned:
            raise Abandoned

    def abandon(self, paused: Worker) -> None:
        """End the work of a paused worker, called by the test."""
        self._abandoned = True
        paused.go_on()
        self._test.acquire()
