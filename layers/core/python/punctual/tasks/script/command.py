"""The input and the result of a script's process."""

import errno
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from punctual.tasks.contract import Stop
from punctual.tasks.limits import RunLimits
from punctual.tasks.script.open_files import FULL
from punctual.tasks.script.process_group import Group
from punctual.tasks.script.sandbox import Walls


@dataclass(frozen=True)
class Command:
    """A command to execute. `limits` holds pairs of a resource number and its limit.

    `most` limits the whole run, including its files in `folder`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    limits: tuple[tuple[int, int], ...]
    stdin: bytes
    folder: Path
    most: RunLimits
    walls: Walls


class Sink(Protocol):
    def stdout(self, data: bytes) -> None: ...

    def stderr(self, data: bytes) -> None: ...


class Groups(Protocol):
    """Records live process groups, so that the next node can kill them after a crash."""

    def on_started(self, run_id: str, group: Group) -> None: ...

    def on_ended(self, run_id: str, group: Group) -> None: ...


@dataclass(frozen=True)
class Patience:
    """The timeout of a command, and the grace period between SIGTERM and SIGKILL."""

    seconds: float
    grace_seconds: float
    stop: Stop
    monotonic: Callable[[], float]


@dataclass
class Ended:
    """The result of a command. If its launcher was killed, only `started` is set."""

    started: bool = False
    code: int | None = None
    signal: int | None = None
    start_error: int | None = None
    sandbox_error: int | None = None
    limit: str = ""
    timed_out: bool = False
    stopped: str = ""


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
    """Return True if a later start of the command may succeed."""
    return start_error in (errno.EAGAIN, errno.ENOMEM, *FULL)
