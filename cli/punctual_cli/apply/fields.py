"""Compare declared job fields with present ones, after defaults are filled in."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from punctual.domain import timestamps
from punctual.web.models.defaults import DEFAULTS, TASK_DEFAULTS
from punctual.web.models.job import READ_ONLY_FIELDS
from punctual.web.models.schedule_types import TYPES_OF_FIELD

TIME_FIELDS = ("schedule_time", "start_time", "end_time")
FIELD_ORDER = ("name", "schedule_type", *DEFAULTS)


class Difference(NamedTuple):
    """A field, or a part of one, that changes. `ABSENT` stands for a missing value."""

    path: str
    old: Any
    new: Any


class _AbsentValue:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _AbsentValue()


def whole(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return every field with its default. Fields of other schedule types are null."""
    schedule_type = fields.get("schedule_type")
    complete = {name: fields.get(name) for name in ("name", "schedule_type")}
    for name in DEFAULTS:
        value = fields.get(name)
        is_allowed = name not in TYPES_OF_FIELD or schedule_type in TYPES_OF_FIELD[name]
        if value is None:
            value = _default_value(name, fields) if is_allowed else None
        complete[name] = _normalize(name, value)
    return complete


def _default_value(name: str, fields: Mapping[str, Any]) -> Any:
    if name == "max_retries" and fields.get("delivery") == "AT_MOST_ONCE":
        return 0
    # EventBridge expressions always skip local times that do not exist.
    if name == "dst_gap" and ")" in str(fields.get("cron_expression") or ""):
        return "SKIP"
    return DEFAULTS[name]


def _normalize(name: str, value: Any) -> Any:
    if name in TIME_FIELDS and isinstance(value, str):
        try:
            return timestamps.normalize_time(timestamps.parse_time(value))
        except ValueError:
            return value
    if name == "exclude":
        return sorted(set(value)) if value else []
    if name == "task" and isinstance(value, dict):
        return {**TASK_DEFAULTS.get(str(value.get("type")), {}), **_without_nulls(value)}
    if name == "retry" and isinstance(value, dict):
        return {**DEFAULTS["retry"], **_without_nulls(value)}
    return value


def _without_nulls(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inner for name, inner in value.items() if inner is not None}


def declared_fields(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to declare for a job, without defaults and without fields of the server.

    >>> job = {"name": "x", "schedule_type": "IMMEDIATE", "status": "SCHEDULED", "version": 1}
    >>> task = {"type": "http", "url": "http://a", "method": "POST"}
    >>> declared_fields({**job, "task": task, "max_retries": 3})
    {'name': 'x', 'schedule_type': 'IMMEDIATE', 'task': {'type': 'http', 'url': 'http://a'}}
    """
    declared: dict[str, Any] = {}
    other_names = [name for name in job if name not in FIELD_ORDER and name not in READ_ONLY_FIELDS]
    for name in (*FIELD_ORDER, *other_names):
        value = job.get(name)
        default = _normalize(name, _default_value(name, job)) if name in DEFAULTS else None
        if value is None or equal_as_json(_normalize(name, value), default):
            continue
        declared[name] = _strip_defaults(name, value)
    return declared


def _strip_defaults(name: str, value: Any) -> Any:
    if name == "task":
        defaults = TASK_DEFAULTS.get(str(value.get("type")), {})
    elif name == "retry":
        defaults = DEFAULTS["retry"]
    else:
        return value
    return {
        key: inner
        for key, inner in value.items()
        if key not in defaults or not equal_as_json(inner, defaults[key])
    }


def find_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the differences between two jobs. Both are results of `whole`."""
    found_differences: list[Difference] = []
    for name in FIELD_ORDER:
        found_differences.extend(_compare(name, old.get(name), new.get(name)))
    return found_differences


def _compare(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if equal_as_json(old, new):
        return
    if _compares_by_key(old, new) or _compares_by_key(new, old):
        old, new = ({} if value is ABSENT else value for value in (old, new))
        for key in dict.fromkeys([*old, *new]):
            yield from _compare(f"{path}.{key}", old.get(key, ABSENT), new.get(key, ABSENT))
    else:
        yield Difference(path, old, new)


def _compares_by_key(first: Any, second: Any) -> bool:
    """Return True if a mapping is compared key by key instead of as a whole."""
    return isinstance(first, dict) and (
        isinstance(second, dict) or (second is ABSENT and bool(first))
    )


def equal_as_json(first: Any, second: Any) -> bool:
    """Return True if two values are equal as JSON. 1 equals 1.0, but 1 does not equal true.

    >>> equal_as_json({"a": [1]}, {"a": [1.0]}), equal_as_json(1, True)
    (True, False)
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(
            equal_as_json(first[key], second[key]) for key in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(equal_as_json, first, second))
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    return bool(first == second)


def fields_to_send(differences: list[Difference], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to send. Each is complete, as declared, or null for its default."""
    schedule_type = declared.get("schedule_type")
    fields: dict[str, Any] = {}
    for difference in differences:
        name = difference.path.partition(".")[0]
        if name in declared:
            fields[name] = declared[name]
        elif schedule_type in TYPES_OF_FIELD.get(name, (schedule_type,)):
            fields[name] = None
    return fields
