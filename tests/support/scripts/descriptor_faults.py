"""Make opening a file fail at any place in this process or in a launcher."""

import errno
import os
import selectors
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from punctual.tasks.script import process

EVENTS = frozenset({"open", "os.listdir", "os.scandir", "socket.__new__", "socket.getaddrinfo"})
THREADS = (
    "MainThread",
    "quick",
    "long",
    "resolve",
)  # of a node, without those of a test's server


class Openings:
    """Counts openings. From number `first` on, the next `failures` fail."""

    def __init__(self, first: int, failures: int, number: int = errno.EMFILE) -> None:
        self._first = first
        self._failures = failures
        self._number = number
        self._lock = threading.Lock()
        self.count = 0
        self.failed = 0

    def take(self) -> None:
        with self._lock:
            self.count += 1
            if not self._first <= self.count < self._first + self._failures:
                return
            self.failed += 1
        raise OSError(self._number, os.strerror(self._number))


_armed: list[Openings] = []


def _hook(event: str, _arguments: Any) -> None:
    if _armed and event in EVENTS and threading.current_thread().name.startswith(THREADS):
        _armed[-1].take()


_hooked = False


@contextmanager
def openings_failing(monkeypatch: pytest.MonkeyPatch, openings: Openings) -> Iterator[Openings]:
    """Make this process's openings fail. Audited calls, pipes and selectors are counted."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_hook)  # an audit hook cannot be removed, so it stays idle
        _hooked = True

    def counting(make: Callable[[], Any]) -> Callable[[], Any]:
        def counted_make() -> Any:
            _hook("open", ())
            return make()

        return counted_make

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe", counting(os.pipe))
        patch.setattr(selectors, "DefaultSelector", counting(selectors.DefaultSelector))
        _armed.append(openings)
        try:
            yield openings
        finally:
            _armed.clear()


# Runs in the launcher before its code, and in the script's process until its program begins.
# The file `armed` holds the number of the first opening that fails; the first launcher takes it.
_IN_LAUNCHER = """
import os, sys
def arm(armed, many, number):
    import punctual.tasks.script.launcher  # what it imports is open by then
    try:
        first = int(os.readlink(armed))
        os.unlink(armed)
    except FileNotFoundError:
        return
    count = 0
    def opening(event, _arguments):
        nonlocal count
        if event in ("open", "os.listdir", "os.scandir"):
            count += 1
            if first <= count < first + many:
                if not os.path.lexists(armed + ".met"):
                    os.symlink("1", armed + ".met")
                raise OSError(number, os.strerror(number))
    sys.addaudithook(opening)
    pipe = os.pipe
    def counted():
        opening("open", ())
        return pipe()
    os.pipe = counted
arm({armed!r}, {many}, {number})
"""


class LauncherFaults:
    """Makes the first launcher fail at its opening number `first`."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        folder: Path,
        first: int,
        failures: int = 1,
        number: int = errno.EMFILE,
    ) -> None:
        armed = folder / f"armed-{first}"
        armed.symlink_to(str(first))  # a link needs no opening
        self._met_file = Path(f"{armed}.met")
        setup, start = process.LAUNCHER_CODE.split("import time; ", 1)
        code = _IN_LAUNCHER.format(armed=str(armed), many=failures, number=int(number))
        monkeypatch.setattr(
            process, "LAUNCHER_CODE", f"{setup}exec({code!r}); import time; {start}"
        )

    @property
    def were_met(self) -> bool:
        return self._met_file.is_symlink()
