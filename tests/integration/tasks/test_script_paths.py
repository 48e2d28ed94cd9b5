"""A script that names an interpreter and a working directory of the node."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from punctual.tasks.contract import Attempt
from punctual.tasks.script import bubblewrap, landlock
from punctual.tasks.script.sandbox import OpenPath, Sandbox, choose_sandbox
from tests.support.kernel import needs
from tests.support.scripts.script_runs import an_attempt, execute

SANDBOXES = [
    pytest.param("landlock", marks=needs("landlock scopes", "seccomp")),
    pytest.param("bubblewrap"),
    pytest.param("none"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "work"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Return the folder of a team: a virtualenv with a package, made without network."""
    folder = tmp_path / "app"
    command = (sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    subprocess.run(command, check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "mypackage.py").write_text(
        "import json, os, sys\n"
        "print(sys.argv[1:], json.load(sys.stdin), sys.prefix != sys.base_prefix)\n"
        "print(os.getcwd())\n"
    )
    return folder


def a_sandbox(name: str, root: Path, app: Path, writable: bool = False) -> Sandbox:
    path = os.environ["PATH"]
    if name == "bubblewrap" and bubblewrap.find_program(path)[1]:
        pytest.skip(bubblewrap.find_program(path)[1])
    opened = (OpenPath(app.resolve(), writable),)
    return choose_sandbox(name, root.parent, is_shared=False, open_paths=opened, path=path)


def naming(app: Path, code: str = "", **task: Any) -> Attempt:
    attempt = an_attempt(code, "python", payload={"day": 1}, **task)
    attempt.task["interpreter"] = str(app / "venv" / "bin" / "python")
    if not code:
        del attempt.task["code"]
    return attempt


@pytest.mark.parametrize("name", SANDBOXES)
def test_arguments_are_the_command_line_of_an_interpreter(root: Path, app: Path, name: str) -> None:
    attempt = naming(app, args=["-m", "mypackage", "x"], working_directory=str(app))
    outcome = execute(root, attempt, sandbox=a_sandbox(name, root, app))
    assert outcome.status == "SUCCESS", outcome.error
    assert outcome.output.decode() == f"['x'] {{'day': 1}} True\n{app.resolve()}\n"


@pytest.mark.parametrize("name", SANDBOXES)
def test_code_is_read_by_the_named_interpreter(root: Path, app: Path, name: str) -> None:
    code = "import sys, mypackage; print(sys.prefix)"
    outcome = execute(root, naming(app, code=code, args=["y"]), sandbox=a_sandbox(name, root, app))
    assert outcome.status == "SUCCESS", outcome.error
    first, work, prefix = outcome.output.decode().splitlines()
    assert first == "['y'] {'day': 1} True"
    assert Path(work).parent.parent == root
    assert Path(prefix) == app / "venv"


def test_program_without_runtime_flags_gets_just_its_arguments(root: Path, app: Path) -> None:
    tool = app / "tool"
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o755)
    attempt = naming(app, args=["-a", "b c"])
    attempt.task["interpreter"] = str(tool)
    outcome = execute(root, attempt, sandbox=a_sandbox("none", root, app))
    assert outcome.output == b"-a\nb c\n"


def test_writable_working_directory_keeps_what_the_script_writes(root: Path, app: Path) -> None:
    name = "landlock" if landlock.abi_version() else "none"
    attempt = naming(
        app, args=["-c", "open('result', 'w').write('kept')"], working_directory=str(app)
    )
    outcome = execute(root, attempt, sandbox=a_sandbox(name, root, app, writable=True))
    assert outcome.status == "SUCCESS", outcome.error
    assert (app / "result").read_text() == "kept"


def test_path_that_was_closed_since_the_job_fails_without_a_retry(root: Path, app: Path) -> None:
    attempt = naming(app, args=["-m", "mypackage"])
    outcome = execute(root, attempt, sandbox=a_sandbox("none", root, root.parent.parent / "other"))
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert outcome.error.startswith("task.interpreter must lie in a path that PUNCTUAL_SCRIPT_PATH")


def test_missing_interpreter_fails_and_may_be_tried_again(root: Path, app: Path) -> None:
    attempt = naming(app, args=["-m", "mypackage"])
    (app / "venv" / "bin" / "python").unlink()
    outcome = execute(root, attempt, sandbox=a_sandbox("none", root, app))
    assert (outcome.status, outcome.retryable) == ("FAILED", True)
    assert "is not a file that the node's user may execute" in outcome.error


@pytest.mark.parametrize("name", SANDBOXES[:2])
def test_link_that_changes_after_the_check_opens_nothing(
    root: Path, tmp_path: Path, app: Path, name: str
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir()
    (closed / "secret").write_text("hidden")
    (app / "place").mkdir()
    code = "import os; print(os.path.exists('secret') and open('secret').read())"
    attempt = naming(app, args=["-c", code], working_directory=str(app / "place"))
    sandbox = a_sandbox(name, root, app)
    execute(root, attempt, sandbox=sandbox)
    (app / "place").rmdir()
    (app / "place").symlink_to(closed)
    outcome = execute(root, attempt, sandbox=sandbox)
    assert (outcome.status, outcome.output) == ("FAILED", b"")
