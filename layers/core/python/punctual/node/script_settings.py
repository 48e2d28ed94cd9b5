"""Settings of scripts on the node, and their runner.

The settings are the sandbox and additional paths.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from punctual.domain.errors import PunctualError
from punctual.engine.ports.log import Log
from punctual.node import clock
from punctual.node.files.durable import make_folder
from punctual.tasks.limits import SCRIPT_MEMORY_VARIABLE
from punctual.tasks.script import cgroup
from punctual.tasks.script.artifact import ArtifactSource
from punctual.tasks.script.command import GroupRecorder
from punctual.tasks.script.confinement import hide_process
from punctual.tasks.script.landlock import c_library
from punctual.tasks.script.sandbox import (
    SANDBOX_CHOICES,
    SCRIPT_PATHS_VARIABLE,
    NoSandboxError,
    OpenPath,
    Sandbox,
    choose_sandbox,
    interpreter,
)
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.system_paths import contains
from punctual.tasks.script.task import ScriptTask

SANDBOX_VARIABLE = "PUNCTUAL_SANDBOX"
MIN_SCRIPT_MEMORY_MB = 64  # the least that a script may ask for
_WRITABLE_BY_MODE = {"r": False, "rw": True}


class WrongSettingError(PunctualError):
    """A setting that the node cannot start with. The message is the one line to show."""


class ScriptSettings(NamedTuple):
    """The sandbox to use, the additional paths, and the megabytes of all scripts together.

    None stands for half of the machine's memory.
    """

    sandbox_name: str = "auto"
    open_paths: tuple[OpenPath, ...] = ()
    memory_mb: int | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str], data_folder: Path) -> "ScriptSettings":
        sandbox_name = env.get(SANDBOX_VARIABLE) or "auto"
        if sandbox_name not in SANDBOX_CHOICES:
            names = ", ".join(SANDBOX_CHOICES)
            raise WrongSettingError(
                f"{SANDBOX_VARIABLE} must be one of {names}; got {sandbox_name!r}."
            )
        entries = [entry.strip() for entry in (env.get(SCRIPT_PATHS_VARIABLE) or "").split(",")]
        return cls(
            sandbox_name,
            tuple(_open_path(entry, data_folder) for entry in entries if entry),
            _memory_mb(env.get(SCRIPT_MEMORY_VARIABLE) or ""),
        )

    def choose_sandbox(self, data_folder: Path, shared: bool, log: Log) -> Sandbox:
        """Return the sandbox of this machine. The data folder must exist."""
        try:
            sandbox = choose_sandbox(
                self.sandbox_name,
                data_folder.resolve(),
                is_shared=shared,
                open_paths=self.open_paths,
                path=search_path(),
            )
        except NoSandboxError as error:
            raise WrongSettingError(
                f"{SANDBOX_VARIABLE}={self.sandbox_name} is not available: {error}. "
                "Set it to auto or to another sandbox."
            ) from error
        if sandbox.name == "none" and self.sandbox_name == "auto":
            advice = f"install bubblewrap, or set {SANDBOX_VARIABLE}=none to accept it"
            log("scripts_have_no_sandbox", level="WARNING", advice=advice)
        return sandbox


def script_task(
    folder: Path,
    groups: GroupRecorder,
    sandbox: Sandbox,
    artifacts: ArtifactSource | None = None,
    *,
    total_memory_mb: int = sys.maxsize,
) -> ScriptTask:
    """Return the task that runs scripts on this node.

    It uses control groups if the node may create them.
    """
    work = folder / "work"
    make_folder(work)
    cgroups = cgroup.find_cgroups()
    if cgroups is not None:
        cgroups.kill_leftovers()
    return ScriptTask(
        work,
        sandbox,
        monotonic=clock.monotonic,
        path=search_path(),
        groups=groups,
        children=Children(adopt=True),
        cgroups=cgroups,
        artifacts=artifacts,
        total_memory_mb=total_memory_mb,
    )


def hide_this_process() -> None:
    """Close the node's memory, descriptors and environment to other processes of its user."""
    if sys.platform == "linux":
        hide_process(c_library())


def search_path() -> str:
    """Return where scripts look for programs: the node's path without its virtual environment."""
    own_folder, base_folder = Path(sys.executable).parent, Path(interpreter()).parent
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(
        str(base_folder) if Path(folder) == own_folder else folder for folder in folders
    )


def _memory_mb(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < MIN_SCRIPT_MEMORY_MB:
        raise WrongSettingError(
            f"{SCRIPT_MEMORY_VARIABLE} must be a whole number of megabytes, at least "
            f"{MIN_SCRIPT_MEMORY_MB}; got {text!r}."
        )
    return int(text)


def _open_path(entry: str, data_folder: Path) -> OpenPath:
    """Return the path that an entry opens, with links resolved. A link could be changed later."""
    name, colon, mode = entry.rpartition(":")
    path = Path(name)
    if not colon or mode not in _WRITABLE_BY_MODE or not path.is_absolute():
        raise WrongSettingError(
            f"{SCRIPT_PATHS_VARIABLE} is a list of absolute paths, each with :r or :rw, like "
            f"/srv/backup:rw,/etc/app:r; got {entry!r}."
        )
    try:
        path = path.resolve(strict=True)
    except OSError as error:
        raise WrongSettingError(
            f"{SCRIPT_PATHS_VARIABLE}: {name} cannot be used ({error.strerror})."
        ) from error
    if contains(path, data_folder) or contains(data_folder, path):
        raise WrongSettingError(
            f"{SCRIPT_PATHS_VARIABLE} must not name the data folder: {name} contains "
            f"{data_folder}, or is inside it."
        )
    return OpenPath(path, _WRITABLE_BY_MODE[mode])
