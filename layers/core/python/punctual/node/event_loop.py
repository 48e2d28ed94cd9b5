"""Drives the node on the event loop.

Requests of one turn share a commit, and steps start on time.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from punctual.domain.errors import Unavailable
from punctual.engine.ports.log import Log
from punctual.node.node import Node

T = TypeVar("T")
EARLY = 0.0015  # A timer of the loop may fire a millisecond early. `_due` sleeps for the rest.
RETRY = 1.0
CHECK = 1.0  # seconds between checks of the wall clock; the system sends no notice of a change


class EventLoop:
    """Runs the steps and requests of a node.

    Timers use the steady clock alone, because the wall clock may be set at any time.
    """

    def __init__(self, node: Node, monotonic: Callable[[], float], log: Log) -> None:
        self._node = node
        self._monotonic = monotonic
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._requests: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._turning = False
        self._handle: asyncio.TimerHandle | None = None
        self._at: float | None = None
        self._stopped = False

    async def turn(self, request: Callable[[], T]) -> T:
        """Carry out `request` in the transaction of this turn.

        Return its answer after the commit.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._requests.append((request, future))
        if not self._turning:
            self._turning = True
            self._loop.call_soon(self._turn)
        return await future

    def _turn(self) -> None:
        self._turning = False
        waiting, self._requests = self._requests, []
        try:
            answers = self._node.perform([request for request, _ in waiting])
        except Exception as error:
            answers = [error] * len(waiting)
        for (_, future), answer in zip(waiting, answers, strict=True):
            _settle(future, answer)
        self._arm(self._node.next_at())

    def wake(self) -> None:
        """Schedule a step soon. Safe from any thread."""
        if not self._stopped:
            self._loop.call_soon_threadsafe(self._step)

    def start(self) -> None:
        self._step()

    def stop(self) -> None:
        self._stopped = True
        if self._handle is not None:
            self._handle.cancel()

    def _step(self) -> None:
        if self._stopped:
            return
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self._at = None, None
        try:
            at = self._node.step()
        except Unavailable as error:
            self._again("store_unavailable", error.message)
            return
        except Exception as error:
            # A failed step must not end all steps in silence. It is logged and repeated.
            self._again("step_failed", f"{type(error).__name__}: {error}")
            return
        self._arm(at)

    def _again(self, event: str, error: str) -> None:
        self._log(event, error=error)
        self._handle = self._loop.call_later(RETRY, self._step)

    def _arm(self, at: float) -> None:
        if self._stopped or (self._at is not None and self._at <= at):
            return
        if self._handle is not None:
            self._handle.cancel()
        self._at = at
        seconds = min(at - self._monotonic() - EARLY, CHECK)
        self._handle = self._loop.call_later(max(0.0, seconds), self._due)

    def _due(self) -> None:
        at = self._at
        if at is not None:
            left = at - self._monotonic()
            if left > EARLY and not self._node.clock_was_set:
                self._at = None
                self._arm(at)
                return
            if 0 < left <= EARLY:
                time.sleep(left)
        self._step()


def _settle(future: "asyncio.Future[T]", answer: T | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
