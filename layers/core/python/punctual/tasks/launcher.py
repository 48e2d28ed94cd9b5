"""The small process between us and a script: nothing of the script outlives it, or us.

Executed by path in an isolated interpreter, so it imports what starts fast and nothing of ours.

1. Read what to run from the control pipe, adopt all orphans to come (Linux), fork.
2. Report `started PID` before the script begins, or after that `failed ERRNO`.
3. A `T` on the control pipe ends the script's group politely, a `K` at once; so does the end of
   the pipe, which is how the death of the process above shows.
4. Once the script has ended, kill what it left, however far it detached itself; then report
   `exit CODE` or `signal NUMBER`.
"""

import ctypes
import marshal
import os
import resource
import select
import sys
from typing import Any

# By number: importing `signal` would cost a third of the start.
SIGKILL, SIGPIPE, SIGTERM, SIGXFSZ = 9, 13, 15, 25
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LENGTH_BYTES = 8
READY = b"."
REAP_MS = 1000
POLL_MS = 20
KILL_ROUNDS = 500
KILL_ROUND_MS = 4

_LINUX = sys.platform == "linux"


def main(control: int, report: int) -> None:
    os.set_inheritable(control, False)
    os.set_inheritable(report, False)
    spec = _read_spec(control)
    libc = ctypes.CDLL(None)
    if _LINUX:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    pid = _start(spec, libc, report)
    _let_go_of_streams()
    if pid is None:
        return
    script = Script(pid)
    _wait(script, control)
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
        for _ in range(KILL_ROUNDS):
            if not self._reap():
                return
            for pid in _children():
                _kill(pid)
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


def _start(spec: dict[str, Any], libc: ctypes.CDLL, report: int) -> int | None:
    """The script's process, or nothing if it could not be executed.

    It is named above before it may begin: a script could kill us first and keep its group secret.
    """
    us = os.getpid()
    answers, answer = os.pipe()
    go, let_go = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(let_go)
            _execute(spec, libc, us, answer, go)
        except OSError as error:
            os.write(answer, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(answer)
    os.close(go)
    os.read(answers, len(READY))
    _say(report, f"started {pid}")
    os.close(let_go)
    error_number = os.read(answers, 16)
    if not error_number:
        return pid
    os.waitpid(pid, 0)
    _say(report, f"failed {error_number.decode()}")
    return None


def _execute(spec: dict[str, Any], libc: ctypes.CDLL, parent: int, answer: int, go: int) -> None:
    os.setsid()
    if _LINUX:
        libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    os.write(answer, READY)
    os.read(go, 1)
    if os.getppid() != parent:
        return
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    for ignored_by_python in (SIGPIPE, SIGXFSZ):
        libc.signal(ignored_by_python, None)
    for kind, wanted in spec["limits"]:
        _, hard = resource.getrlimit(kind)
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (limit, limit))
    os.umask(0o077)
    os.chdir(spec["cwd"])
    os.execve(spec["argv"][0], spec["argv"], spec["env"])


def _let_go_of_streams() -> None:
    # Held open here, a pipe that the script closed would never end for whoever is at its far end.
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _wait(script: Script, control: int) -> None:
    """Return when the script has ended, or must end at once."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    patience = REAP_MS if _watch(poller, script.pid) else POLL_MS
    while not script.has_ended():
        if not any(descriptor == control for descriptor, _ in poller.poll(patience)):
            continue
        if os.read(control, 1) != b"T":
            return
        script.signal(SIGTERM)


def _watch(poller: "select.poll", pid: int) -> bool:
    try:
        poller.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        return False
    return True


def _children() -> list[int]:
    """Who has us as parent, by /proc: where there is none, nobody is adopted either."""
    us = os.getpid()
    numbers = [name for name in os.listdir("/proc") if name.isdigit()] if _LINUX else []
    return [int(number) for number in numbers if _parent(number) == us]


def _parent(number: str) -> int:
    try:
        with open(f"/proc/{number}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _kill(pid: int) -> None:
    try:
        os.kill(pid, SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _say(report: int, line: str) -> None:
    try:
        os.write(report, line.encode() + b"\n")
    except BrokenPipeError:
        # The process above is dead; the script is not, so go on to end it.
        return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
