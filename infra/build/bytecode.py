"""Bytecode for the layers. Without it each cold start compiles the imported modules."""

import shutil
import subprocess
import sys
from pathlib import Path

from infra.config.cdk_json import PROJECT_ROOT

PYODIDE = PROJECT_ROOT / "node_modules/pyodide"
MAGIC = 3571
"""The bytecode of CPython 3.13, the version that Lambda runs here."""

LAYER_PYTHON_PATH = "/opt/python"
"""The path at which Lambda mounts a layer; tracebacks name it."""

# Hash-based and unchecked: Python does not compare the bytecode with the source or its time stamp.
_PROGRAM = """
import compileall, py_compile, sys
done = compileall.compile_dir(
    FOLDER, quiet=1, force=True, workers=1, stripdir=FOLDER, prependdir={at!r},
    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
if not done:
    sys.exit(1)
"""


class NoCompiler(RuntimeError):
    """No compiler for the layer's Python is installed, or it failed."""


def compile_for_lambda(folder: Path) -> None:
    """Compile with the python3.13 on PATH, or else with pyodide from node_modules."""
    program = _PROGRAM.format(at=LAYER_PYTHON_PATH)
    python = shutil.which("python3.13")
    if python is not None and _starts(python):
        if not _run([python, "-c", f"FOLDER = {str(folder)!r}\n{program}"]):
            raise NoCompiler(f"{python} could not compile {folder} (see above)")
    else:
        _compile_with_pyodide(folder, program)
    check(folder, MAGIC)


def compile_for_host(folder: Path) -> None:
    """Compile with the running Python, for a rehearsal that runs the layers on this machine."""
    program = _PROGRAM.format(at=LAYER_PYTHON_PATH)
    if not _run([sys.executable, "-c", f"FOLDER = {str(folder)!r}\n{program}"]):
        raise NoCompiler(f"{sys.executable} could not compile {folder}")


def check(folder: Path, magic: int) -> None:
    """Raise unless each module has unchecked bytecode of this magic number."""
    wanted = magic.to_bytes(2, "little") + b"\r\n" + (1).to_bytes(4, "little")
    for source in sorted(folder.rglob("*.py")):
        found = list(source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc"))
        if len(found) != 1 or found[0].read_bytes()[:8] != wanted:
            raise NoCompiler(f"{source.relative_to(folder)} has no bytecode {magic}")


def _compile_with_pyodide(folder: Path, program: str) -> None:
    node = shutil.which("node")
    if node is None or not PYODIDE.is_dir():
        raise NoCompiler(
            "no python3.13 on PATH, and no pyodide in node_modules to compile the layers with: "
            "run `npm ci`, or install Python 3.13"
        )
    if not _run([node, str(PROJECT_ROOT / "infra/compile.mjs"), str(folder), program]):
        raise NoCompiler(f"pyodide could not compile {folder} (see above)")


def _starts(python: str) -> bool:
    """Return whether the program starts: a shim of a version manager may lack its Python."""
    magic = "import importlib.util as u; print(int.from_bytes(u.MAGIC_NUMBER[:2], 'little'))"
    asked = subprocess.run([python, "-c", magic], capture_output=True, text=True, check=False)
    return asked.returncode == 0 and asked.stdout.strip() == str(MAGIC)


def _run(command: list[str]) -> bool:
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0
