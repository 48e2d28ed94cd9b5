"""Build the runner: one zip without packages, for script functions, containers and tests.

The zip holds the modules that the runner imports, found in the source, and nothing else. Its bytes
depend on the source alone, so that a deployment replaces functions only after a change.
"""

import ast
import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from infra.config.cdk_json import PROJECT_ROOT

RUNNER_SOURCE = PROJECT_ROOT / "layers/core/python"
RUNNER_BUILD_FOLDER = PROJECT_ROOT / "build/runner"
RUNNER_ZIP_NAME = "runner.zip"
RUNNER_ENTRIES = ("punctual.runner.__main__", "punctual.runner.function")
RUNNER_HANDLER = "punctual.runner.function.handler"

_PACKAGE = "punctual"
_MAIN = b"from punctual.runner.__main__ import main\n\nmain()\n"
_FIRST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_FILE_ATTRIBUTES = 0o100644 << 16


class NotSelfContained(RuntimeError):
    """A module of the runner imports a package that the zip does not have."""


def build_runner(target: Path | None = None) -> Path:
    """Return the zip. Without a target it stands in the build folder, named by its digest."""
    data = runner_bytes()
    if target is None:
        digest = hashlib.sha256(data).hexdigest()
        target = RUNNER_BUILD_FOLDER / digest[:16] / RUNNER_ZIP_NAME
    if not target.is_file() or target.read_bytes() != data:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return target


def runner_bytes() -> bytes:
    """Return the bytes of the zip. Nothing is compressed, because zlib differs by version."""
    files = {name: (RUNNER_SOURCE / name).read_bytes() for name in runner_files()}
    # Python imports from a folder of a zip only if it is a package.
    folders = {folder for name in files for folder in PurePosixPath(name).parents[:-1]}
    files = {f"{folder}/__init__.py": b"" for folder in folders} | files
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted({"__main__.py": _MAIN, **files}.items()):
            info = zipfile.ZipInfo(name, _FIRST_ZIP_DATE)
            info.external_attr = _FILE_ATTRIBUTES
            archive.writestr(info, content)
    return data.getvalue()


def runner_files(entries: tuple[str, ...] = RUNNER_ENTRIES) -> list[str]:
    """Return the files that these modules import, directly or not, with their packages."""
    todo, files = list(entries), set[str]()
    while todo:
        for file in _files_of(todo.pop()):
            name = str(file.relative_to(RUNNER_SOURCE))
            if name not in files:
                files.add(name)
                todo += _imported_modules(file)
    return sorted(files)


def _files_of(module: str) -> Iterator[Path]:
    """Yield the file of a module and the `__init__.py` of its packages.

    The last word of the module may be a name in a module.
    """
    path = RUNNER_SOURCE
    for word in module.split("."):
        if (path / "__init__.py").is_file():
            yield path / "__init__.py"
        path /= word
    if path.is_dir():
        if (path / "__init__.py").is_file():
            yield path / "__init__.py"
    elif path.with_suffix(".py").is_file():
        yield path.with_suffix(".py")


def _imported_modules(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names.append(str(node.module))
        else:
            continue
        for name in names:
            root = name.partition(".")[0]
            if root == _PACKAGE:
                yield name
            elif root not in sys.stdlib_module_names:
                raise NotSelfContained(
                    f"{file.relative_to(RUNNER_SOURCE)} imports {root}, but the runner has only "
                    "the standard library"
                )


if __name__ == "__main__":
    print(build_runner(*map(Path, sys.argv[1:2])))
