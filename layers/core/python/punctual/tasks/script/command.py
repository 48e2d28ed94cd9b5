"""The input and the result of a script's process."""

import errno
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from punctual.tasks.contract import StopRequest
from punctual.tasks.limits import RunLimits
from punctual.tasks.script.open_files import FILE_LIMIT_ERRORS
from punctual.tasks.script.process_group import ProcessGroup
from punctual.tasks.script.sandbox import RunSandbox


@dataclass(frozen=True)
class Command:
    """A command to execute. `kernel_limits` holds pairs of a resource number and its limit.

    `run_limits` limits the whole run, including its files in `folder`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    kernel_limits: tuple[tuple[int, int], ...]
    stdin: bytes
    folder: Path
    run_limits: RunLimits
    sandbox: RunSandbox
    launcher_env: Mapping[str, str] = field(default_factory=dict)


class OutputSink(Protocol):
    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...


class GroupRecorder(Protocol):
    """Records live process groups, so that the next node can kill them after a crash."""

    def on_started(self, run_id: str, group: ProcessGroup) -> None: ...

    def on_ended(self, run_id: str, group: ProcessGroup) -> None: ...


@dataclass(frozen=True)
class TimeLimits:
    """The timeout of a command, and the grace period between SIGTERM and SIGKILL."""

    seconds: float
    grace_seconds: float
    stop: StopRequest
    monotonic: Callable[[], float]


@dataclass
class CommandResult:
    """The result of a command. If its launcher was killed, only `has_started` is set."""

    has_started: bool = False
    exit_code: int | None = None
    signal: int | None = None
    start_error: int | None = None
    sandbox_error: int | None = None
    exceeded_limit: str = ""
    timed_out: bool = False
    stop_reason: str = ""


def signal_name(number: int) -> str:
    """Return the name of a signal.

    >>> signal_name(9)
    'SIGKILL'
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def is_retryable_start_error(start_error: int) -> bool:
    """Return True if a later start of the command may succeed."""
    return start_error in (errno.EAGAIN, errno.ENOMEM, *FILE_LIMIT_ERRORS)
