"""The sandbox of scripts outside the node: the best of this machine, without capabilities."""

import os
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from punctual.tasks.script.run_folder import RunFolder
from punctual.tasks.script.sandbox import RunSandbox, Sandbox, SandboxProbes, choose_sandbox

_NO_CAPABILITIES = RunSandbox(rules={"abi": 0, "files": [], "filter": b"", "process_files": []})


@dataclass(frozen=True)
class RunnerSandbox(Sandbox):
    """A sandbox that also drops all capabilities where there is no other protection.

    A script of root could otherwise read the environment of the runner.
    """

    denial_hint: str = "a script may write to its own folders, HOME and TMPDIR"

    def for_run(self, tenant: str, folder: RunFolder, programs: tuple[Path, ...]) -> RunSandbox:
        if self.name == "none":
            return _NO_CAPABILITIES
        return super().for_run(tenant, folder, programs)


def choose_runner_sandbox(
    choice: str,
    closed_folder: Path,
    path: str,
    probes: SandboxProbes = SandboxProbes(),  # noqa: B008
) -> RunnerSandbox:
    """Return the best sandbox of this machine. Only one tenant has scripts here."""
    sandbox = choose_sandbox(choice, closed_folder, is_shared=False, path=path, probes=probes)
    return RunnerSandbox(sandbox.name, closed_folder, sandbox.abi, sandbox.bwrap_path)


def library_path(environment: Mapping[str, str]) -> str:
    """Return the folder of Python's shared library if the environment must name it, or "".

    Lambda's Python needs it. A script and its launcher start with a cleared environment.
    """
    folder = sysconfig.get_config_var("LIBDIR")
    is_shared = bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    paths = environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return str(folder) if is_shared and folder in paths else ""
