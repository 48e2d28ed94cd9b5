"""Checks the interpreter and the working directory that a script of the node names.

Only paths that `PUNCTUAL_SCRIPT_PATHS` opens may be named. The sandbox enforces the same during the
run, so a link that changes after a check opens nothing.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from punctual.tasks.script import system_paths
from punctual.tasks.script.sandbox import (
    LOCAL_TENANT,
    SCRIPT_PATHS_VARIABLE,
    Sandbox,
    interpreter,
)

PATH_FIELDS = ("interpreter", "working_directory")
_OTHER_TENANTS_REFUSED = "is for scripts of tenant local only: leave it out"


def path_problems(
    sandbox: Sandbox, tenant: str, task: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield each path of a task that its tenant may not name here, and the problem."""
    for field in PATH_FIELDS:
        path = task.get(field)
        if not isinstance(path, str):
            continue
        problem = (
            _path_problem(sandbox, field, path)
            if tenant == LOCAL_TENANT
            else _OTHER_TENANTS_REFUSED
        )
        if problem:
            yield field, problem


def missing_path(task: Mapping[str, Any]) -> str:
    """Return which path of a task cannot be used at this moment, or an empty string."""
    program, folder = task.get("interpreter"), task.get("working_directory")
    if program is not None and not (os.path.isfile(program) and os.access(program, os.X_OK)):
        return f"task.interpreter: {program} is not a file that the node's user may execute"
    if folder is not None and not (os.path.isdir(folder) and os.access(folder, os.X_OK)):
        return f"task.working_directory: {folder} is not a folder that the node's user may enter"
    return ""


def _path_problem(sandbox: Sandbox, field: str, path: str) -> str:
    if not os.path.isabs(path):
        return f"must be an absolute path; got {path!r}"
    try:
        target = Path(os.path.realpath(path))
        place = _place(path) if field == "interpreter" else target
    except ValueError:
        return "is not a path: it must not hold NUL or unpaired surrogates"
    if not _is_open(sandbox, place):
        folder = place.parent if field == "interpreter" else place
        return (
            f"must lie in a path that {SCRIPT_PATHS_VARIABLE} opens: start the node with "
            f"{SCRIPT_PATHS_VARIABLE}={folder}:r"
        )
    if _is_open(sandbox, target) or _is_readable(sandbox, target):
        return ""
    return (
        f"leads to {target}, which no script may execute: start the node with a folder above it in "
        f"{SCRIPT_PATHS_VARIABLE}, with :r"
    )


def _place(path: str) -> Path:
    """Return where the path itself lies. A link at its end stays as it is."""
    folder, name = os.path.split(path)
    return Path(os.path.realpath(folder), name) if name not in ("", ".", "..") else Path(path)


def _is_open(sandbox: Sandbox, path: Path) -> bool:
    return any(path.is_relative_to(open_path.path) for open_path in sandbox.open_paths)


def _is_readable(sandbox: Sandbox, path: Path) -> bool:
    """Return True if every script may read the path. It has no links."""
    programs = (Path(interpreter()),)
    return any(
        path.is_relative_to(os.path.realpath(readable))
        for readable in system_paths.readable_paths(programs, sandbox.closed_folder)
    )
