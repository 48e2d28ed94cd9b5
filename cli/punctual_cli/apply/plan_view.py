"""Render a plan for the confirmation prompt."""

import difflib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from punctual_cli.apply.fields import ABSENT, Difference, declared_of
from punctual_cli.apply.file import SET_TAG
from punctual_cli.apply.plan import Change, Plan, Prune

ADDED, REMOVED, CHANGED, QUIET_STYLE = "green", "red", "yellow", "dim"
MAX_VALUE_WIDTH = 60
HIDDEN_VALUE = "(hidden)"
_SECRET_FIELD = re.compile(
    r"authori[sz]ation|token|secret|passw|api[-_]?key|cookie|credential", re.I
)
_SECRET_PLACEHOLDER = re.compile(r"\{\{\s*secret:")


class Line(NamedTuple):
    text: str
    style: str = ""


def lines(plan: Plan) -> Iterator[Line]:
    for create in plan.creates:
        of = _of(create.declared.set_name)
        yield Line(f"+ create {create.declared.name}{of}", ADDED)
        for name, value in declared_of(create.declared.fields).items():
            if name != "name":
                yield from _added(name, _without_set(name, value))
        if create.declared.paused:
            yield Line("    paused: true", ADDED)
    for change in plan.changes:
        yield from _changed(change)
    for prune in plan.prunes:
        yield Line(f"- cancel {prune.present['name']}{_of(prune.set_name)}", REMOVED)
        yield Line(f"    {prune.present['job_id']}, not in the file", QUIET_STYLE)
    for prune in plan.left:
        yield _left(prune)


def summary(plan: Plan, done: bool = False) -> str:
    """Return the counts of a plan as one sentence.

    >>> summary(Plan())
    '0 to create, 0 to change, 0 to cancel; 0 unchanged.'
    """
    numbers = len(plan.creates), len(plan.changes), len(plan.prunes)
    words = ("created", "changed", "cancelled") if done else ("to create", "to change", "to cancel")
    parts = ", ".join(f"{n:,} {word}" for n, word in zip(numbers, words, strict=True))
    return f"{parts}; {len(plan.unchanged):,} unchanged."


def _left(prune: Prune) -> Line:
    name = prune.present["name"]
    return Line(
        f"  keep   {name}{_of(prune.set_name)}: not in the file, --prune cancels it", QUIET_STYLE
    )


def _of(set_name: str | None) -> str:
    return "" if set_name is None else f" (set {set_name})"


def _changed(change: Change) -> Iterator[Line]:
    declared = change.declared
    yield Line(f"~ change {declared.name}{_of(declared.set_name)}", CHANGED)
    if change.adopted:
        yield Line("    it belonged to no set, and joins this one", CHANGED)
    for difference in change.differences:
        if difference.path != f"tags.{SET_TAG}":
            yield from _difference(difference)
    if change.pause is not None:
        was = change.pause == "resume"
        yield Line(f"    paused: {_shown(was)} → {_shown(not was)}", CHANGED)


def _difference(found: Difference) -> Iterator[Line]:
    path, old, new = found
    if _is_secret(path, old) or _is_secret(path, new):
        yield Line(f"    {path}: {_veiled(path, old)} → {_veiled(path, new)}", CHANGED)
    elif isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield Line(f"    {path}:", CHANGED)
        yield from _text_difference(old, new)
    else:
        before, after = _veiled(path, old), _veiled(path, new)
        if len(path) + len(before) + len(after) + 9 <= MAX_VALUE_WIDTH + 20:
            yield Line(f"    {path}: {before} → {after}", CHANGED)
        else:
            yield Line(f"    {path}:", CHANGED)
            yield Line(f"      - {before}", REMOVED)
            yield Line(f"      + {after}", ADDED)


def _text_difference(old: str, new: str) -> Iterator[Line]:
    found = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
    for line in list(found)[2:]:
        style = {"+": ADDED, "-": REMOVED}.get(line[:1], QUIET_STYLE)
        yield Line(f"      {line}", style)


def _added(name: str, value: Any) -> Iterator[Line]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _added(f"{name}.{key}", inner)
    elif isinstance(value, str) and "\n" in value and not _is_secret(name, value):
        yield Line(f"    {name}:", ADDED)
        for line in value.splitlines():
            yield Line(f"      {line}", ADDED)
    else:
        yield Line(f"    {name}: {_veiled(name, value)}", ADDED)


def _without_set(name: str, value: Any) -> Any:
    if name != "tags":
        return value
    return {key: inner for key, inner in value.items() if key != SET_TAG}


def _is_secret(path: str, value: Any) -> bool:
    """Return True if a literal value stands where a secret's placeholder is expected."""
    last = path.rpartition(".")[2]
    return (
        isinstance(value, str)
        and bool(_SECRET_FIELD.search(last))
        and not _SECRET_PLACEHOLDER.search(value)
    )


def _veiled(path: str, value: Any) -> str:
    return HIDDEN_VALUE if _is_secret(path, value) else _shown(_veiled_inside(value))


def _veiled_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: HIDDEN_VALUE if _is_secret(key, inner) else _veiled_inside(inner)
            for key, inner in value.items()
        }
    return [_veiled_inside(inner) for inner in value] if isinstance(value, list) else value


def _shown(value: Any) -> str:
    """Return a value in its shortest clear form. Plain text has no quotes."""
    if value is ABSENT:
        return "(none)"
    if value is None:
        return "(default)"
    if isinstance(value, str) and value and value == value.strip() and value.isprintable():
        return _cut(value)
    return _cut(msgspec.json.encode(value).decode())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_WIDTH else f"{text[: MAX_VALUE_WIDTH - 1]}…"
