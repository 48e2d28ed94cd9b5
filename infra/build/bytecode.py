"""Bytecode for the layers. Without it each cold start compiles the imported modules."""

import shutil
import subprocess
import sys
from pathlib import Path

from infra.config.cdk_json import PROJECT_ROOT

PYODIDE_FOLDER = PROJECT_ROOT / "node_modules/pyodide"
BYTECODE_MAGIC = 3571
"""The bytecode of CPython 3.13, the version that Lambda runs here."""

LAYER_PYTHON_PATH = "/opt/python"
"""The path at which Lambda mounts a layer; tracebacks name it."""

# Hash-based and unchecked: Python does not compare the bytecode with the source or its time stamp.
_COMPILE_PROGRAM = """
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
    program = _COMPILE_PROGRAM.format(at=LAYER_PYTHON_PATH)
    python = shutil.which("python3.13")
    if python is not None and _has_expected_version(python):
        if not _succeeds([python, "-c", f"FOLDER = {str(folder)!r}\n{program}"]):
            raise NoCompiler(f"{python} could not compile {folder} (see above)")
    else:
        _compile_with_pyodide(folder, program)
    check_bytecode(folder, BYTECODE_MAGIC)


def compile_for_host(folder: Path) -> None:
    """Compile with the running Python, for a rehearsal that runs the layers on this machine."""
    program = _COMPILE_PROGRAM.format(at=LAYER_PYTHON_PATH)
    if not _succeeds([sys.executable, "-c", f"FOLDER = {str(folder)!r}\n{program}"]):
        raise NoCompiler(f"{sys.executable} could not compile {folder}")


def check_bytecode(folder: Path, magic: int) -> None:
    """Raise unless each module has unchecked bytecode of this magic number."""
    expected_header = magic.to_bytes(2, "little") + b"\r\n" + (1).to_bytes(4, "little")
    for source in sorted(folder.rglob("*.py")):
        bytecode_files = list(source.parent.glob(f"__pycache__/{source.stem}.cpython-*.pyc"))
        if len(bytecode_files) != 1 or bytecode_files[0].read_bytes()[:8] != expected_header:
            raise NoCompiler(f"{source.relative_to(folder)} has no bytecode {magic}")


def _compile_with_pyodide(folder: Path, program: str) -> None:
    node = shutil.which("node")
    if node is None or not PYODIDE_FOLDER.is_dir():
        raise NoCompiler(
            "no python3.13 on PATH, and no pyodide in node_modules, to compile the layers. "
            "Run `npm ci`, or install Python 3.13"
        )
    if not _succeeds([node, str(PROJECT_ROOT / "infra/compile.mjs"), str(folder), program]):
        raise NoCompiler(f"pyodide could not compile {folder} (see above)")


def _has_expected_version(python: str) -> bool:
    """Return whether the program starts: a shim of a version manager may lack its Python."""
    magic = "import importlib.util as u; print(int.from_bytes(u.MAGIC_NUMBER[:2], 'little'))"
    answer = subprocess.run([python, "-c", magic], capture_output=True, text=True, check=False)
    return answer.returncode == 0 and answer.stdout.strip() == str(BYTECODE_MAGIC)


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode == 0
