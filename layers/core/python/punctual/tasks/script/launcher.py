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

from punctual.tasks.script.confinement import confine, hide_process, prefer_oom_kill
from punctual.tasks.script.landlock import c_library
from punctual.tasks.script.usage import (
    TooDeepError,
    children,
    deleted_file_bytes,
    descendants,
    file_sizes,
    memory_bytes,
)

# Numbers, because an import of `signal` takes a third of the start time.
SIGKILL, SIGPIPE, SIGTERM, SIGSTOP, SIGXFSZ = 9, 13, 15, 19, 25
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LENGTH_BYTES = 8
READY_BYTE = b"."
GO_BYTE = b"G"
MEASURE_SECONDS = 0.1
DISK_MEASURE_SECONDS = 1.0
FILES_PER_MEASUREMENT = 4000
POLL_MILLISECONDS = 20
KILL_ROUNDS = 500
KILL_ROUND_MILLISECONDS = 4
FREEZE_AFTER_ROUNDS = 5

_LINUX = sys.platform == "linux"


def main(monotonic: Callable[[], float]) -> None:
    control, report = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(control, False)
    os.set_inheritable(report, False)
    library = c_library()
    if _LINUX:
        hide_process(library)
        library.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _send_report(report, "ready")
    spec = _read_spec(control)
    try:
        pid = _start_script(spec, library, control, report)
    except OSError as error:
        _send_report(report, f"failed {error.errno}")
        return
    if pid is None:
        return
    script = Script(pid)
    limit = _wait_for_end(script, control, ResourceMonitor(spec["most"], spec["folder"], monotonic))
    if limit:
        _send_report(report, f"limit {limit}")
    script.kill_all()
    if script.status is not None:
        code = os.waitstatus_to_exitcode(script.status)
        _send_report(report, f"exit {code}" if code >= 0 else f"signal {-code}")


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
            exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if exited is None or exited.si_pid == self.pid:
                return exited is not None
            os.waitpid(exited.si_pid, 0)

    def kill_all(self) -> None:
        """Kill and reap until no descendant is left. Orphans become children of the launcher."""
        # Kill the group before reaping. Afterwards its number may belong to another process.
        self.signal(SIGKILL)
        own_pid = os.getpid()
        for kill_round in range(KILL_ROUNDS):
            if not self._reap():
                return
            if kill_round >= FREEZE_AFTER_ROUNDS:
                # Stop the descendants first. A fork loop may otherwise be faster than the kills.
                for pid in descendants(own_pid, sys.maxsize):
                    _kill(pid, SIGSTOP)
            for pid in children(own_pid):
                _kill(pid, SIGKILL)
            if self.status is None:
                self.signal(SIGKILL)
            select.poll().poll(KILL_ROUND_MILLISECONDS)

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


class ResourceMonitor:
    """Measures the resources of a run and reports the limit that it exceeds.

    Each call measures a part of the folder only, so that control messages do not wait.
    """

    def __init__(
        self, max_usage: dict[str, int], folder: str, monotonic: Callable[[], float]
    ) -> None:
        self._max_usage = max_usage
        self._folder = folder
        self._monotonic = monotonic
        self._next_measure_at = monotonic() + MEASURE_SECONDS
        self._next_disk_measure_at = monotonic() + DISK_MEASURE_SECONDS
        self._sizes: Iterator[int] | None = None
        self._total = 0

    def exceeded_limit(self) -> str:
        steady = self._monotonic()
        if not _LINUX or steady < self._next_measure_at:
            return ""
        self._next_measure_at = steady + MEASURE_SECONDS
        max_usage = self._max_usage
        pids = descendants(os.getpid(), max_usage["processes"])
        if len(pids) > max_usage["processes"]:
            return "processes"
        if memory_bytes(pids, max_usage["memory"]) > max_usage["memory"]:
            return "memory"
        if self._sizes is None and steady >= self._next_disk_measure_at:
            self._next_disk_measure_at = steady + DISK_MEASURE_SECONDS
            self._sizes, self._total = file_sizes(self._folder), 0
        return "" if self._sizes is None else self._measure_disk(self._sizes, pids)

    def _measure_disk(self, remaining_sizes: Iterator[int], pids: list[int]) -> str:
        try:
            batch = list(islice(remaining_sizes, FILES_PER_MEASUREMENT))
        except TooDeepError:
            return "depth"
        self._total += sum(batch)
        total = self._total
        if len(batch) < FILES_PER_MEASUREMENT:
            self._sizes = None
            total += deleted_file_bytes(pids)
        return "disk" if total > self._max_usage["disk"] else ""


def _read_spec(control: int) -> dict[str, Any]:
    length = int.from_bytes(_read(control, LENGTH_BYTES), "big")
    spec: dict[str, Any] = marshal.loads(_read(control, length))
    return spec


def _read(descriptor: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = os.read(descriptor, length - len(data))
        if not chunk:
            sys.exit(1)
        data += chunk
    return data


def _start_script(
    spec: dict[str, Any], library: ctypes.CDLL, control: int, report: int
) -> int | None:
    """Return the script's process id, or None if it could not begin.

    The node learns the id before the script begins. Otherwise the script could kill the launcher
    first, and its group would stay unknown. All files for the run are opened before it begins.
    """
    own_pid = os.getpid()
    answer_reader, answer_writer = os.pipe()
    go_reader, go_writer = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(go_writer)
            _prepare_process(spec, library, own_pid, answer_writer, go_reader)
            _confine_process(spec, library, answer_writer)
            os.execve(spec["argv"][0], spec["argv"], spec["env"])
        except OSError as error:
            os.write(answer_writer, f"failed {error.errno}".encode())
        finally:
            os._exit(127)
    os.close(answer_writer)
    os.close(go_reader)
    may_begin = False
    try:
        os.read(answer_reader, len(READY_BYTE))
        _pin_process_files(spec, pid)
        _send_report(report, f"started {pid}")
        may_begin = os.read(control, len(GO_BYTE)) == GO_BYTE
    finally:
        if not may_begin:
            _kill(pid, SIGKILL)
            os.waitpid(pid, 0)
    if not may_begin:
        return None
    _close_streams(null)
    os.write(go_writer, GO_BYTE)
    failure = os.read(answer_reader, 64)
    if not failure:
        return pid
    os.waitpid(pid, 0)
    _send_report(report, failure.decode())
    return None


def _pin_process_files(spec: dict[str, Any], pid: int) -> None:
    """Keep the allowed /proc entries open. The kernel drops a rule when it evicts the inode."""
    if spec["rules"]:
        for name in spec["rules"]["process_files"]:
            try:
                path = f"/proc/{pid if name == 'self' else name}"
                os.open(path, os.O_PATH | os.O_CLOEXEC)
            except FileNotFoundError:
                continue


def _prepare_process(
    spec: dict[str, Any], library: ctypes.CDLL, parent: int, answer_writer: int, go_reader: int
) -> None:
    os.setsid()
    if _LINUX:
        library.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    os.write(answer_writer, READY_BYTE)
    if os.read(go_reader, len(GO_BYTE)) != GO_BYTE or os.getppid() != parent:
        os._exit(127)
    if _LINUX:
        prefer_oom_kill(library)
    library.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    for ignored_signal in (SIGPIPE, SIGXFSZ):
        library.signal(ignored_signal, None)
    for resource_kind, requested in spec["limits"]:
        _, hard = resource.getrlimit(resource_kind)
        limit = requested if hard == resource.RLIM_INFINITY else min(requested, hard)
        resource.setrlimit(resource_kind, (limit, limit))
    os.umask(0o077)
    os.chdir(spec["cwd"])


def _confine_process(spec: dict[str, Any], library: ctypes.CDLL, answer_writer: int) -> None:
    if not spec["rules"]:
        return
    try:
        confine(library, spec["rules"])
    except OSError as error:
        os.write(answer_writer, f"unconfined {error.errno}".encode())
        os._exit(127)


def _close_streams(null: int) -> None:
    # An open copy here would keep the pipe alive after the script closes it.
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _wait_for_end(script: Script, control: int, monitor: ResourceMonitor) -> str:
    """Wait for the end of the script or the request to kill it. Return the exceeded limit or ""."""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    timeout_ms = (
        MEASURE_SECONDS * 1000 if _register_process(poller, script.pid) else POLL_MILLISECONDS
    )
    while not script.has_ended():
        events = poller.poll(timeout_ms)
        limit = monitor.exceeded_limit()
        if limit:
            return limit
        if not any(descriptor == control for descriptor, _ in events):
            continue
        if os.read(control, 1) != b"T":
            return ""
        script.signal(SIGTERM)
    return ""


def _register_process(poller: "select.poll", pid: int) -> bool:
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


def _send_report(report: int, line: str) -> None:
    try:
        os.write(report, line.encode() + b"\n")
    except BrokenPipeError:
        # The node is dead. Go on, to end the script.
        return
