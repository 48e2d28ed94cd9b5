"""Render a plan for the confirmation prompt."""

import difflib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from punctual_cli.apply.fields import ABSENT, Difference, declared_fields
from punctual_cli.apply.file import SET_TAG
from punctual_cli.apply.plan import Change, Plan, Prune
from punctual_cli.input.artifact_files import size_text

ADDED_STYLE, REMOVED_STYLE, CHANGED_STYLE, QUIET_STYLE = "green", "red", "yellow", "dim"
MAX_VALUE_WIDTH = 60
HIDDEN_VALUE = "(hidden)"
_SECRET_FIELD = re.compile(
    r"authori[sz]ation|token|secret|passw|api[-_]?key|cookie|credential", re.I
)
_SECRET_PLACEHOLDER = re.compile(r"\{\{\s*secret:")


class Line(NamedTuple):
    text: str
    style: str = ""


def render_lines(plan: Plan) -> Iterator[Line]:
    for upload in plan.uploads:
        yield Line(f"^ upload {upload.source} ({size_text(upload.file.size)})", ADDED_STYLE)
    for create in plan.creates:
        suffix = _set_suffix(create.declared.set_name)
        yield Line(f"+ create {create.declared.name}{suffix}", ADDED_STYLE)
        for name, value in declared_fields(create.declared.fields).items():
            if name != "name":
                yield from _added_lines(name, _without_set(name, value))
        if create.declared.paused:
            yield Line("    paused: true", ADDED_STYLE)
    for change in plan.changes:
        yield from _change_lines(change)
    for prune in plan.prunes:
        yield Line(f"- cancel {prune.present['name']}{_set_suffix(prune.set_name)}", REMOVED_STYLE)
        yield Line(f"    {prune.present['job_id']}, not in the file", QUIET_STYLE)
    for prune in plan.unpruned:
        yield _unpruned_line(prune)


def render_summary(plan: Plan, is_done: bool = False) -> str:
    """Return the counts of a plan as one sentence.

    >>> render_summary(Plan())
    '0 to create, 0 to change, 0 to cancel; 0 unchanged.'
    """
    counts = len(plan.creates), len(plan.changes), len(plan.prunes)
    verbs = (
        ("created", "changed", "cancelled") if is_done else ("to create", "to change", "to cancel")
    )
    parts = ", ".join(f"{count:,} {verb}" for count, verb in zip(counts, verbs, strict=True))
    return f"{parts}; {len(plan.unchanged):,} unchanged."


def _unpruned_line(prune: Prune) -> Line:
    name = prune.present["name"]
    return Line(
        f"  keep   {name}{_set_suffix(prune.set_name)}: not in the file; --prune cancels it",
        QUIET_STYLE,
    )


def _set_suffix(set_name: str | None) -> str:
    return "" if set_name is None else f" (set {set_name})"


def _change_lines(change: Change) -> Iterator[Line]:
    declared = change.declared
    yield Line(f"~ change {declared.name}{_set_suffix(declared.set_name)}", CHANGED_STYLE)
    if change.joins_set:
        yield Line("    the job had no set, and joins this one", CHANGED_STYLE)
    for difference in change.differences:
        if difference.path != f"tags.{SET_TAG}":
            yield from _difference_lines(difference)
    if change.pause_action is not None:
        was_paused = change.pause_action == "resume"
        yield Line(
            f"    paused: {_value_text(was_paused)} → {_value_text(not was_paused)}", CHANGED_STYLE
        )


def _difference_lines(difference: Difference) -> Iterator[Line]:
    path, old, new = difference
    if _is_secret(path, old) or _is_secret(path, new):
        yield Line(
            f"    {path}: {_masked_text(path, old)} → {_masked_text(path, new)}", CHANGED_STYLE
        )
    elif isinstance(old, str) and isinstance(new, str) and "\n" in old + new:
        yield Line(f"    {path}:", CHANGED_STYLE)
        yield from _text_difference_lines(old, new)
    else:
        before, after = _masked_text(path, old), _masked_text(path, new)
        if len(path) + len(before) + len(after) + 9 <= MAX_VALUE_WIDTH + 20:
            yield Line(f"    {path}: {before} → {after}", CHANGED_STYLE)
        else:
            yield Line(f"    {path}:", CHANGED_STYLE)
            yield Line(f"      - {before}", REMOVED_STYLE)
            yield Line(f"      + {after}", ADDED_STYLE)


def _text_difference_lines(old: str, new: str) -> Iterator[Line]:
    diff_lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=1)
    for line in list(diff_lines)[2:]:
        style = {"+": ADDED_STYLE, "-": REMOVED_STYLE}.get(line[:1], QUIET_STYLE)
        yield Line(f"      {line}", style)


def _added_lines(name: str, value: Any) -> Iterator[Line]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _added_lines(f"{name}.{key}", inner)
    elif isinstance(value, str) and "\n" in value and not _is_secret(name, value):
        yield Line(f"    {name}:", ADDED_STYLE)
        for line in value.splitlines():
            yield Line(f"      {line}", ADDED_STYLE)
    else:
        yield Line(f"    {name}: {_masked_text(name, value)}", ADDED_STYLE)


def _without_set(name: str, value: Any) -> Any:
    if name != "tags":
        return value
    return {key: inner for key, inner in value.items() if key != SET_TAG}


def _is_secret(path: str, value: Any) -> bool:
    """Return True if a literal value stands where a secret's placeholder is expected."""
    last_part = path.rpartition(".")[2]
    return (
        isinstance(value, str)
        and bool(_SECRET_FIELD.search(last_part))
        and not _SECRET_PLACEHOLDER.search(value)
    )


def _masked_text(path: str, value: Any) -> str:
    return HIDDEN_VALUE if _is_secret(path, value) else _value_text(_mask_secrets(value))


def _mask_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: HIDDEN_VALUE if _is_secret(key, inner) else _mask_secrets(inner)
            for key, inner in value.items()
        }
    return [_mask_secrets(inner) for inner in value] if isinstance(value, list) else value


def _value_text(value: Any) -> str:
    """Return a value in its shortest clear form. Plain text has no quotes."""
    if value is ABSENT:
        return "(none)"
    if value is None:
        return "(default)"
    if isinstance(value, str) and value and value == value.strip() and value.isprintable():
        return _shorten(value)
    return _shorten(msgspec.json.encode(value).decode())


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_VALUE_WIDTH else f"{text[: MAX_VALUE_WIDTH - 1]}…"
