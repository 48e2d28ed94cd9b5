"""Which interpreters and working directories a script of the node may name."""

import os
from pathlib import Path
from typing import Any

import pytest

from punctual.tasks.script.local_paths import missing_path, path_problems
from punctual.tasks.script.sandbox import OpenPath, Sandbox, interpreter


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Return a folder that the setting opens. It has a virtualenv's link to the interpreter."""
    binaries = tmp_path / "app" / "venv" / "bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(interpreter())
    return tmp_path / "app"


def problems(app: Path, tenant: str = "local", **task: Any) -> dict[str, str]:
    sandbox = Sandbox("none", app.parent / "data", open_paths=(OpenPath(app.resolve(), False),))
    return dict(path_problems(sandbox, tenant, task))


def test_paths_that_the_setting_opens_may_be_named(app: Path) -> None:
    program = str(app / "venv" / "bin" / "python")
    assert problems(app, interpreter=program, working_directory=str(app)) == {}
    assert problems(app, interpreter=program, working_directory=f"{app}/venv/../venv/") == {}


def test_task_without_paths_has_no_problem(app: Path) -> None:
    assert problems(app, tenant="acme", interpreter=None, code="print(1)") == {}


def test_path_that_is_not_open_names_the_setting(app: Path) -> None:
    found = problems(app, interpreter="/opt/x/bin/python", working_directory="/opt/x")
    assert found["interpreter"].endswith("start the node with PUNCTUAL_SCRIPT_PATHS=/opt/x/bin:r")
    assert found["working_directory"].endswith("PUNCTUAL_SCRIPT_PATHS=/opt/x:r")


@pytest.mark.parametrize("name", ["venv", "./venv", "~/venv", "-c"])
def test_relative_path_is_refused(app: Path, name: str) -> None:
    message = f"must be an absolute path; got {name!r}"
    assert problems(app, interpreter=name) == {"interpreter": message}


def test_path_out_of_an_open_folder_is_refused(app: Path) -> None:
    (app.parent / "other").mkdir()
    found = problems(app, interpreter=f"{app}/../other/python", working_directory=f"{app}/../other")
    assert set(found) == {"interpreter", "working_directory"}


@pytest.mark.parametrize("field", ["interpreter", "working_directory"])
def test_link_to_a_refused_place_is_refused(app: Path, field: str) -> None:
    data = app.parent / "data"
    data.mkdir()
    (app / "link").symlink_to(data)
    assert set(problems(app, **{field: str(app / "link")})) == {field}
    assert set(problems(app, **{field: f"{app}/link/"})) == {field}
    assert set(problems(app, **{field: f"{app}/link/tool"})) == {field}


def test_link_of_an_interpreter_names_where_it_leads(app: Path) -> None:
    target = app.parent / "other-python"
    target.touch()
    program = app / "venv" / "bin" / "python3.99"
    program.symlink_to(target)
    (message,) = problems(app, interpreter=str(program)).values()
    assert message.startswith(f"leads to {target.resolve()}, which no script may execute")
    assert "PUNCTUAL_SCRIPT_PATHS" in message


@pytest.mark.parametrize("path", ["/srv/a\0b", "/srv/\ud800"])
def test_text_that_is_no_path_is_refused(app: Path, path: str) -> None:
    assert set(problems(app, interpreter=path, working_directory=path)) == {
        "interpreter",
        "working_directory",
    }


def test_other_tenant_may_name_no_path(app: Path) -> None:
    message = "is for scripts of tenant local only: leave it out"
    assert problems(app, "acme", working_directory=str(app)) == {"working_directory": message}


def test_missing_path_is_named(app: Path) -> None:
    program, file = str(app / "venv" / "bin" / "python"), app / "file"
    file.touch(mode=0o600)
    assert missing_path({"interpreter": program, "working_directory": str(app)}) == ""
    assert "task.interpreter: " in missing_path({"interpreter": str(file)})
    assert str(file) in missing_path({"working_directory": str(file)})
    assert os.access(program, os.X_OK)
