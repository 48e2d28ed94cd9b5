"""Choose the sandbox of a node's scripts, and build its rules for a run."""

import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from punctual.tasks.script import bubblewrap, landlock, seccomp, system_paths
from punctual.tasks.script.run_folder import RunFolder

LOCAL = "local"
SETTING = "PUNCTUAL_SCRIPT_PATHS"
WANTED = ("auto", "landlock", "bubblewrap", "none")
Name = Literal["landlock", "bubblewrap", "none"]

# Error texts of a script without access to a file. bubblewrap hides unopened files.
DENIALS: Mapping[Name, re.Pattern[bytes]] = MappingProxyType(
    {
        "landlock": re.compile(rb"permission denied", re.IGNORECASE),
        "bubblewrap": re.compile(
            rb"permission denied|read-only file system|no such file or directory", re.IGNORECASE
        ),
        "none": re.compile(rb"(?!)"),
    }
)
NOT_FOR_OTHERS = (
    "script tasks are for tenant local only on this node: its sandbox does not keep a script from "
    "the processes of others (that takes Linux 6.12 or bubblewrap)"
)


class NoSandboxError(Exception):
    """The configured sandbox is not available. The message says why."""


@dataclass(frozen=True)
class OpenPath:
    """A path that the setting opens to the scripts of tenant `local`."""

    path: Path
    writable: bool


@dataclass(frozen=True)
class Walls:
    """The sandbox of one run: words before the launcher's command line, and rules inside it."""

    wrapper: tuple[str, ...] = ()
    rules: dict[str, Any] | None = None


@dataclass(frozen=True)
class Sandbox:
    """The sandbox that separates scripts from the node and from each other.

    `closed` is the node's data folder. `shared` is true if the node requires tokens, so that other
    tenants have scripts too.
    """

    name: Name
    closed: Path = Path()
    abi: int = 0
    bwrap: str = ""
    shared: bool = False
    opened: tuple[OpenPath, ...] = ()

    @property
    def keeps_processes_apart(self) -> bool:
        """Return True if a script can neither signal nor address a process outside."""
        return self.name == "bubblewrap" or (
            self.name == "landlock" and self.abi >= landlock.SCOPED_FROM
        )

    def refusal(self, tenant: str) -> str:
        """Return why this tenant may not run scripts here, or an empty string."""
        allowed = tenant == LOCAL or not self.shared or self.keeps_processes_apart
        return "" if allowed else NOT_FOR_OTHERS

    def walls(self, tenant: str, folder: RunFolder, programs: tuple[Path, ...]) -> Walls:
        if self.name == "none":
            return Walls()
        # A `python3` in PATH is often a link to the node's interpreter.
        programs = (*programs, Path(interpreter()))
        opened = self.opened if tenant == LOCAL else ()
        if self.name == "bubblewrap":
            return self._namespaces(opened, folder, programs)
        return Walls(rules=self._rules(opened, folder, programs))

    def _namespaces(
        self, opened: tuple[OpenPath, ...], folder: RunFolder, programs: tuple[Path, ...]
    ) -> Walls:
        wrapper = bubblewrap.command(
            self.bwrap,
            system_paths.readable((*programs, Path(__file__).parents[2]), self.closed),
            [(str(one.path), one.writable) for one in opened if one.path != Path("/proc")],
            folder.path,
            folder.temporary,
        )
        rules = {"abi": 0, "files": [], "filter": self._filter(), "process_files": []}
        return Walls(wrapper, rules)

    def _rules(
        self, opened: tuple[OpenPath, ...], folder: RunFolder, programs: tuple[Path, ...]
    ) -> dict[str, Any]:
        # Hide other processes. Their command lines show the arguments of other tenants.
        processes = ["self", *system_paths.MACHINE] if self.shared else []
        proc = [f"/proc/{name}" for name in processes] or ["/proc"]
        read = [*system_paths.readable(programs, self.closed), *proc]
        change = [str(folder.path)]
        for one in opened:
            (change if one.writable else read).append(str(one.path))
        files = [
            *((path, landlock.READ) for path in read),
            *((path, landlock.CHANGE) for path in change),
            *((path, landlock.DEVICE) for path in system_paths.DEVICES),
        ]
        return {
            "abi": self.abi,
            "files": files,
            "filter": self._filter(),
            "process_files": processes,
        }

    def _filter(self) -> bytes:
        return seccomp.program(unix_sockets=not self.shared)


def interpreter() -> str:
    """Return the base interpreter of the virtual environment. It sees no installed package."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    return base


@dataclass(frozen=True)
class System:
    """The functions that probe this machine for Landlock and bubblewrap."""

    landlock: Callable[[], int] = landlock.version
    bubblewrap: Callable[[str], tuple[str, str]] = bubblewrap.find


def choose(
    wanted: str,
    closed: Path,
    *,
    shared: bool,
    opened: tuple[OpenPath, ...] = (),
    path: str = os.defpath,
    system: System = System(),
) -> Sandbox:
    """Return the sandbox to use. `auto` takes the best one, and a named one must be available.

    For a shared node, bubblewrap comes first. It also stops a script from changing the permissions
    of the node's files. For a single user, Landlock is enough and starts faster.
    """

    def sandbox(name: Name, abi: int = 0, bwrap: str = "") -> Sandbox:
        return Sandbox(name, closed, abi, bwrap, shared, opened)

    if wanted == "none":
        return sandbox("none")
    abi = system.landlock() if wanted != "bubblewrap" else 0
    if wanted == "landlock" and not abi:
        raise NoSandboxError("this kernel has no Landlock (Linux 5.13 and later may have it)")
    if abi and (wanted == "landlock" or (abi >= landlock.SCOPED_FROM and not shared)):
        return sandbox("landlock", abi)
    program, problem = system.bubblewrap(path)
    if program:
        return sandbox("bubblewrap", bwrap=program)
    if wanted == "bubblewrap":
        raise NoSandboxError(problem)
    return sandbox("landlock", abi) if abi else sandbox("none")
