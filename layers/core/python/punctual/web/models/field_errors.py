"""Turn errors of pydantic into field errors, each with the dotted path of its field."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from punctual.domain.errors import FieldError, Invalid

if TYPE_CHECKING:
    from pydantic_core import ValidationError

FieldPath = tuple[int | str, ...]

MAX_REPORTED_ERRORS = 1_000
MAX_FIELDS = 200  # of an object that has no other bound
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
# Pydantic adds the tag of a union to the path. That part is not a field.
_TAGGED_UNION_FIELD = "task"


def paths_and_errors(error: "ValidationError") -> list[tuple[FieldPath, FieldError]]:
    """Return the first error of each path."""
    errors: dict[FieldPath, FieldError] = {}
    for details in error.errors(include_url=False, include_input=False):
        kind = details["type"]
        path = _path(details["loc"], kind)
        errors.setdefault(path, FieldError(dotted_path(path), _message(kind, details)))
    return list(errors.items())


def invalid_fields(messages: Mapping[str, str]) -> Invalid:
    """Return one error with all fields. Its text names only the first fields."""
    errors = tuple(FieldError(*item) for item in islice(messages.items(), MAX_REPORTED_ERRORS))
    text = "; ".join(
        f"{field_error.field}: {field_error.message}"
        for field_error in errors[:MAX_ERRORS_IN_DETAIL]
    )
    unnamed = len(messages) - MAX_ERRORS_IN_DETAIL
    return Invalid(f"{text}; and {unnamed:,} more" if unnamed > 0 else text, errors)


def dotted_path(path: Iterable[int | str]) -> str:
    """
    >>> dotted_path(("notify", 0, "url"))
    'notify.0.url'
    """
    return ".".join(str(part).replace("\0", "\\u0000")[:_MAX_PATH_PART_CHARACTERS] for part in path)


def without_paths(value: dict[str, Any], paths: Sequence[FieldPath]) -> dict[str, Any]:
    """Return a copy of the document without the parts at `paths`."""
    copy = dict(value)
    copied_ids = {id(copy)}
    for path in paths:
        _remove(copy, path, copied_ids)
    return copy


def _remove(container: Any, path: FieldPath, copied_ids: set[int]) -> None:
    """Remove the part at `path`. Each container on the way is copied once, not for each path."""
    for part in path[:-1]:
        if not _contains(container, part):
            return
        inner = container[part]
        if id(inner) not in copied_ids:
            inner = container[part] = _copy(inner)
            copied_ids.add(id(inner))
        container = inner
    if path and _contains(container, path[-1]):
        if isinstance(container, dict):
            del container[path[-1]]
        else:
            container[path[-1]] = None


def _contains(container: Any, part: int | str) -> bool:
    if isinstance(container, dict):
        return part in container
    return isinstance(container, list) and isinstance(part, int) and part < len(container)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    return list(value) if isinstance(value, list) else value


def _path(loc: FieldPath, kind: str) -> FieldPath:
    if loc and loc[0] == _TAGGED_UNION_FIELD and len(loc) > 1:
        loc = (loc[0], *loc[2:])
    if loc and loc[-1] == "[key]":
        loc = loc[:-1]
    return (*loc, "type") if kind.startswith("union_tag") else loc


def _message(kind: str, details: Any) -> str:
    if kind in _TYPE_MESSAGES:
        return _TYPE_MESSAGES[kind]
    if kind in _BOUND_MESSAGES:
        text, name = _BOUND_MESSAGES[kind]
        return text.format(_format_bound(details["ctx"][name]))
    if kind == "extra_forbidden":
        return "is not a field of this call"
    if kind == "union_tag_not_found":
        return "is required"
    return str(details["msg"])


def _format_bound(bound: Any) -> str:
    if isinstance(bound, str):
        return bound.replace("'", "").replace(" or ", ", ")
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"
