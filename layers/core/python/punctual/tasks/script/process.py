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
from punctual.tasks.script.command import Command, Ended, Patience, Sink
from punctual.tasks.script.open_files import beginning, is_full, until_free
from punctual.tasks.script.process_group import Group, group_of, kill_group
from punctual.tasks.script.sandbox import interpreter
from punctual.tasks.script.survivors import RUN_ID, Children, end_survivors
from punctual.tasks.script.usage import descendants

POLL_SECONDS = 0.1
GIVE_UP_SECONDS = 5.0
READ_BYTES = 64 * 1024
# A pipe without writers holds at most this. More bytes come from a live writer.
DRAIN_BYTES = 1024 * 1024
# Python caches compiled modules, but compiles a program on the command line at each start.
LAUNCH = (
    f"import sys; sys.path.insert(0, {str(Path(launcher.__file__).parents[3])!r}); "
    "import time; from punctual.tasks.script.launcher import main; main(time.monotonic)"
)


def run_process(
    command: Command,
    sink: Sink,
    patience: Patience,
    on_started: Callable[[Group], None],
    children: Children,
    cgroup: Cgroup | None = None,
) -> Ended:
    """Run the command and return its result. All its processes are dead on return or raise.

    Raise `NotBegun` if no file could be opened before the command began. All files that the command
    needs are open when it begins.
    """
    with beginning():
        process = _Process(command, sink, patience, on_started, children, cgroup)
    try:
        return process.run()
    finally:
        process.close()


@dataclass
class _Process:
    command: Command
    sink: Sink
    patience: Patience
    on_started: Callable[[Group], None]
    children: Children
    cgroup: Cgroup | None
    ended: Ended = field(default_factory=Ended)
    group: Group | None = None
    kill_at: float | None = None
    give_up_at: float | None = None
    unread_report: bytes = b""
    is_told: bool = False  # the launcher has received the command
    may_begin: bool = False

    def __post_init__(self) -> None:
        self.unsent = memoryview(self.command.stdin)
        with ExitStack() as ours, ExitStack() as launchers:
            self.selector = selectors.DefaultSelector()
            ours.callback(self.selector.close)
            control, self.control = os.pipe()
            launchers.callback(os.close, control)
            ours.callback(os.close, self.control)
            self.report, report = os.pipe()
            launchers.callback(os.close, report)
            ours.callback(os.close, self.report)
            self.popen = self.children.start(partial(self._launch, control, report))
            ours.pop_all()

    def _launch(self, control: int, report: int) -> "subprocess.Popen[bytes]":
        launch = (interpreter(), "-I", "-S", "-c", LAUNCH, str(control), str(report))
        return subprocess.Popen(
            [*self.command.walls.wrapper, *launch],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env={},
            pass_fds=(control, report),
            start_new_session=True,
        )

    def run(self) -> Ended:
        deadline = self.patience.monotonic() + self.patience.seconds
        self._register()
        while self.report in self.selector.get_map():
            self._take(POLL_SECONDS)
            if not self._press(deadline):
                break
        self._drain()
        until_free(self._ask_cgroup)
        return self.ended

    def close(self) -> None:
        # The launcher kills all processes and exits when the control pipe closes.
        os.close(self.control)
        try:
            self.popen.wait(GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_from_here()
        self.children.ended(self.popen.pid)
        if self.popen.returncode != 0 and self.may_begin:
            until_free(self._end_what_is_left)
        self.selector.close()
        os.close(self.report)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()

    def _end_what_is_left(self) -> None:
        """Kill what a dead launcher could not kill."""
        if self.group is not None:
            kill_group(self.group.pgid)
        end_survivors({self.command.env[RUN_ID]})
        self.children.end_orphans()

    def _begin(self) -> None:
        """Send the command to the launcher, after the launcher and its wrapper enter the cgroup."""
        if self.cgroup is not None:
            with beginning():
                for pid in (self.popen.pid, *descendants(self.popen.pid, sys.maxsize)):
                    self.cgroup.enter(pid)
        self.is_told = True
        with suppress(BrokenPipeError):  # the launcher was killed, as its exit code shows
            self._send_spec()

    def _send_spec(self) -> None:
        command = self.command
        most = command.most
        spec = marshal.dumps(
            {
                "argv": list(command.argv),
                "env": dict(command.env),
                "cwd": str(command.cwd),
                "limits": [list(limit) for limit in command.limits],
                "folder": str(command.folder),
                "most": {
                    "memory": most.memory_bytes,
                    "disk": most.disk_bytes,
                    "processes": most.processes,
                },
                "rules": command.walls.rules,
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
        register(self.report, selectors.EVENT_READ, self._heard)
        register(stdin.fileno(), selectors.EVENT_WRITE)

    def _take(self, seconds: float) -> None:
        for key, _ in self.selector.select(seconds):
            if key.events == selectors.EVENT_WRITE:
                self._feed(key.fd)
            else:
                self._read(key.fd, key.data)

    def _feed(self, stdin: int) -> None:
        try:
            self.unsent = self.unsent[os.write(stdin, self.unsent[:READ_BYTES]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            # The script did not read all of its payload.
            self.unsent = self.unsent[:0]
        if not self.unsent:
            self.selector.unregister(stdin)
            self.stdin.close()

    def _read(self, source: int, take: Callable[[bytes], None]) -> int:
        """Read once and return the number of bytes. Unregister a source that has ended."""
        try:
            data = os.read(source, READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            take(data)
        else:
            self.selector.unregister(source)
        return len(data)

    def _heard(self, data: bytes) -> None:
        *lines, self.unread_report = (self.unread_report + data).split(b"\n")
        for line in lines:
            word, _, number = line.decode().partition(" ")
            if word == "ready":
                self._begin()
            elif word == "started":
                # In a PID namespace, the reported number is not valid outside.
                self._let_begin(self.popen.pid if self.command.walls.wrapper else int(number))
            elif word == "limit":
                self.ended.limit = number
            elif word == "failed":
                self.ended.start_error = int(number)
            elif word == "unconfined":
                self.ended.sandbox_error = int(number)
            elif word == "exit":
                self.ended.code = int(number)
            else:
                self.ended.signal = int(number)

    def _let_begin(self, leader: int) -> None:
        """Record the group of the script, then let the script begin."""
        with beginning():
            self.group = group_of(leader)
            self.on_started(self.group)
        self.ended.started = True
        self.may_begin = True
        self._order(launcher.GO)

    def _press(self, deadline: float) -> bool:
        """Ask the script to end, then kill it, then give up. Return False to stop waiting."""
        now = self.patience.monotonic()
        if self._has_passed_a_limit() and self.kill_at is None:
            self.kill_at = now
        if self.give_up_at is not None:
            return now < self.give_up_at
        if self.kill_at is None:
            self.ended.stopped = self.patience.stop.wanted()
            self.ended.timed_out = not self.ended.stopped and now >= deadline
            if self.ended.stopped or self.ended.timed_out:
                if not self.is_told:
                    return False
                self._order(b"T")
                self.kill_at = now + self._grace()
        if self.patience.stop.wanted() == "LOST" and self.kill_at is not None:
            self.kill_at = now
        if self.kill_at is not None and now >= self.kill_at:
            self._order(b"K")
            self.give_up_at = now + GIVE_UP_SECONDS
        return True

    def _has_passed_a_limit(self) -> bool:
        try:
            return self._ask_cgroup()
        except OSError as error:
            if not is_full(error):
                raise
            return False  # a later check repeats this

    def _ask_cgroup(self) -> bool:
        if self.cgroup is not None and not self.ended.limit:
            self.ended.limit = self.cgroup.passed()
        return bool(self.ended.limit)

    def _grace(self) -> float:
        return 0.0 if self.ended.stopped == "LOST" else self.patience.grace_seconds

    def _order(self, order: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self.control, order)

    def _drain(self) -> None:
        """Read the data in the pipes without waiting for their end. Others may keep them open."""
        for key in list(self.selector.get_map().values()):
            left = DRAIN_BYTES
            while key.events == selectors.EVENT_READ and key.fd in self.selector.get_map():
                got = self._read(key.fd, key.data)
                left -= got
                if not got or left <= 0:
                    break

    def _kill_from_here(self) -> None:
        if self.group is not None:
            kill_group(self.group.pgid)
        self.popen.kill()
        self.popen.wait()
