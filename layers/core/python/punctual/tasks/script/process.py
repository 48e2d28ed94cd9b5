"""Run one command in its own session until it ends or reaches a timeout."""

import marshal
import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from punctual.tasks.script import launcher
from punctual.tasks.script.cgroup import Cgroup
from punctual.tasks.script.command import Command, CommandResult, OutputSink, TimeLimits
from punctual.tasks.script.open_files import (
    is_file_limit,
    not_begun_at_file_limit,
    retry_until_free,
)
from punctual.tasks.script.process_group import ProcessGroup, group_of, kill_group
from punctual.tasks.script.sandbox import interpreter
from punctual.tasks.script.survivors import RUN_ID_VARIABLE, Children, kill_survivors
from punctual.tasks.script.usage import descendants

POLL_SECONDS = 0.1
LAUNCHER_EXIT_SECONDS = 5.0
PIPE_READ_BYTES = 64 * 1024
# A pipe without writers holds at most this. More bytes come from a live writer.
DRAIN_BYTES = 1024 * 1024
# Python caches compiled modules, but compiles a program on the command line at each start.
LAUNCHER_CODE = (
    f"import sys; sys.path.insert(0, {str(Path(launcher.__file__).parents[3])!r}); "
    "import time; from punctual.tasks.script.launcher import main; main(time.monotonic)"
)


def run_process(
    command: Command,
    sink: OutputSink,
    time_limits: TimeLimits,
    on_started: Callable[[ProcessGroup], None],
    children: Children,
    cgroup: Cgroup | None = None,
) -> CommandResult:
    """Run the command and return its result. All its processes are dead on return or raise.

    Raise `NotBegun` if no file could be opened before the command began. All files that the command
    needs are open when it begins.
    """
    with not_begun_at_file_limit():
        process = _Process(command, sink, time_limits, on_started, children, cgroup)
    try:
        return process.run()
    finally:
        process.close()


@dataclass
class _Process:
    command: Command
    sink: OutputSink
    time_limits: TimeLimits
    on_started: Callable[[ProcessGroup], None]
    children: Children
    cgroup: Cgroup | None
    result: CommandResult = field(default_factory=CommandResult)
    group: ProcessGroup | None = None
    kill_at: float | None = None
    give_up_at: float | None = None
    unread_report: bytes = b""
    is_command_sent: bool = False  # the launcher has received the command
    may_script_begin: bool = False

    def __post_init__(self) -> None:
        self.unsent_stdin = memoryview(self.command.stdin)
        with ExitStack() as own_ends, ExitStack() as launcher_ends:
            self.selector = selectors.DefaultSelector()
            own_ends.callback(self.selector.close)
            control, self.control = os.pipe()
            launcher_ends.callback(os.close, control)
            own_ends.callback(os.close, self.control)
            self.report, report = os.pipe()
            launcher_ends.callback(os.close, report)
            own_ends.callback(os.close, self.report)
            self.popen = self.children.start(partial(self._launch, control, report))
            own_ends.pop_all()

    def _launch(self, control: int, report: int) -> "subprocess.Popen[bytes]":
        launch = (interpreter(), "-I", "-S", "-c", LAUNCHER_CODE, str(control), str(report))
        return subprocess.Popen(
            [*self.command.sandbox.wrapper, *launch],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=dict(self.command.launcher_env),
            pass_fds=(control, report),
            start_new_session=True,
        )

    def run(self) -> CommandResult:
        deadline = self.time_limits.monotonic() + self.time_limits.seconds
        self._register()
        while self.report in self.selector.get_map():
            self._handle_events(POLL_SECONDS)
            if not self._enforce_limits(deadline):
                break
        self._drain()
        retry_until_free(self._check_cgroup)
        return self.result

    def close(self) -> None:
        # The launcher kills all processes and exits when the control pipe closes.
        os.close(self.control)
        try:
            self.popen.wait(LAUNCHER_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_directly()
        self.children.forget(self.popen.pid)
        if self.popen.returncode != 0 and self.may_script_begin:
            retry_until_free(self._kill_survivors)
        self.selector.close()
        os.close(self.report)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()

    def _kill_survivors(self) -> None:
        """Kill the processes that a dead launcher could not kill."""
        if self.group is not None:
            kill_group(self.group.pgid)
        kill_survivors({self.command.env[RUN_ID_VARIABLE]})
        self.children.kill_orphans()

    def _send_command(self) -> None:
        """Send the command to the launcher, after the launcher and its wrapper enter the cgroup."""
        if self.cgroup is not None:
            with not_begun_at_file_limit():
                for pid in (self.popen.pid, *descendants(self.popen.pid, sys.maxsize)):
                    self.cgroup.enter(pid)
        self.is_command_sent = True
        with suppress(BrokenPipeError):  # the launcher was killed, as its exit code shows
            self._send_spec()

    def _send_spec(self) -> None:
        command = self.command
        run_limits = command.run_limits
        spec = marshal.dumps(
            {
                "argv": list(command.argv),
                "env": dict(command.env),
                "cwd": str(command.cwd),
                "limits": [list(limit) for limit in command.kernel_limits],
                "folder": str(command.folder),
                "most": {
                    "memory": run_limits.memory_bytes,
                    "disk": run_limits.disk_bytes,
                    "processes": run_limits.processes,
                },
                "rules": command.sandbox.rules,
            }
        )
        data = memoryview(len(spec).to_bytes(launcher.LENGTH_BYTES, "big") + spec)
        while data:
            data = data[os.write(self.control, data) :]

    def _register(self) -> None:
        stdin, stdout, stderr = self.popen.stdin, self.popen.stdout, self.popen.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        for readable in (stdout.fileno(), stderr.fileno(), self.report):
            os.set_blocking(readable, False)
        os.set_blocking(stdin.fileno(), False)
        self.stdin = stdin
        register = self.selector.register
        register(stdout.fileno(), selectors.EVENT_READ, self.sink.stdout)
        register(stderr.fileno(), selectors.EVENT_READ, self.sink.stderr)
        register(self.report, selectors.EVENT_READ, self._handle_report)
        register(stdin.fileno(), selectors.EVENT_WRITE)

    def _handle_events(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            if key.events == selectors.EVENT_WRITE:
                self._feed(key.fd)
            else:
                self._read(key.fd, key.data)

    def _feed(self, stdin: int) -> None:
        try:
            self.unsent_stdin = self.unsent_stdin[
                os.write(stdin, self.unsent_stdin[:PIPE_READ_BYTES]) :
            ]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The script did not read all of its payload.
            self.unsent_stdin = self.unsent_stdin[:0]
        if not self.unsent_stdin:
            self.selector.unregister(stdin)
            self.stdin.close()

    def _read(self, source: int, handle: Callable[[bytes], None]) -> int:
        """Read once and return the number of bytes. Unregister a source that has ended."""
        try:
            data = os.read(source, PIPE_READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            handle(data)
        else:
            self.selector.unregister(source)
        return len(data)

    def _handle_report(self, data: bytes) -> None:
        *lines, self.unread_report = (self.unread_report + data).split(b"\n")
        for line in lines:
            keyword, _, value = line.decode().partition(" ")
            if keyword == "ready":
                self._send_command()
            elif keyword == "started":
                # In a PID namespace, the reported number is not valid outside.
                self._start_script(self.popen.pid if self.command.sandbox.wrapper else int(value))
            elif keyword == "limit":
                self.result.exceeded_limit = value
            elif keyword == "failed":
                self.result.start_error = int(value)
            elif keyword == "unconfined":
                self.result.sandbox_error = int(value)
            elif keyword == "exit":
                self.result.exit_code = int(value)
            else:
                self.result.signal = int(value)

    def _start_script(self, leader: int) -> None:
        """Record the group of the script, then let the script begin."""
        with not_begun_at_file_limit():
            self.group = group_of(leader)
            self.on_started(self.group)
        self.result.has_started = True
        self.may_script_begin = True
        self._send_control(launcher.GO_BYTE)

    def _enforce_limits(self, deadline: float) -> bool:
        """Ask the script to end, then kill it, then give up. Return False to stop waiting."""
        steady = self.time_limits.monotonic()
        if self._exceeds_limit() and self.kill_at is None:
            self.kill_at = steady
        if self.give_up_at is not None:
            return steady < self.give_up_at
        if self.kill_at is None:
            self.result.stop_reason = self.time_limits.stop.reason()
            self.result.timed_out = not self.result.stop_reason and steady >= deadline
            if self.result.stop_reason or self.result.timed_out:
                if not self.is_command_sent:
                    return False
                self._send_control(b"T")
                self.kill_at = steady + self._grace_seconds()
        if self.time_limits.stop.reason() == "LOST" and self.kill_at is not None:
            self.kill_at = steady
        if self.kill_at is not None and steady >= self.kill_at:
            self._send_control(b"K")
            self.give_up_at = steady + LAUNCHER_EXIT_SECONDS
        return True

    def _exceeds_limit(self) -> bool:
        try:
            return self._check_cgroup()
        except OSError as error:
            if not is_file_limit(error):
                raise
            return False  # a later check repeats this

    def _check_cgroup(self) -> bool:
        if self.cgroup is not None and not self.result.exceeded_limit:
            self.result.exceeded_limit = self.cgroup.exceeded_limit()
        return bool(self.result.exceeded_limit)

    def _grace_seconds(self) -> float:
        return 0.0 if self.result.stop_reason == "LOST" else self.time_limits.grace_seconds

    def _send_control(self, message: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self.control, message)

    def _drain(self) -> None:
        """Read the data in the pipes without waiting for their end. Others may keep them open."""
        for key in list(self.selector.get_map().values()):
            remaining = DRAIN_BYTES
            while key.events == selectors.EVENT_READ and key.fd in self.selector.get_map():
                byte_count = self._read(key.fd, key.data)
                remaining -= byte_count
                if not byte_count or remaining <= 0:
                    break

    def _kill_directly(self) -> None:
        if self.group is not None:
            kill_group(self.group.pgid)
        self.popen.kill()
        self.popen.wait()
