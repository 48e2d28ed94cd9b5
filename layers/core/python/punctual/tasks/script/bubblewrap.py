"""bubblewrap: run a script in its own namespaces, without other processes and folders."""

import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from punctual.tasks.script.system_paths import SHARED_MEMORY

TEMPORARY = "/tmp"
SHARED_MEMORY_BYTES = 64 * 1024 * 1024
PROBE_SECONDS = 20.0

# The launcher is process 1 of the namespace. When it ends, the kernel kills all others.
_NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-cgroup-try"),
    *("--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"),
)
_SYSTEM = (
    *("--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"),
    *("--size", str(SHARED_MEMORY_BYTES), "--tmpfs", SHARED_MEMORY),
)
_CLOSED = ("--remount-ro", "/dev", "--remount-ro", "/", "--")


def command(
    program: str,
    readable: Iterable[str],
    opened: Iterable[tuple[str, bool]],
    folder: Path,
    temporary: Path,
) -> tuple[str, ...]:
    """Return the words to put before a command line.

    `opened` holds pairs of a path and whether it is writable.
    """
    arguments: list[str] = [program, *_NAMESPACES]
    for path in readable:
        arguments += ("--ro-bind-try", path, path)
    arguments += _SYSTEM
    if not folder.is_relative_to(TEMPORARY):
        arguments += ("--bind", str(temporary), TEMPORARY)
    for path, writable in opened:
        arguments += ("--bind-try" if writable else "--ro-bind-try", path, path)
    arguments += ("--bind", str(folder), str(folder))
    return (*arguments, *_CLOSED)


def find(path: str) -> tuple[str, str]:
    """Return bubblewrap's path and "", or "" and the reason why it cannot be used."""
    program = shutil.which("bwrap", path=path)
    if program is None:
        return "", "bubblewrap is not installed"
    trial = (program, *_NAMESPACES, "--ro-bind", "/", "/", *_SYSTEM, *_CLOSED[-1:], "true")
    problem = _problem(trial)
    return ("", f"bubblewrap does not work here: {problem}") if problem else (program, "")


def _problem(trial: Sequence[str]) -> str:
    try:
        tried = subprocess.run(
            trial,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = " ".join(tried.stderr.split())
    return said or f"exit code {tried.returncode}" if tried.returncode else ""
