"""The shutdown of the node. Running attempts may end first; a second signal stops them at once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from punctual.domain.errors import PunctualError
from punctual.engine.ports.log import Log

STOP_SECONDS = 30.0  # for running attempts to end
KILL_SECONDS = 8.0  # for stopped attempts to be recorded
LOOK_SECONDS = 0.05
MOST_NAMES = 3


class Stop:
    """A request to end.

    A second request means at once.

    `error` is the reason if the node itself has to end at once.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.insisted = asyncio.Event()
        self.error: PunctualError | None = None

    def ask(self) -> None:
        """Request the end. Each signal calls this."""
        if self.asked.is_set():
            self.insisted.set()
        self.asked.set()

    def fail(self, error: PunctualError) -> None:
        self.error = self.error or error
        self.insisted.set()
        self.asked.set()


class Running(Protocol):
    """The part of the node that a shutdown uses."""

    @property
    def idle(self) -> bool: ...

    def drain(self) -> None: ...

    def close(self) -> None: ...


class Countdown:
    """Shows the runs that a shutdown waits for.

    A terminal gets a changing line, a log one event.
    """

    def __init__(self, screen: TextIO | None, log: Log) -> None:
        self._screen = screen
        self._log = log
        self._shown = ""

    def show(self, names: Sequence[str], left: float) -> None:
        if self._screen is None:
            if not self._shown:
                self._log("stopping", running=len(names), jobs=_some(names), seconds=round(left))
            self._shown = "logged"
            return
        runs = "1 run" if len(names) == 1 else f"{len(names)} runs"
        waiting = f"Waiting for {runs} to end ({_some(names)}): {left:.0f} s left."
        text = f"{waiting} Ctrl-C again stops now."
        if text != self._shown:
            self._screen.write(f"\r\x1b[K{text}")
            self._screen.flush()
            self._shown = text

    def end(self) -> None:
        if self._screen is not None and self._shown:
            self._screen.write("\n")


def _some(names: Sequence[str]) -> str:
    """
    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown = ", ".join(
        "".join(c if c.isprintable() else "?" for c in one) for one in names[:MOST_NAMES]
    )
    more = len(names) - MOST_NAMES
    return f"{shown} and {more} more" if more > 0 else shown


async def wind_down(
    node: Running,
    names: Callable[[], Sequence[str]],
    wake: Callable[[], None],
    stop: Stop,
    seconds: float,
    countdown: Countdown,
    monotonic: Callable[[], float],
) -> None:
    """Let running attempts end within `seconds`, then stop them."""
    node.drain()
    until = monotonic() + seconds
    while not node.idle and not stop.insisted.is_set() and (left := until - monotonic()) > 0:
        countdown.show(names(), left)
        wake()
        await asyncio.sleep(LOOK_SECONDS)
    countdown.end()
    node.close()
    until = monotonic() + (0 if stop.error else KILL_SECONDS)
    while not node.idle and monotonic() < until:
        wake()
        await asyncio.sleep(LOOK_SECONDS)
    wake()
    await asyncio.sleep(0)
