"""What a script's process is given, and how it can end."""

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
    """What to execute; `limits` are pairs of a resource's number and its bound.

    The whole run may use `most`, its files in `folder` included.
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
    """How a command ended; only `started` if what watched over it was killed."""

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
    """Whether a command that could not be started might be, a little later."""
    return start_error in (errno.EAGAIN, errno.ENOMEM, *FULL)
