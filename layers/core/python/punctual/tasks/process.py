"""Runs one command in a session of its own, to its end or to the end of our patience."""

import errno
import marshal
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from punctual.tasks import launcher
from punctual.tasks.contract import Stop
from punctual.tasks.group import Group, group_of, kill_group

POLL_SECONDS = 0.1
GIVE_UP_SECONDS = 5.0
READ_BYTES = 64 * 1024
# What a pipe may still hold when all its writers are gone; more comes only from one that is not.
DRAIN_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Command:
    """What to execute; `limits` are pairs of a resource's number and its bound."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    limits: tuple[tuple[int, int], ...]
    stdin: bytes


class Sink(Protocol):
    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...


class Groups(Protocol):
    """Told of each group that lives, so that a successor can find what a crash left."""

    def on_started(self, run_id: str, group: Group) -> None: ...

    def on_ended(self, run_id: str, group: Group) -> None: ...


@dataclass(frozen=True)
class Patience:
    """How long a command may take, and how long to leave it after asking it to end."""

    seconds: float
    grace_seconds: float
    stop: Stop
    monotonic: Callable[[], float]


@dataclass
class Ended:
    """How a command ended; all empty if what watched over it was killed."""

    code: int | None = None
    signal: int | None = None
    start_error: int | None = None
    timed_out: bool = False
    stopped: str = ""


def run_process(
    command: Command,
    sink: Sink,
    patience: Patience,
    on_started: Callable[[Group], None],
) -> Ended:
    """Returns once nothing of the command is alive; also when it raises."""
    process = _Process(command, sink, patience, on_started)
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
    ended: Ended = field(default_factory=Ended)
    group: Group | None = None
    kill_at: float | None = None
    give_up_at: float | None = None
    unread_report: bytes = b""

    def __post_init__(self) -> None:
        control, self.control = os.pipe()
        self.report, report = os.pipe()
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-I", "-S", launcher.__file__, str(control), str(report)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env={},
                pass_fds=(control, report),
                start_new_session=True,
            )
        except BaseException:
            os.close(self.control)
            os.close(self.report)
            raise
        finally:
            os.close(control)
            os.close(report)
        self.unsent = memoryview(self.command.stdin)
        self.selector = selectors.DefaultSelector()

    def run(self) -> Ended:
        deadline = self.patience.monotonic() + self.patience.seconds
        self._send_spec()
        self._register()
        while self.report in self.selector.get_map():
            self._take(POLL_SECONDS)
            if not self._press(deadline):
                break
        self._drain()
        return self.ended

    def close(self) -> None:
        # The end of the control pipe tells the launcher to kill all; then it ends as well.
        os.close(self.control)
        try:
            self.popen.wait(GIVE_UP_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill_from_here()
        if self.group is not None and self.popen.returncode != 0:
            kill_group(self.group.pgid)
        self.selector.close()
        os.close(self.report)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()

    def _send_spec(self) -> None:
        command = self.command
        spec = marshal.dumps(
            {
                "argv": list(command.argv),
                "env": dict(command.env),
                "cwd": str(command.cwd),
                "limits": [list(limit) for limit in command.limits],
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
            # The script does not want its payload, or not all of it.
            self.unsent = self.unsent[:0]
        if not self.unsent:
            self.selector.unregister(stdin)
            self.stdin.close()

    def _read(self, source: int, take: Callable[[bytes], None]) -> int:
        """How many bytes were there; a source that has ended is looked at no more."""
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
            if word == "started":
                self.group = group_of(int(number))
                self.on_started(self.group)
            elif word == "failed":
                self.ended.start_error = int(number)
            elif word == "exit":
                self.ended.code = int(number)
            else:
                self.ended.signal = int(number)

    def _press(self, deadline: float) -> bool:
        """Ask, then insist, then give up; whether to go on waiting."""
        now = self.patience.monotonic()
        if self.give_up_at is not None:
            return now < self.give_up_at
        if self.kill_at is None:
            self.ended.stopped = self.patience.stop.wanted()
            self.ended.timed_out = not self.ended.stopped and now >= deadline
            if self.ended.stopped or self.ended.timed_out:
                self._order(b"T")
                self.kill_at = now + self._grace()
        if self.patience.stop.wanted() == "LOST" and self.kill_at is not None:
            self.kill_at = now
        if self.kill_at is not None and now >= self.kill_at:
            self._order(b"K")
            self.give_up_at = now + GIVE_UP_SECONDS
        return True

    def _grace(self) -> float:
        return 0.0 if self.ended.stopped == "LOST" else self.patience.grace_seconds

    def _order(self, order: bytes) -> None:
        with suppress(BrokenPipeError):
            os.write(self.control, order)

    def _drain(self) -> None:
        """Read what the pipes hold without waiting for their end, which a stranger may delay."""
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


def signal_name(number: int) -> str:
    """
    >>> signal_name(9)
    'SIGKILL'
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def may_pass(start_error: int) -> bool:
    """Whether a command that could not be started might be, a little later."""
    return start_error in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
