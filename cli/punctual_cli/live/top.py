"""The command punctual top: what runs now, and what failed last."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from punctual_cli.input import clock
from punctual_cli.live.top_view import (
    LISTED_FAILURE_STATUSES,
    LISTED_LIVE_STATUSES,
    MAX_FAILED_RUNS,
    TopState,
    draw,
)
from punctual_cli.session import Session

if TYPE_CHECKING:
    from rich.console import Group

MAX_LISTED_RUNS = 1_000  # live runs at the start
REDRAW_SECONDS = 1  # so that the elapsed times go on
STATS_SECONDS = 10.0
PIPE_HEIGHT = 60  # lines without a terminal


def top(session: Session) -> None:
    """Show what runs now, what failed last, the lateness and the queue.

    On a terminal the view goes on until q or Ctrl-C. Otherwise it is printed once.
    """
    follower = _Follower(session)
    follower.begin()
    if not sys.stdout.isatty():
        session.screen.out.print(follower.view(PIPE_HEIGHT))
        return
    with keys_of_terminal() as is_ended:
        _redraw(session, follower, is_ended)


class _Follower:
    """Keeps the state of the view by the change feed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._client = session.client
        self._cursor = ""
        self._next_read = self._next_stats = 0.0
        self.state = TopState()

    def begin(self) -> None:
        """Take the cursor of now, and then read the lists. So no change falls in between."""
        self._cursor = self._client.read_changes().next_cursor
        live = self._client.runs.list(status=LISTED_LIVE_STATUSES, limit=MAX_LISTED_RUNS)
        failed = self._client.runs.list(status=LISTED_FAILURE_STATUSES, limit=MAX_FAILED_RUNS)
        self.state.reset(live, failed)
        self._read_stats()

    def follow(self) -> None:
        """Wait for the next change, but only until the next redraw."""
        steady = clock.steady_seconds()
        if steady < self._next_read:
            clock.sleep(min(REDRAW_SECONDS, self._next_read - steady))
            return
        page = self._client.read_changes(
            after=self._cursor, kind="run", wait_seconds=REDRAW_SECONDS
        )
        self._cursor = page.next_cursor
        self._next_read = clock.steady_seconds() + page.poll_seconds
        if page.gap:
            self.begin()
        for change in page.changes:
            self.state.apply(change)
        if clock.steady_seconds() >= self._next_stats:
            self._read_stats()

    def _read_stats(self) -> None:
        self.state.stats = self._client.stats()
        self._next_stats = clock.steady_seconds() + STATS_SECONDS

    def view(self, height: int, hint: str = "") -> "Group":
        return draw(self.state, self._session.target.url, self._session.clock(), height, hint)


def _redraw(session: Session, follower: _Follower, is_ended: Callable[[], bool]) -> None:
    from rich.live import Live

    screen = session.screen.out
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while not is_ended():
            live.update(follower.view(screen.height, "q ends"), refresh=True)
            follower.follow()


@contextmanager
def keys_of_terminal() -> Iterator[Callable[[], bool]]:
    """Read single keys, and yield a function that returns whether q was pressed."""
    if not sys.stdin.isatty():
        yield lambda: False
        return
    import termios
    import tty
    from select import select

    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)

    def is_ended() -> bool:
        while select([descriptor], [], [], 0)[0]:
            key = os.read(descriptor, 1)
            if key in (b"q", b"Q", b""):
                return True
        return False

    tty.setcbreak(descriptor)
    try:
        yield is_ended
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)
