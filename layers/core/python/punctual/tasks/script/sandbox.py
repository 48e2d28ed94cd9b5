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

LOCAL_TENANT = "local"
SCRIPT_PATHS_VARIABLE = "PUNCTUAL_SCRIPT_PATHS"
SANDBOX_CHOICES = ("auto", "landlock", "bubblewrap", "none")
SandboxName = Literal["landlock", "bubblewrap", "none"]

# Error texts of a script without access to a file. bubblewrap hides unopened files.
DENIAL_PATTERNS: Mapping[SandboxName, re.Pattern[bytes]] = MappingProxyType(
    {
        "landlock": re.compile(rb"permission denied", re.IGNORECASE),
        "bubblewrap": re.compile(
            rb"permission denied|read-only file system|no such file or directory", re.IGNORECASE
        ),
        "none": re.compile(rb"(?!)"),
    }
)
OTHER_TENANTS_REFUSED = (
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
class RunSandbox:
    """The sandbox of one run: words before the launcher's command line, and rules inside it."""

    wrapper: tuple[str, ...] = ()
    rules: dict[str, Any] | None = None


@dataclass(frozen=True)
class Sandbox:
    """The sandbox that separates scripts from the node and from each other.

    `closed_folder` is the node's data folder. `is_shared` is true if the node requires tokens. Then
    other tenants have scripts too.
    """

    name: SandboxName
    closed_folder: Path = Path()
    abi: int = 0
    bwrap_path: str = ""
    is_shared: bool = False
    open_paths: tuple[OpenPath, ...] = ()
    denial_hint: str = f"{SCRIPT_PATHS_VARIABLE} opens more paths, to scripts of tenant local"

    @property
    def isolates_processes(self) -> bool:
        """Return True if a script can neither signal nor address a process outside."""
        return self.name == "bubblewrap" or (
            self.name == "landlock" and self.abi >= landlock.MIN_SCOPED_ABI
        )

    def refusal_reason(self, tenant: str) -> str:
        """Return why this tenant may not run scripts here, or an empty string."""
        allowed = tenant == LOCAL_TENANT or not self.is_shared or self.isolates_processes
        return "" if allowed else OTHER_TENANTS_REFUSED

    def for_run(self, tenant: str, folder: RunFolder, programs: tuple[Path, ...]) -> RunSandbox:
        if self.name == "none":
            return RunSandbox()
        # A `python3` in PATH is often a link to the node's interpreter.
        programs = (*programs, Path(interpreter()))
        open_paths = self.open_paths if tenant == LOCAL_TENANT else ()
        if self.name == "bubblewrap":
            return self._bubblewrap_sandbox(open_paths, folder, programs)
        return RunSandbox(rules=self._landlock_rules(open_paths, folder, programs))

    def _bubblewrap_sandbox(
        self, open_paths: tuple[OpenPath, ...], folder: RunFolder, programs: tuple[Path, ...]
    ) -> RunSandbox:
        wrapper = bubblewrap.build_wrapper(
            self.bwrap_path,
            system_paths.readable_paths((*programs, _code_path()), self.closed_folder),
            [
                (str(open_path.path), open_path.writable)
                for open_path in open_paths
                if open_path.path != Path("/proc")
            ],
            folder.path,
            folder.temporary,
        )
        rules = {"abi": 0, "files": [], "filter": self._filter(), "process_files": []}
        return RunSandbox(wrapper, rules)

    def _landlock_rules(
        self, open_paths: tuple[OpenPath, ...], folder: RunFolder, programs: tuple[Path, ...]
    ) -> dict[str, Any]:
        # Hide other processes. Their command lines show the arguments of other tenants.
        process_files = ["self", *system_paths.MACHINE_PROC_FILES] if self.is_shared else []
        process_paths = [f"/proc/{name}" for name in process_files] or ["/proc"]
        readable = [*system_paths.readable_paths(programs, self.closed_folder), *process_paths]
        writable = [str(folder.path)]
        for open_path in open_paths:
            (writable if open_path.writable else readable).append(str(open_path.path))
        files = [
            *((path, landlock.READ_RIGHTS) for path in readable),
            *((path, landlock.CHANGE_RIGHTS) for path in writable),
            *((path, landlock.DEVICE_RIGHTS) for path in system_paths.DEVICE_PATHS),
        ]
        return {
            "abi": self.abi,
            "files": files,
            "filter": self._filter(),
            "process_files": process_files,
        }

    def _filter(self) -> bytes:
        return seccomp.build_filter(unix_sockets=not self.is_shared)


def _code_path() -> Path:
    """Return the folder of this package, or the zip that it is in."""
    return next(path for path in Path(__file__).parents[2:] if path.exists())


def interpreter() -> str:
    """Return the base interpreter of the virtual environment. It sees no installed package."""
    base: str = getattr(sys, "_base_executable", sys.executable)
    return base


@dataclass(frozen=True)
class SandboxProbes:
    """The functions that probe this machine for Landlock and bubblewrap."""

    landlock: Callable[[], int] = landlock.abi_version
    bubblewrap: Callable[[str], tuple[str, str]] = bubblewrap.find_program


def choose_sandbox(
    choice: str,
    closed_folder: Path,
    *,
    is_shared: bool,
    open_paths: tuple[OpenPath, ...] = (),
    path: str = os.defpath,
    probes: SandboxProbes = SandboxProbes(),
) -> Sandbox:
    """Return the sandbox to use. `auto` takes the best one, and a named one must be available.

    For a shared node, bubblewrap comes first. It also stops a script from changing the permissions
    of the node's files. For a single user, Landlock is enough and starts faster.
    """

    def sandbox(name: SandboxName, abi: int = 0, bwrap_path: str = "") -> Sandbox:
        return Sandbox(name, closed_folder, abi, bwrap_path, is_shared, open_paths)

    if choice == "none":
        return sandbox("none")
    abi = probes.landlock() if choice != "bubblewrap" else 0
    if choice == "landlock" and not abi:
        raise NoSandboxError("this kernel has no Landlock (Linux 5.13 and later may have it)")
    if abi and (choice == "landlock" or (abi >= landlock.MIN_SCOPED_ABI and not is_shared)):
        return sandbox("landlock", abi)
    program, problem = probes.bubblewrap(path)
    if program:
        return sandbox("bubblewrap", bwrap_path=program)
    if choice == "bubblewrap":
        raise NoSandboxError(problem)
    return sandbox("landlock", abi) if abi else sandbox("none")
