"""Run our program as this user or as an unprivileged user."""

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
NOBODY = 65_534
PATHS = os.pathsep.join((str(ROOT), *filter(None, sys.path)))
NEEDED = "tests.support.scripts.attacked_node"


def run_python(user: str, *arguments: str, stdin: str = "", **env: str) -> str:
    """Return the output of Python, run as `ours` or as `nobody`. It must succeed."""
    process = subprocess.run(
        [python_for(user), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd="/",
        env=environment(**env),
        **identity(user),
    )
    assert process.returncode == 0, process.stderr
    return str(process.stdout)


def environment(**env: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": PATHS, **env}


def identity(user: str) -> dict[str, Any]:
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if user == "nobody" else {}


@lru_cache
def python_for(user: str) -> str:
    """Return an interpreter that the user may execute, with the node's dependencies."""
    if user == "ours":
        return sys.executable
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        try:
            process = subprocess.run(
                [python, "-c", f"import {NEEDED}"],
                cwd="/",
                env=environment(),
                capture_output=True,
                check=False,
                **identity(user),
            )
        except OSError:
            continue
        if process.returncode == 0:
            return python
    pytest.skip("no interpreter that another user may execute has the node's dependencies")
