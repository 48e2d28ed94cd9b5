"""The process that carries out runs one after another, and what a run may leave behind."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from punctual.runner.http_client import HttpClient
from punctual.tasks.limits import MAX_RUN_DISK_BYTES, RUNNER_MEMORY_MB, RunLimits
from punctual.tasks.script.run_folder import clear_folder
from punctual.tasks.script.sandbox import Sandbox
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.usage import descendants

MIN_RUN_MEMORY_MB = 32
DISK_RESERVE_BYTES = 16 * 1024 * 1024  # so that the limit ends a run before the disk is full
MAX_COUNTED_PROCESSES = 10_000


@dataclass(frozen=True)
class RunnerClock:
    """The time, waiting, and ids: arguments of everything that runs here."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    wait: Callable[[float], object]
    new_id: Callable[[], str]


@dataclass
class RunnerEnvironment:
    """The folders, the sandbox and the memory for runs in this process.

    `cleared_folder` is emptied after each run. Nothing but runs may use it. `memory_mb` is all
    memory of this environment, or None if it is unknown. `command_line` and `variables` are those
    of a container's image.
    """

    runs_folder: Path
    cleared_folder: Path
    sandbox: Sandbox
    children: Children
    http: HttpClient
    clock: RunnerClock
    program_path: str
    library_path: str = ""
    memory_mb: int | None = None
    command_line: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    is_retired: bool = field(default=False, init=False)
    _kept_names: frozenset[str] = field(default=frozenset(), init=False)
    _kept_processes: frozenset[int] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        # What cannot be removed at the start belongs to the system.
        self._kept_names = frozenset(clear_folder(self.cleared_folder))
        self.runs_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._kept_processes = frozenset(_own_descendants())

    def limits(self) -> RunLimits:
        """Return the limits of a run here. The disk is often smaller than on the node."""
        self.runs_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(self.runs_folder).free - DISK_RESERVE_BYTES
        return RunLimits(disk_bytes=max(min(MAX_RUN_DISK_BYTES, free_bytes), DISK_RESERVE_BYTES))

    def allowed_memory_mb(self, requested_mb: int) -> int:
        """Return the memory that a script may use here, at most the requested."""
        if self.memory_mb is None:
            return requested_mb
        return max(min(requested_mb, self.memory_mb - RUNNER_MEMORY_MB), MIN_RUN_MEMORY_MB)

    def clean_up(self) -> bool:
        """Kill and remove all that a run left. Return False if something is still there."""
        self.children.kill_orphans()
        leftover_names = set(clear_folder(self.cleared_folder)) - self._kept_names
        leftover_processes = _own_descendants() - self._kept_processes
        return not leftover_names and not leftover_processes


def _own_descendants() -> set[int]:
    return set(descendants(os.getpid(), MAX_COUNTED_PROCESSES))
