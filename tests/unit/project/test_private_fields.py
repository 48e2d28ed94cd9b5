"""A private field belongs to the class that declares it. No subclass assigns it."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
# Each tree with the folder below which its modules are imported.
TREES = {
    "layers/core/python/punctual": "layers/core/python",
    "cli/punctual_cli": "cli",
    "functions": "",
    "infra": "",
    "tests": "",
    "bench": "",
}


class ClassFields(NamedTuple):
    bases: tuple[str, ...]  # full names: module and class
    fields: frozenset[str]  # private fields that the class assigns or declares
    methods: frozenset[str]  # private methods


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def assigned_fields(definition: ast.ClassDef) -> Iterator[str]:
    """Yield the class attributes, and the attributes that a method assigns on `self`."""
    for statement in definition.body:
        if isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                yield node.attr


def full_names(module: str, tree: ast.Module) -> dict[str, str]:
    """Return the full name of each class that the module defines or imports."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        elif isinstance(node, ast.ClassDef):
            names[node.name] = f"{module}.{node.name}"
    return names


def classes_of(module: str, source: str) -> dict[str, ClassFields]:
    tree = ast.parse(source)
    names = full_names(module, tree)
    classes = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
            methods = (
                statement.name
                for statement in node.body
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            classes[f"{module}.{node.name}"] = ClassFields(
                tuple(names.get(ast.unparse(base), ast.unparse(base)) for base in bases),
                frozenset(filter(is_private, assigned_fields(node))),
                frozenset(filter(is_private, methods)),
            )
    return classes


def ancestors(name: str, classes: Mapping[str, ClassFields]) -> set[str]:
    """Return all classes of the project that the class inherits from."""
    bases = {base for base in classes[name].bases if base in classes}
    return bases.union(*(ancestors(base, classes) for base in bases - {name}))


def overwritten_fields(classes: Mapping[str, ClassFields]) -> list[str]:
    return sorted(
        f"{name} overwrites {field} of {ancestor}"
        for name, members in classes.items()
        for ancestor in ancestors(name, classes)
        for field in members.fields & (classes[ancestor].fields | classes[ancestor].methods)
    )


def test_subclass_overwrites_no_private_field_of_its_parent() -> None:
    classes: dict[str, ClassFields] = {}
    for tree, folder in TREES.items():
        for path in (ROOT / tree).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            classes |= classes_of(module, path.read_text())
    assert "tests.support.web_client.ApplicationClient" in ancestors(
        "tests.support.node.guarded.GuardedNode", classes
    )
    assert overwritten_fields(classes) == []


@pytest.mark.parametrize(
    ("parent", "child"),
    [
        ("_a = 1", "_a = 2"),
        ("_a: int", "def f(self): self._a = 2"),
        ("def f(self): self._a = 1", "def g(self): self._a = 2"),
        ("def f(self): self._a = 1", "def f(self): self.b, self._a = 1, 2"),
        ("def f(self): self._a: int = 1", "def g(self): self._a += 2"),
        ("def _a(self): pass", "_a = print"),
    ],
)
@pytest.mark.parametrize("bases", ["Parent", "Generic[T], Parent[T]"])
def test_planted_overwritten_field_is_found(bases: str, parent: str, child: str) -> None:
    classes = classes_of("first", f"class Parent:\n    {parent}")
    classes |= classes_of("second", f"from first import Parent\nclass Middle({bases}): pass")
    source = f"from second import Middle as Parent\nclass Child(Parent):\n    {child}"
    classes |= classes_of("third", source)
    assert overwritten_fields(classes) == ["third.Child overwrites _a of first.Parent"]


@pytest.mark.parametrize(
    "child", ["a = 2", "def f(self): return self._a", "def f(self): other._a = 1", "__slots__ = ()"]
)
def test_child_that_only_reads_a_private_field_passes(child: str) -> None:
    source = f"class Parent:\n    _a = 1\n    a = 1\nclass Child(Parent):\n    {child}"
    assert overwritten_fields(classes_of("first", source)) == []
