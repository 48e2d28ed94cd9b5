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
# A timer of the loop may fire a millisecond early. `_due` sleeps for the remaining time.
TIMER_EARLY_SECONDS = 0.0015
STEP_RETRY_SECONDS = 1.0
# Seconds between checks of the wall clock; the system sends no notice of a change.
CLOCK_CHECK_SECONDS = 1.0


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
        self._turn_scheduled = False
        self._timer_handle: asyncio.TimerHandle | None = None
        self._step_at: float | None = None
        self._stopped = False

    async def turn(self, request: Callable[[], T]) -> T:
        """Carry out `request` in the transaction of this turn.

        Return its answer after the commit.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        self._requests.append((request, future))
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)
        return await future

    def _turn(self) -> None:
        self._turn_scheduled = False
        pending, self._requests = self._requests, []
        try:
            answers = self._node.perform([request for request, _ in pending])
        except Exception as error:
            answers = [error] * len(pending)
        for (_, future), answer in zip(pending, answers, strict=True):
            _resolve_future(future, answer)
        self._arm(self._node.next_step_steady())

    def wake(self) -> None:
        """Schedule a step soon. Safe from any thread."""
        if not self._stopped:
            self._loop.call_soon_threadsafe(self._step)

    def start(self) -> None:
        self._step()

    def stop(self) -> None:
        self._stopped = True
        if self._timer_handle is not None:
            self._timer_handle.cancel()

    def _step(self) -> None:
        if self._stopped:
            return
        if self._timer_handle is not None:
            self._timer_handle.cancel()
            self._timer_handle, self._step_at = None, None
        try:
            step_at = self._node.step()
        except Unavailable as error:
            self._retry_step("store_unavailable", error.message)
            return
        except Exception as error:
            # A failed step must not end all steps in silence. It is logged and repeated.
            self._retry_step("step_failed", f"{type(error).__name__}: {error}")
            return
        self._arm(step_at)

    def _retry_step(self, event: str, error: str) -> None:
        self._log(event, error=error)
        self._timer_handle = self._loop.call_later(STEP_RETRY_SECONDS, self._step)

    def _arm(self, step_at: float) -> None:
        if self._stopped or (self._step_at is not None and self._step_at <= step_at):
            return
        if self._timer_handle is not None:
            self._timer_handle.cancel()
        self._step_at = step_at
        seconds = min(step_at - self._monotonic() - TIMER_EARLY_SECONDS, CLOCK_CHECK_SECONDS)
        self._timer_handle = self._loop.call_later(max(0.0, seconds), self._due)

    def _due(self) -> None:
        step_at = self._step_at
        if step_at is not None:
            remaining_seconds = step_at - self._monotonic()
            if remaining_seconds > TIMER_EARLY_SECONDS and not self._node.has_clock_change:
                self._step_at = None
                self._arm(step_at)
                return
            if 0 < remaining_seconds <= TIMER_EARLY_SECONDS:
                time.sleep(remaining_seconds)
        self._step()


def _resolve_future(future: "asyncio.Future[T]", answer: T | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
