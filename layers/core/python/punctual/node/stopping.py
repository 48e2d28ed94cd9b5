"""The shutdown of the node. Running attempts may end first; a second signal stops them at once."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

from punctual.domain.errors import PunctualError
from punctual.engine.ports.log import Log

STOP_SECONDS = 30.0  # for running attempts to end
KILL_SECONDS = 8.0  # for stopped attempts to be recorded
IDLE_CHECK_SECONDS = 0.05
MAX_SHOWN_NAMES = 3


class Stop:
    """A request to end.

    A second request means at once.

    `error` is the reason if the node itself has to end at once.
    """

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()
        self.error: PunctualError | None = None

    def request(self) -> None:
        """Request the end. Each signal calls this."""
        if self.requested.is_set():
            self.forced.set()
        self.requested.set()

    def fail(self, error: PunctualError) -> None:
        self.error = self.error or error
        self.forced.set()
        self.requested.set()


class StoppableNode(Protocol):
    """The part of the node that a shutdown uses."""

    @property
    def is_idle(self) -> bool: ...

    def drain(self) -> None: ...

    def close(self) -> None: ...


class Countdown:
    """Shows the runs that a shutdown waits for.

    A terminal gets a changing line, a log one event.
    """

    def __init__(self, screen: TextIO | None, log: Log) -> None:
        self._screen = screen
        self._log = log
        self._shown_text = ""

    def show(self, names: Sequence[str], remaining_seconds: float) -> None:
        if self._screen is None:
            if not self._shown_text:
                self._log(
                    "stopping",
                    running=len(names),
                    jobs=_abbreviate(names),
                    seconds=round(remaining_seconds),
                )
            self._shown_text = "logged"
            return
        run_text = "1 run" if len(names) == 1 else f"{len(names)} runs"
        status = (
            f"Waiting for {run_text} to end ({_abbreviate(names)}): {remaining_seconds:.0f} s left."
        )
        text = f"{status} Ctrl-C again stops now."
        if text != self._shown_text:
            self._screen.write(f"\r\x1b[K{text}")
            self._screen.flush()
            self._shown_text = text

    def end(self) -> None:
        if self._screen is not None and self._shown_text:
            self._screen.write("\n")


def _abbreviate(names: Sequence[str]) -> str:
    """
    >>> _abbreviate(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    shown_names = ", ".join(
        "".join(character if character.isprintable() else "?" for character in name)
        for name in names[:MAX_SHOWN_NAMES]
    )
    hidden = len(names) - MAX_SHOWN_NAMES
    return f"{shown_names} and {hidden} more" if hidden > 0 else shown_names


async def shut_down(
    node: StoppableNode,
    running_names: Callable[[], Sequence[str]],
    wake: Callable[[], None],
    stop: Stop,
    seconds: float,
    countdown: Countdown,
    monotonic: Callable[[], float],
) -> None:
    """Let running attempts end within `seconds`, then stop them."""
    node.drain()
    deadline = monotonic() + seconds
    while (
        not node.is_idle
        and not stop.forced.is_set()
        and (remaining_seconds := deadline - monotonic()) > 0
    ):
        countdown.show(running_names(), remaining_seconds)
        wake()
        await asyncio.sleep(IDLE_CHECK_SECONDS)
    countdown.end()
    node.close()
    deadline = monotonic() + (0 if stop.error else KILL_SECONDS)
    while not node.is_idle and monotonic() < deadline:
        wake()
        await asyncio.sleep(IDLE_CHECK_SECONDS)
    wake()
    await asyncio.sleep(0)
