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

from punctual.tasks.script.open_files import is_file_limit
from punctual.tasks.script.usage import children

PR_SET_CHILD_SUBREAPER = 36
RUN_ID_VARIABLE = "PUNCTUAL_RUN_ID"
MAX_KILL_ROUNDS = 20
MAX_EXIT_WAIT_SECONDS = 1.0


def kill_survivors(run_ids: Collection[str]) -> int:
    """Kill this user's processes with one of these run ids in their environment.

    Each round finds the processes that started during the round before. `Children` covers
    processes with a cleared environment.
    """
    variables = {f"{RUN_ID_VARIABLE}={run_id}".encode() for run_id in run_ids}
    killed: set[int] = set()
    for _ in range(MAX_KILL_ROUNDS if variables else 0):
        pids = [pid for pid in _own_processes() if not variables.isdisjoint(_environment(pid))]
        if not pids:
            break
        for pid in pids:
            _kill(pid)
        for pid in pids:
            _wait_for_exit(pid)
        killed.update(pids)
    return len(killed)


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

    def forget(self, launcher: int) -> None:
        with self._lock:
            self._launchers.discard(launcher)

    def kill_orphans(self) -> int:
        """Kill and reap the orphans and their descendants. Return the number of orphans."""
        count = 0
        for _ in range(MAX_KILL_ROUNDS if self._adopts else 0):
            with self._lock:
                orphans = set(children(os.getpid())) - self._launchers
                for pid in orphans:
                    _kill(pid)
            if not orphans:
                break
            for pid in orphans:
                with suppress(ChildProcessError):
                    os.waitpid(pid, 0)
            count += len(orphans)
        return count


def _own_processes() -> Iterator[int]:
    """Yield the other processes of this user, or none without /proc."""
    names = os.listdir("/proc") if sys.platform == "linux" else []
    own_user, own_pid = os.geteuid(), os.getpid()
    for name in names:
        if name.isdigit() and int(name) != own_pid and _effective_user(name) == own_user:
            yield int(name)


def _effective_user(pid: str) -> int:
    """Return the effective user of a process.

    The owner of its /proc files does not tell, because it may be root.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            for line in status:
                if line.startswith(b"Uid:"):
                    return int(line.split()[2])
    except OSError as error:
        if is_file_limit(error):
            raise
        # The process ended meanwhile.
        return -1
    return -1


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return environment.read().split(b"\0")
    except OSError as error:
        if is_file_limit(error):
            raise
        # The process ended, or it is not dumpable.
        return []


def _wait_for_exit(pid: int) -> None:
    """Wait until a killed process has ended, at most `MAX_EXIT_WAIT_SECONDS`."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        # The process has ended, or no descriptor is available.
        return
    try:
        select.select([descriptor], [], [], MAX_EXIT_WAIT_SECONDS)
    finally:
        os.close(descriptor)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
