"""Turns: one thread runs at a time, and each can stand still in the middle of its work.

A simulated process is plain synchronous code. To let others go on in the middle of one of its
calls, it needs a stack of its own, which is what a thread is here for. Nothing runs in parallel:
a thread gives its turn away and waits until it gets the turn back. Turns change hands only where
two processes are at work at the same time, so that a play stays cheap.
"""

from collections.abc import Callable
from functools import partial
from threading import Lock, Thread
from typing import ClassVar

Give = Callable[[], None]  # hands the turn to another thread


class Abandoned(BaseException):
    """The world is over: a process that stands in a call must not go on."""


class Worker:
    """A thread that works for one world at a time, and then for the next."""

    free: ClassVar[list["Worker"]] = []  # only the thread whose turn it is touches this

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
    """The turn of one world: it is with the test, or with one of the workers."""

    def __init__(self) -> None:
        self._test = Lock()
        self._test.acquire()
        self._running: Worker | None = None
        self._error: BaseException | None = None
        self._abandoned = False

    def play(self, job: Callable[[], Give]) -> None:
        """Let workers have turns until one gives it back to the test; raise what any raised.

        A `job` does its work, and answers how the turn goes on.
        """
        self.begin(job)
        self._test.acquire()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def begin(self, job: Callable[[], Give]) -> None:
        """Give the turn to a worker that stands nowhere."""
        worker = Worker.free.pop() if Worker.free else Worker()
        worker.begin(partial(self._carry_out, worker, job))

    def end(self) -> None:
        """Give the turn back to the test."""
        self._test.release()

    def _carry_out(self, worker: Worker, job: Callable[[], Give]) -> None:
        self._running = worker
        give = self.end
        try:
            give = job()
        except Abandoned:
            pass
        except BaseException as error:  # it is the test's, which raises it
            self._error = error
        Worker.free.append(worker)
        give()

    @property
    def here(self) -> Worker:
        """The worker whose turn it is."""
        assert self._running is not None
        return self._running

    def stand(self, give: Give) -> None:
        """Give the turn away, and wait until it comes back."""
        worker = self.here
        give()
        worker.wait()
        self._running = worker
        self.check()

    def check(self) -> None:
        if self._abandoned:
            raise Abandoned

    def abandon(self, standing: Worker) -> None:
        """From the test: let a worker that stands leave its work, and what it holds."""
        self._abandoned = True
        standing.go_on()
        self._test.acquire()
