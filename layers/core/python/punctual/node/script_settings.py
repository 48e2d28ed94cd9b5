"""Settings of scripts on the node, and their runner.

The settings are the sandbox and additional paths.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from punctual.domain.errors import PunctualError
from punctual.node import clock
from punctual.node.files.durable import make_folder
from punctual.tasks.script import cgroup
from punctual.tasks.script.command import Groups
from punctual.tasks.script.confinement import hide
from punctual.tasks.script.landlock import c_library
from punctual.tasks.script.sandbox import (
    SETTING,
    WANTED,
    NoSandboxError,
    OpenPath,
    Sandbox,
    choose,
    interpreter,
)
from punctual.tasks.script.survivors import Children
from punctual.tasks.script.system_paths import holds
from punctual.tasks.script.task import ScriptTask

SANDBOX = "PUNCTUAL_SANDBOX"
_MODES = {"r": False, "rw": True}


class WrongSettingError(PunctualError):
    """A setting that the node cannot start with. The message is the one line to show."""


class ScriptSettings(NamedTuple):
    """`wanted` is the sandbox to use, and `opened` are the additional paths."""

    wanted: str = "auto"
    opened: tuple[OpenPath, ...] = ()

    @classmethod
    def from_env(cls, env: Mapping[str, str], data: Path) -> "ScriptSettings":
        wanted = env.get(SANDBOX) or "auto"
        if wanted not in WANTED:
            names = ", ".join(WANTED)
            raise WrongSettingError(f"{SANDBOX} must be one of {names}; got {wanted!r}.")
        entries = [entry.strip() for entry in (env.get(SETTING) or "").split(",")]
        return cls(wanted, tuple(_opened(entry, data) for entry in entries if entry))

    def sandbox(self, data: Path, shared: bool, log: Callable[..., None]) -> Sandbox:
        """Return the sandbox of this machine. The data folder must exist."""
        try:
            found = choose(
                self.wanted,
                data.resolve(),
                shared=shared,
                opened=self.opened,
                path=search_path(),
            )
        except NoSandboxError as error:
            raise WrongSettingError(
                f"{SANDBOX}={self.wanted} cannot be had: {error}. Set it to auto or to another."
            ) from error
        if found.name == "none" and self.wanted == "auto":
            advice = f"install bubblewrap, or set {SANDBOX}=none to accept it"
            log("scripts_have_no_sandbox", level="WARNING", advice=advice)
        return found


def script_task(folder: Path, groups: Groups, sandbox: Sandbox) -> ScriptTask:
    """Return the task that runs scripts on this node.

    It uses control groups if the node may create them.
    """
    work = folder / "work"
    make_folder(work)
    cgroups = cgroup.find()
    if cgroups is not None:
        cgroups.end_left_behind()
    return ScriptTask(
        work,
        sandbox,
        monotonic=clock.monotonic,
        path=search_path(),
        groups=groups,
        children=Children(adopt=True),
        cgroups=cgroups,
    )


def hide_this_process() -> None:
    """Close the node's memory, descriptors and environment to other processes of its user."""
    if sys.platform == "linux":
        hide(c_library())


def search_path() -> str:
    """Return where scripts look for programs: the node's path without its virtual environment."""
    ours, base = Path(sys.executable).parent, Path(interpreter()).parent
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(str(base) if Path(folder) == ours else folder for folder in folders)


def _opened(entry: str, data: Path) -> OpenPath:
    """Return the path that an entry opens, with links resolved. A link could be changed later."""
    name, colon, mode = entry.rpartition(":")
    path = Path(name)
    if not colon or mode not in _MODES or not path.is_absolute():
        raise WrongSettingError(
            f"{SETTING} is a list of absolute paths, each with :r or :rw, like "
            f"/srv/backup:rw,/etc/app:r; got {entry!r}."
        )
    try:
        path = path.resolve(strict=True)
    except OSError as error:
        raise WrongSettingError(f"{SETTING}: {name} cannot be used ({error.strerror}).") from error
    if holds(path, data) or holds(data, path):
        raise WrongSettingError(
            f"{SETTING} must keep out of the data folder: {name} holds {data}, or lies in it."
        )
    return OpenPath(path, _MODES[mode])
