"""What keeps the repository itself in order."""

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
MOST_LINES = 500  # a class is not cut in two only to make its file shorter

PIN = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>\S+)( \\)?$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}( \\)?$")
FROM_DOT = re.compile(r"\bfrom[\s\\]*\.")


def files(*trees: str) -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for tree in trees for p in (ROOT / tree).rglob("*.py"))


def pins(lock: str) -> dict[str, str]:
    found = (PIN.match(line) for line in (ROOT / lock).read_text().splitlines())
    return {canonicalize_name(pin["name"]): pin["version"] for pin in found if pin}


def relative_imports(source: str) -> list[int]:
    """Return the lines of relative imports. Only a source with `from .` in it is parsed."""
    if not FROM_DOT.search(source):
        return []
    nodes = ast.walk(ast.parse(source))
    return [node.lineno for node in nodes if isinstance(node, ast.ImportFrom) and node.level]


def test_there_are_files_to_check() -> None:
    assert "tests/unit/project/test_project.py" in files(*TREES)
    assert "layers/core/python/punctual/domain/decide.py" in files("layers")


def test_a_module_is_named_after_what_it_holds() -> None:
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


def test_a_file_past_its_size_is_split_by_noun() -> None:
    sizes = {
        path: len((ROOT / path).read_text().splitlines())
        for path in files("layers", "functions", "infra")
    }
    assert {path: size for path, size in sizes.items() if size > MOST_LINES} == {}


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_pins_and_hashes_and_nothing_else(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    strange = [
        line for line in lines if line and not (PIN.match(line) or HASH.match(line) or line == "#")
    ]
    assert [line for line in strange if not re.fullmatch(r"# [\w ,()-]+:", line)] == []


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_is_hashed(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    bare = [
        a
        for a, b in zip(lines, [*lines[1:], ""], strict=True)
        if PIN.match(a) and not HASH.match(b)
    ]
    assert len(pins(lock)) > 5
    assert bare == []


@pytest.mark.parametrize("lock", ["requirements/run.txt", "layers/vendor/requirements.txt"])
def test_the_smaller_locks_agree_with_the_whole(lock: str) -> None:
    assert pins(lock).items() <= pins("requirements/dev.txt").items()


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    run = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    extras = project["project"]["optional-dependencies"].values()
    everything = [*run, *chain.from_iterable(extras)]
    for lock, wanted in (("requirements/run.txt", run), ("requirements/dev.txt", everything)):
        held = pins(lock)
        for requirement in map(Requirement, wanted):
            assert requirement.specifier.contains(held[canonicalize_name(requirement.name)])


def test_the_node_packages_are_pinned_without_an_address() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text())
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]
    held = {name: p for name, p in lock["packages"].items() if name}
    assert all("resolved" not in package and package["integrity"] for package in held.values())
    assert {name: held[f"node_modules/{name}"]["version"] for name in wanted} == wanted
