"""bubblewrap: run a script in its own namespaces, without other processes and folders."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from punctual.tasks.script.system_paths import SHARED_MEMORY_FOLDER

TEMPORARY_FOLDER = "/tmp"
SHARED_MEMORY_BYTES = 64 * 1024 * 1024
PROBE_SECONDS = 20.0

# The launcher is process 1 of the namespace. When it ends, the kernel kills all others.
_NAMESPACE_OPTIONS = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try"),
    *("--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"),
)
_SYSTEM_OPTIONS = (
    *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
    *("--size", str(SHARED_MEMORY_BYTES), "--tmpfs", SHARED_MEMORY_FOLDER),
)
_READ_ONLY_OPTIONS = ("--remount-ro", "/dev", "--remount-ro", "/", "--")


def build_wrapper(
    program: str,
    readable_paths: Iterable[str],
    open_paths: Iterable[tuple[str, bool]],
    folder: Path,
    temporary: Path,
) -> tuple[str, ...]:
    """Return the words to put before a command line.

    `open_paths` holds pairs of a path and whether it is writable.
    """
    arguments: list[str] = [program, *_NAMESPACE_OPTIONS]
    for path in readable_paths:
        arguments += ("--ro-bind-try", path, path)
    arguments += _SYSTEM_OPTIONS
    if not folder.is_relative_to(TEMPORARY_FOLDER):
        arguments += ("--bind", str(temporary), TEMPORARY_FOLDER)
    for path, writable in open_paths:
        arguments += ("--bind-try" if writable else "--ro-bind-try", path, path)
    arguments += ("--bind", str(folder), str(folder))
    return (*arguments, *_READ_ONLY_OPTIONS)


def find_program(path: str) -> tuple[str, str]:
    """Return bubblewrap's path and "", or "" and the reason why it cannot be used."""
    program = shutil.which("bwrap", path=path)
    if program is None:
        return "", "bubblewrap is not installed"
    probe = (
        program,
        *_NAMESPACE_OPTIONS,
        "--ro-bind",
        "/",
        "/",
        *_SYSTEM_OPTIONS,
        *_READ_ONLY_OPTIONS[-1:],
        "true",
    )
    problem = _probe_problem(probe)
    return ("", f"bubblewrap does not work here: {problem}") if problem else (program, "")


def _probe_problem(probe: Sequence[str]) -> str:
    try:
        result = subprocess.run(
            probe,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    message = " ".join(result.stderr.split())
    return message or f"exit code {result.returncode}" if result.returncode else ""
