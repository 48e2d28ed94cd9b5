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
        self._running = 0
        self._ended = 0
        self._seen = 0

    def start(self, work: Work, /) -> None:
        with self._condition:
            self._running += 1
        threading.Thread(target=self._do, args=(work,), name="task", daemon=True).start()

    def _do(self, work: Work) -> None:
        try:
            work()
        finally:
            with self._condition:
                self._running -= 1
                self._ended += 1
                self._condition.notify()

    def wait(self, seconds: float, /) -> None:
        with self._condition:
            if self._ended == self._seen and self._running:
                self._condition.wait(seconds)
            elif self._ended == self._seen:
                self._pause(seconds)
            self._seen = self._ended


def meanwhile(hands: TaskRunner, call: Callable[[], T], tend: Callable[[], float]) -> T:
    """Run the call in a thread and return its result. The caller runs `tend` in between.

    `tend` returns the seconds until its next call. If `tend` raises, the call is abandoned.
    """
    said: list[T] = []
    raised: list[BaseException] = []

    def beside() -> None:
        try:
            said.append(call())
        except BaseException as error:
            raised.append(error)

    hands.start(beside)
    while not said and not raised:
        hands.wait(tend())
    if raised:
        raise raised[0]
    return said[0]


class BackgroundCalls:
    """Runs calls that may hang or fail in threads.

    It logs failures, and the loop repeats the calls.
    """

    def __init__(self, hands: TaskRunner, tell: Telemetry) -> None:
        self._hands = hands
        self._tell = tell
        self._under_way: set[int] = set()
        self._started = 0
        self._crash: BaseException | None = None

    @property
    def busy(self) -> bool:
        return bool(self._under_way)

    def start(self, work: Work, failed: str) -> None:
        self._started += 1
        number = self._started
        self._under_way.add(number)

        def beside() -> None:
            try:
                self.guarded(work, failed)
            except BaseException as crash:
                self._crash = crash
            finally:
                self._under_way.discard(number)

        self._hands.start(beside)

    def guarded(self, work: Work, failed: str) -> None:
        try:
            work()
        except Unavailable as error:
            self._tell(failed, error=error.message)

    def look(self) -> None:
        """Raise the error of a crashed thread."""
        if self._crash is not None:
            raise self._crash
