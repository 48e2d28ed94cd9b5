"""The zip of the runner: what is in it, and that it stands alone."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from infra.build import runner
from infra.build.runner import (
    RUNNER_HANDLER,
    NotSelfContained,
    build_runner,
    runner_bytes,
    runner_files,
)


def test_zip_holds_only_what_the_runner_imports() -> None:
    files = runner_files()
    assert "punctual/runner/session.py" in files
    assert "punctual/tasks/script/launcher.py" in files
    folders = {str(Path(file).parent) for file in files}
    assert folders == {
        "punctual",
        "punctual/domain",
        "punctual/engine",
        "punctual/engine/ports",
        "punctual/runner",
        "punctual/tasks",
        "punctual/tasks/script",
    }


def test_zip_has_the_same_bytes_each_time(tmp_path: Path) -> None:
    first = build_runner(tmp_path / "a.zip").read_bytes()
    assert first == runner_bytes() == build_runner().read_bytes()
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.namelist() == sorted(archive.namelist())
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}


def test_unchanged_zip_is_not_written_again(tmp_path: Path) -> None:
    target = build_runner(tmp_path / "a.zip")
    before = target.stat().st_mtime_ns
    assert build_runner(target).stat().st_mtime_ns == before
    target.write_bytes(b"")
    assert build_runner(target).read_bytes() == runner_bytes()


def test_every_module_of_the_zip_is_imported_without_packages() -> None:
    """A module that is imported late, in a function, must be there too."""
    modules = [
        file.removesuffix(".py").replace("/", ".")
        for file in runner_files()
        if not file.endswith("__init__.py")
    ]
    code = (
        "import sys, importlib\n"
        f"sys.path.insert(0, {str(build_runner())!r})\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "roots = {name.partition('.')[0] for name in sys.modules} - sys.stdlib_module_names\n"
        "print(sorted(roots))"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "['__main__', 'punctual']\n"


def test_handler_is_a_function_of_the_zip() -> None:
    module, _, name = RUNNER_HANDLER.rpartition(".")
    code = (
        "import sys, importlib\n"
        f"sys.path.insert(0, {str(build_runner())!r})\n"
        f"print(callable(getattr(importlib.import_module({module!r}), {name!r})))"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "True\n"


@pytest.mark.parametrize("line", ["import msgspec", "from httpx import Client"])
def test_import_of_a_package_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    package = tmp_path / "punctual"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "one.py").write_text("import json\nfrom punctual import two\n")
    (package / "two.py").write_text(f"def late():\n    {line}\n")
    monkeypatch.setattr(runner, "RUNNER_SOURCE", tmp_path)
    with pytest.raises(NotSelfContained, match=r"two\.py imports (msgspec|httpx)"):
        runner_files(("punctual.one",))
