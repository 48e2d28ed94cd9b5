"""The command punctual top: what runs now, and what failed last."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from punctual_cli.input import clock
from punctual_cli.live.top_view import (
    LISTED_FAILURE_STATUSES,
    LISTED_LIVE_STATUSES,
    MAX_FAILED_RUNS,
    MAX_LISTED_RUNS,
    TopState,
    draw,
)
from punctual_cli.session import Session

if TYPE_CHECKING:
    from rich.console import Group

    from punctual.client import Run

MIN_REDRAW_SECONDS, REDRAW_SECONDS = 0.1, 1.0  # so that the elapsed times go on
STATS_SECONDS = 10.0
MAX_UPDATES_PER_DRAW = 1_000
PIPE_HEIGHT = 60  # lines without a terminal


def top(session: Session) -> None:
    """Show what runs now, what failed last, the lateness and the queue.

    On a terminal the view goes on until q or Ctrl-C. Otherwise it is printed once.
    """
    shown = _Top(session)
    shown.begin()
    if not sys.stdout.isatty():
        session.screen.out.print(shown.view(PIPE_HEIGHT))
        return
    shown.start()
    with keys_of_terminal() as is_ended:
        _redraw(session, shown, is_ended)


class _Top:
    """Keeps the state of the view by the change feed.

    Two threads wait for answers, so the view draws itself and takes keys also while the server
    restarts. They end with the program.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._client = session.client
        self._updates: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._cursor = ""
        self.state = TopState()

    def begin(self) -> None:
        """Take the cursor of now, and then read the lists. So no change falls in between."""
        self._cursor = self._client.read_changes().next_cursor
        self.state.reset(*self._read_lists())
        self.state.stats = self._client.stats()

    def start(self) -> None:
        for work in (self._follow_changes, self._follow_stats):
            Thread(target=self._run, args=(work,), daemon=True).start()

    def update(self) -> None:
        """Apply what has come, or wait for it until the next redraw."""
        with suppress(Empty):
            self._updates.get(timeout=REDRAW_SECONDS)()
            clock.sleep(MIN_REDRAW_SECONDS)
            for _ in range(MAX_UPDATES_PER_DRAW):
                self._updates.get_nowait()()

    def view(self, height: int, hint: str = "") -> "Group":
        return draw(self.state, self._session.target.url, self._session.clock(), height, hint)

    def _run(self, work: Callable[[], None]) -> None:
        """Do the work in its thread. Its error ends the command."""
        try:
            work()
        except Exception as error:
            self._updates.put(partial(_fail, error))

    def _follow_changes(self) -> None:
        for change in self._client.changes(after=self._cursor, kind="run"):
            if change.kind == "gap":
                self._updates.put(partial(self.state.reset, *self._read_lists()))
            else:
                self._updates.put(partial(self.state.apply, change))

    def _follow_stats(self) -> None:
        from punctual.client import Unavailable

        while True:
            clock.sleep(STATS_SECONDS)
            with suppress(Unavailable):  # the feed says when the server is gone for too long
                self._updates.put(partial(setattr, self.state, "stats", self._client.stats()))

    def _read_lists(self) -> "tuple[list[Run], list[Run]]":
        runs = self._client.runs
        live = runs.list(status=LISTED_LIVE_STATUSES, limit=MAX_LISTED_RUNS)
        failed = runs.list(status=LISTED_FAILURE_STATUSES, limit=MAX_FAILED_RUNS)
        return list(live), list(failed)


def _fail(error: Exception) -> None:
    raise error


def _redraw(session: Session, shown: _Top, is_ended: Callable[[], bool]) -> None:
    from rich.live import Live

    screen = session.screen.out
    with Live(console=screen, screen=True, auto_refresh=False) as live:
        while not is_ended():
            live.update(shown.view(screen.height, "q ends"), refresh=True)
            shown.update()


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
