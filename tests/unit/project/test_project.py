"""Rules of the repository: file names and sizes, imports, locks."""

import ast
import json
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
LOCKS = (
    "requirements/run.txt",
    "requirements/dev.txt",
    "requirements/rehearse.txt",
    "requirements/cold.txt",
    "requirements/sbom.txt",
    "requirements/clients.txt",
    "layers/vendor/requirements.txt",
)
VAGUE = {"utils", "util", "common", "helpers", "helper", "base", "misc"}
TREES = ("layers", "functions", "infra", "tests", "bench")
MAX_FILE_LINES = 500  # a class is not cut in two only to make its file shorter

PIN = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>\S+)( \\)?$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
FROM_DOT = re.compile(r"\bfrom[\s\\]*\.")


def files(*trees: str) -> list[str]:
    return sorted(
        str(path.relative_to(ROOT)) for tree in trees for path in (ROOT / tree).rglob("*.py")
    )


def pins(lock: str) -> dict[str, str]:
    matches = (PIN.match(line) for line in (ROOT / lock).read_text().splitlines())
    return {canonicalize_name(pin["name"]): pin["version"] for pin in matches if pin}


def relative_imports(source: str) -> list[int]:
    """Return the lines of relative imports. Only a source with `from .` in it is parsed."""
    if not FROM_DOT.search(source):
        return []
    nodes = ast.walk(ast.parse(source))
    return [node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


def test_check_has_files() -> None:
    assert "tests/unit/project/test_project.py" in files(*TREES)
    assert "layers/core/python/punctual/domain/decide.py" in files("layers")


def test_module_has_no_vague_name() -> None:
    vague = [path for path in files(*TREES) if VAGUE & {*Path(path).with_suffix("").parts}]
    assert vague == []


def test_imports_are_absolute() -> None:
    relative = [
        f"{path}:{line}"
        for path in files(*TREES)
        for line in relative_imports((ROOT / path).read_text())
    ]
    assert relative == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("from . import a", [1]),
        ("import b\nfrom .a import b", [2]),
        ("if a:\n    from..a import b", [2]),
        ("from \\\n  .a import b", [1]),
        ("from a import b  # not from .a", []),
    ],
)
def test_planted_relative_import_is_found(source: str, lines: list[int]) -> None:
    assert relative_imports(source) == lines


def test_file_has_at_most_500_lines() -> None:
    sizes = {
        path: len((ROOT / path).read_text().splitlines())
        for path in files("layers", "functions", "infra")
    }
    assert {path: size for path, size in sizes.items() if size > MAX_FILE_LINES} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_has_only_pins_and_hashes(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    other_lines = [
        line for line in lines if line and not (PIN.match(line) or HASH.match(line) or line == "#")
    ]
    assert [line for line in other_lines if not re.fullmatch(r"# [\w ,()-]+:", line)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_a_hash(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    unhashed = [
        line
        for line, next_line in zip(lines, [*lines[1:], ""], strict=True)
        if PIN.match(line) and not HASH.match(next_line)
    ]
    assert len(pins(lock)) > 5
    assert unhashed == []


@pytest.mark.parametrize("lock", ["requirements/run.txt", "layers/vendor/requirements.txt"])
def test_smaller_locks_agree_with_the_full_lock(lock: str) -> None:
    assert pins(lock).items() <= pins("requirements/dev.txt").items()


def test_locks_hold_what_the_project_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    extras = project["project"]["optional-dependencies"].values()
    everything = [*run, *chain.from_iterable(extras)]
    for lock, wanted in (("requirements/run.txt", run), ("requirements/dev.txt", everything)):
        pinned = pins(lock)
        for requirement in map(Requirement, wanted):
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])


def test_npm_packages_are_pinned_without_an_address() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert all("resolved" not in package and package["integrity"] for package in packages.values())
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
