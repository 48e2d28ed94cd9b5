"""The small process between the node and a script: nothing of the script outlives it, or the node.

It runs in an isolated interpreter and imports only what starts fast.

1. Adopt all orphans to come (Linux), report `ready`, read what to run from the control pipe, fork.
2. Report `started PID`. The script begins when the control pipe says `G`, and never where the pipe
   says anything else or ends. What keeps it from beginning is reported as `failed ERRNO`, or
   `unconfined ERRNO` if the sandbox could not be entered.
3. A `T` on the control pipe ends the script's group politely, a `K` at once; so does the end of
   the pipe, which is how the death of the process above shows.
4. Look at what the script uses. Beyond a limit report `limit NAME` and end it.
5. Once the script has ended, kill what it left, however far it detached itself; then report
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

# By number: importing `signal` would cost a third of the start.
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
    """The script's main process and all that descends from it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None

    def signal(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            # Gone, or on macOS: all that is left of the group are zombies.
            return

    def has_ended(self) -> bool:
        """Whether the main process has; where that can be asked without reaping it, it is not
        reaped, so that its number cannot be given away before its group is killed."""
        if not hasattr(os, "waitid"):
            self._reap()
            return self.status is not None
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is None or ended.si_pid == self.pid:
                return ended is not None
            os.waitpid(ended.si_pid, 0)

    def end_all(self) -> None:
        """Kill and reap until nothing is left: whose parent is killed becomes our own child."""
        # By its number only now: once the main process is reaped, the number may be another's.
        self.signal(SIGKILL)
        us = os.getpid()
        for turn in range(KILL_ROUNDS):
            if not self._reap():
                return
            if turn >= FREEZE_AFTER_ROUNDS:
                # What forks faster than it is killed cannot fork while it is stopped.
                for pid in descendants(us, sys.maxsize):
                    _kill(pid, SIGSTOP)
            for pid in children(us):
                _kill(pid, SIGKILL)
            if self.status is None:
                self.signal(SIGKILL)
            select.poll().poll(KILL_ROUND_MS)

    def _reap(self) -> bool:
        """Take in all that has ended; whether some are still alive."""
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
    """Looks at what a run uses, and says which limit it has passed.

    Of its folder only so much is looked at in one go that an order is not kept waiting.
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
    """The script's process, or nothing if it may not begin or could not be executed.

    It is named above before it may begin: a script could kill us first and keep its group secret.
    All files that are needed while it runs are opened before it begins.
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
    """Hold what is open to the script of /proc: the kernel forgets a rule with its file."""
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
    # Held open here, a pipe that the script closed would never end for the reader at its far end.
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _wait(script: Script, control: int, watch: Watch) -> str:
    """Return when the script has ended, or must end at once: the limit that it passed, if any."""
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
        # The process above is dead; the script is not, so go on to end it.
        return
