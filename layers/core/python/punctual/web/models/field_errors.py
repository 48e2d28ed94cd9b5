"""From pydantic's findings to our words: each wrong field by its dotted path, as it was written."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from punctual.domain.errors import FieldError, Invalid

if TYPE_CHECKING:
    from pydantic_core import ValidationError

Path = tuple[int | str, ...]

MAX_REPORTED_ERRORS = 1_000
MAX_ERRORS_IN_DETAIL = 10
_MAX_PATH_PART_CHARACTERS = 128
_TYPE_MESSAGES = {
    "missing": "is required",
    "int_type": "must be an integer",
    "int_parsing_size": "is out of range",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "finite_number": "must be a finite number",
}
_BOUND_MESSAGES = {
    "greater_than_equal": ("must be at least {}", "ge"),
    "greater_than": ("must be more than {}", "gt"),
    "less_than_equal": ("must be at most {}", "le"),
    "string_too_short": ("must have at least {} character(s)", "min_length"),
    "string_too_long": ("must have at most {} characters", "max_length"),
    "too_short": ("must have at least {} entries", "min_length"),
    "too_long": ("must have at most {} entries", "max_length"),
    "literal_error": ("must be one of {}", "expected"),
    "union_tag_invalid": ("must be one of {}", "expected_tags"),
}
# Where a value may have one of several shapes, pydantic names the shape in the path.
_TAGGED_UNION_FIELD = "task"


def paths_and_errors(error: "ValidationError") -> list[tuple[Path, FieldError]]:
    found = error.errors(include_url=False, include_input=False)
    seen: dict[Path, FieldError] = {}
    for one in found:
        kind = one["type"]
        path = _path(one["loc"], kind)
        seen.setdefault(path, FieldError(dotted_path(path), _message(kind, one)))
    return list(seen.items())


def invalid_fields(found: Mapping[str, str]) -> Invalid:
    """All of them as fields; the sentence for people names the first few."""
    errors = tuple(FieldError(*item) for item in islice(found.items(), MAX_REPORTED_ERRORS))
    text = "; ".join(f"{e.field}: {e.message}" for e in errors[:MAX_ERRORS_IN_DETAIL])
    more = len(found) - MAX_ERRORS_IN_DETAIL
    return Invalid(f"{text}; and {more:,} more" if more > 0 else text, errors)


def dotted_path(path: Iterable[int | str]) -> str:
    """
    >>> dotted_path(("notify", 0, "url"))
    'notify.0.url'
    """
    return ".".join(str(part).replace("\0", "\\u0000")[:_MAX_PATH_PART_CHARACTERS] for part in path)


def without_paths(value: dict[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """What is left of a document when the wrong parts are taken out: their meaning is not asked."""
    left = dict(value)
    copied = {id(left)}
    for path in paths:
        _remove(left, path, copied)
    return left


def _remove(here: Any, path: Path, copied: set[int]) -> None:
    """What is on the way is copied, once: thousands of wrong parts may lie in one list."""
    for part in path[:-1]:
        if not _contains(here, part):
            return
        inner = here[part]
        if id(inner) not in copied:
            inner = here[part] = _copy(inner)
            copied.add(id(inner))
        here = inner
    if path and _contains(here, path[-1]):
        if isinstance(here, dict):
            del here[path[-1]]
        else:
            here[path[-1]] = None


def _contains(here: Any, part: int | str) -> bool:
    if isinstance(here, dict):
        return part in here
    return isinstance(here, list) and isinstance(part, int) and part < len(here)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else value


def _path(loc: Path, kind: str) -> Path:
    if loc and loc[0] == _TAGGED_UNION_FIELD and len(loc) > 1:
        loc = (loc[0], *loc[2:])
    if loc and loc[-1] == "[key]":
        loc = loc[:-1]
    return (*loc, "type") if kind.startswith("union_tag") else loc


def _message(kind: str, error: Any) -> str:
    if kind in _TYPE_MESSAGES:
        return _TYPE_MESSAGES[kind]
    if kind in _BOUND_MESSAGES:
        text, name = _BOUND_MESSAGES[kind]
        return text.format(_format_bound(error["ctx"][name]))
    if kind == "extra_forbidden":
        return "is not a field that this call knows"
    if kind == "union_tag_not_found":
        return "is required"
    return str(error["msg"])


def _format_bound(bound: Any) -> str:
    if isinstance(bound, str):
        return bound.replace("'", "").replace(" or ", ", ")
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
