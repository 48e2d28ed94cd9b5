"""The process between the node and a script. It kills the script if the node dies.

It runs in an isolated interpreter and imports only modules that load fast.

1. Become the reaper of orphans (Linux). Report `ready`, read the command from the control pipe,
   fork.
2. Report `started PID`. The script begins only after a `G` on the control pipe. Report
   `failed ERRNO` if it cannot begin, or `unconfined ERRNO` if the sandbox fails.
3. On a `T` on the control pipe, send SIGTERM to the script's group. On a `K`, kill the group at
   once. The end of the pipe has the effect of a `K`. The pipe also ends when the node dies.
4. Measure the resources of the script. Above a limit, report `limit NAME` and kill it.
5. After the end of the script, kill all its descendants, also detached ones. Then report
   `exit CODE` or `signal NUMBER`.
"""

import ctypes
import marshal
import os
import resource
import select
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from punctual.tasks.script.confinement import confine, hide, offer_to_the_oom_killer
from punctual.tasks.script.landlock import c_library
from punctual.tasks.script.usage import (
    TooDeepError,
    children,
    deleted_bytes,
    descendants,
    memory_bytes,
    sizes,
)

# Numbers, because an import of `signal` takes a third of the start time.
SIGKILL, SIGPIPE, SIGTERM, SIGSTOP, SIGXFSZ = 9, 13, 15, 19, 25
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LENGTH_BYTES = 8
READY = b"."
GO = b"G"
LOOK_SECONDS = 0.1
DISK_SECONDS = 1.0
FILES_AT_ONCE = 4000
POLL_MS = 20
KILL_ROUNDS = 500
KILL_ROUND_MS = 4
FREEZE_AFTER_ROUNDS = 5

_LINUX = sys.platform == "linux"


def main(monotonic: Callable[[], float]) -> None:
    control, report = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    os.set_inheritable(report, False)
    library = c_library()
    if _LINUX:
        hide(library)
        library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _say(report, "ready")
    spec = _read_spec(control)
    try:
        pid = _start(spec, library, control, report)
    except OSError as error:
        _say(report, f"failed {error.errno}")
        return
    if pid is None:
        return
    script = Script(pid)
    limit = _wait(script, control, Watch(spec["most"], spec["folder"], monotonic))
    if limit:
        _say(report, f"limit {limit}")
    script.end_all()
    if script.status is not None:
        code = os.waitstatus_to_exitcode(script.status)
        _say(report, f"exit {code}" if code >= 0 else f"signal {-code}")


class Script:
    """The main process of the script and its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # The group is gone. On macOS, only zombies are left in it.
            return

    def has_ended(self) -> bool:
        """Return True if the main process has ended.

        Where the system allows it, the process is not reaped yet. So its number cannot be reused
        before its group is killed.
        """
        if not hasattr(os, "waitid"):
            self._reap()
            return self.status is not None
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is None or ended.si_pid == self.pid:
                return ended is not None
            os.waitpid(ended.si_pid, 0)

    def end_all(self) -> None:
        """Kill and reap until no descendant is left. Orphans become children of the launcher."""
        # Kill the group before reaping. Afterwards its number may belong to another process.
        self.signal(SIGKILL)
        us = os.getpid()
        for turn in range(KILL_ROUNDS):
            if not self._reap():
                return
            if turn >= FREEZE_AFTER_ROUNDS:
                # Stop the descendants first. A fork loop may otherwise be faster than the kills.
                for pid in descendants(us, sys.maxsize):
                    _kill(pid, SIGSTOP)
            for pid in children(us):
                _kill(pid, SIGKILL)
            if self.status is None:
                self.signal(SIGKILL)
            select.poll().poll(KILL_ROUND_MS)

    def _reap(self) -> bool:
        """Reap all ended children. Return True if some are still alive."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self.pid:
                self.status = status
            if pid == 0:
                return True


class Watch:
    """Measures the resources of a run and reports the limit that it exceeds.

    Each call measures a part of the folder only, so that control messages do not wait.
    """

    def __init__(self, most: dict[str, int], folder: str, monotonic: Callable[[], float]) -> None:
        self._most = most
        self._folder = folder
        self._monotonic = monotonic
        self._look_at = monotonic() + LOOK_SECONDS
        self._measure_at = monotonic() + DISK_SECONDS
        self._sizes: Iterator[int] | None = None
        self._total = 0

    def passed(self) -> str:
        now = self._monotonic()
        if not _LINUX or now < self._look_at:
            return ""
        self._look_at = now + LOOK_SECONDS
        most = self._most
        pids = descendants(os.getpid(), most["processes"])
        if len(pids) > most["processes"]:
            return "processes"
        if memory_bytes(pids, most["memory"]) > most["memory"]:
            return "memory"
        if self._sizes is None and now >= self._measure_at:
            self._measure_at = now + DISK_SECONDS
            self._sizes, self._total = sizes(self._folder), 0
        return "" if self._sizes is None else self._measure(self._sizes, pids)

    def _measure(self, left: Iterator[int], pids: list[int]) -> str:
        try:
            some = list(islice(left, FILES_AT_ONCE))
        except TooDeepError:
            return "depth"
        self._total += sum(some)
        total = self._total
        if len(some) < FILES_AT_ONCE:
            self._sizes = None
            total += deleted_bytes(pids)
        return "disk" if total > self._most["disk"] else ""


def _read_spec(control: int) -> dict[str, Any]:
    length = int.from_bytes(_read(control, LENGTH_BYTES), "big")
    spec: dict[str, Any] = marshal.loads(_read(control, length))
    return spec


def _read(descriptor: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        piece = os.read(descriptor, length - len(data))
        if not piece:
            sys.exit(1)
        data += piece
    return data


def _start(spec: dict[str, Any], library: ctypes.CDLL, control: int, report: int) -> int | None:
    """Return the script's process id, or None if it could not begin.

    The node learns the id before the script begins. Otherwise the script could kill the launcher
    first, and its group would stay unknown. All files for the run are opened before it begins.
    """
    us = os.getpid()
    answers, answer = os.pipe()
    go, let_go = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(let_go)
            _prepare(spec, library, us, answer, go)
            _confine(spec, library, answer)
            os.execve(spec["argv"][0], spec["argv"], spec["env"])
        except OSError as error:
            os.write(answer, f"failed {error.errno}".encode())
        finally:
            os._exit(127)
    os.close(answer)
    os.close(go)
    may_begin = False
    try:
        os.read(answers, len(READY))
        _pin(spec, pid)
        _say(report, f"started {pid}")
        may_begin = os.read(control, len(GO)) == GO
    finally:
        if not may_begin:
            _kill(pid, SIGKILL)
            os.waitpid(pid, 0)
    if not may_begin:
        return None
    _let_go_of_streams(null)
    os.write(let_go, GO)
    failure = os.read(answers, 64)
    if not failure:
        return pid
    os.waitpid(pid, 0)
    _say(report, failure.decode())
    return None


def _pin(spec: dict[str, Any], pid: int) -> None:
    """Keep the allowed /proc entries open. The kernel drops a rule when it evicts the inode."""
    if spec["rules"]:
        for name in spec["rules"]["process_files"]:
            try:
                place = f"/proc/{pid if name == 'self' else name}"
                os.open(place, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue


def _prepare(spec: dict[str, Any], library: ctypes.CDLL, parent: int, answer: int, go: int) -> None:
    os.setsid()
    if _LINUX:
        library.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    os.write(answer, READY)
    if os.read(go, len(GO)) != GO or os.getppid() != parent:
        os._exit(127)
    if _LINUX:
        offer_to_the_oom_killer(library)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    for ignored_by_python in (SIGPIPE, SIGXFSZ):
        library.signal(ignored_by_python, None)
    for kind, wanted in spec["limits"]:
        _, hard = resource.getrlimit(kind)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (limit, limit))
    os.umask(0o077)
    os.chdir(spec["cwd"])


def _confine(spec: dict[str, Any], library: ctypes.CDLL, answer: int) -> None:
    if not spec["rules"]:
        return
    try:
        confine(library, spec["rules"])
    except OSError as error:
        os.write(answer, f"unconfined {error.errno}".encode())
        os._exit(127)


def _let_go_of_streams(null: int) -> None:
    # An open copy here would keep the pipe alive after the script closes it.
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _wait(script: Script, control: int, watch: Watch) -> str:
    """Wait for the end of the script or the request to kill it. Return the exceeded limit or ""."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    patience = LOOK_SECONDS * 1000 if _watch(poller, script.pid) else POLL_MS
    while not script.has_ended():
        heard = poller.poll(patience)
        limit = watch.passed()
        if limit:
            return limit
        if not any(descriptor == control for descriptor, _ in heard):
            continue
        if os.read(control, 1) != b"T":
            return ""
        script.signal(SIGTERM)
    return ""


def _watch(poller: "select.poll", pid: int) -> bool:
    try:
        poller.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        return False
    return True


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _say(report: int, line: str) -> None:
    try:
        os.write(report, line.encode() + b"\n")
    except BrokenPipeError:
        # The node is dead. Go on, to end the script.
        return
