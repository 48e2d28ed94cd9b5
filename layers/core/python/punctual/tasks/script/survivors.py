"""Kill the processes of a run that are left after its launcher was killed."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from punctual.tasks.script.open_files import is_full
from punctual.tasks.script.usage import children

PR_SET_CHILD_SUBREAPER = 36
RUN_ID = "PUNCTUAL_RUN_ID"
ROUNDS = 20
WAIT_SECONDS = 1.0


def end_survivors(run_ids: Collection[str]) -> int:
    """Kill this user's processes with one of these run ids in their environment.

    Each round finds the processes that started during the round before. `Children` covers
    processes with a cleared environment.
    """
    marks = {f"{RUN_ID}={run_id}".encode() for run_id in run_ids}
    ended: set[int] = set()
    for _ in range(ROUNDS if marks else 0):
        found = [pid for pid in _ours() if not marks.isdisjoint(_environment(pid))]
        if not found:
            break
        for pid in found:
            _kill(pid)
        for pid in found:
            _wait_for(pid)
        ended.update(found)
    return len(ended)


class Children:
    """The child processes of an executor. The executor starts only launchers.

    With `adopt`, processes of a dead launcher become children of this process (Linux). So each
    child that is not a launcher is an orphan.
    """

    def __init__(self, *, adopt: bool = False) -> None:
        self._adopts = adopt and sys.platform == "linux"
        self._lock = threading.Lock()
        self._launchers: set[int] = set()
        if self._adopts:
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, launch: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
        with self._lock:
            launcher = launch()
            self._launchers.add(launcher.pid)
        return launcher

    def ended(self, launcher: int) -> None:
        with self._lock:
            self._launchers.discard(launcher)

    def end_orphans(self) -> int:
        """Kill and reap the orphans and their descendants. Return the number of orphans."""
        ended = 0
        for _ in range(ROUNDS if self._adopts else 0):
            with self._lock:
                orphans = set(children(os.getpid())) - self._launchers
                for pid in orphans:
                    _kill(pid)
            if not orphans:
                break
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
            ended += len(orphans)
        return ended


def _ours() -> Iterator[int]:
    """Yield the other processes of this user, or none without /proc."""
    names = os.listdir("/proc") if sys.platform == "linux" else []
    mine, us = os.geteuid(), os.getpid()
    for name in names:
        if name.isdigit() and int(name) != us and _user(name) == mine:
            yield int(name)


def _user(number: str) -> int:
    """Return the effective user of a process.

    The owner of its /proc files does not tell, because it may be root.
    """
    try:
        with open(f"/proc/{number}/status", "rb") as status:
            for line in status:
                if line.startswith(b"Uid:"):
                    return int(line.split()[2])
    except OSError as error:
        if is_full(error):
            raise
        # The process ended meanwhile.
        return -1
    return -1


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return environment.read().split(b"\0")
    except OSError as error:
        if is_full(error):
            raise
        # The process ended, or it is not dumpable.
        return []


def _wait_for(pid: int) -> None:
    """Wait until a killed process has ended, at most `WAIT_SECONDS`."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        # The process has ended, or no descriptor is available.
        return
    try:
        select.select([process], [], [], WAIT_SECONDS)
    finally:
        os.close(process)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
