"""Compare declared job fields with present ones, after defaults are filled in."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from punctual.web.http import timestamps
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


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Any = _Absent()


def whole(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return every field with its default. Fields of other schedule types are null."""
    kind = fields.get("schedule_type")
    found = {name: fields.get(name) for name in ("name", "schedule_type")}
    for name in DEFAULTS:
        value = fields.get(name)
        belongs = name not in TYPES_OF_FIELD or kind in TYPES_OF_FIELD[name]
        if value is None:
            value = _default(name, fields) if belongs else None
        found[name] = _normal(name, value)
    return found


def _default(name: str, fields: Mapping[str, Any]) -> Any:
    if name == "max_retries" and fields.get("delivery") == "AT_MOST_ONCE":
        return 0
    # EventBridge expressions always skip local times that do not exist.
    if name == "dst_gap" and ")" in str(fields.get("cron_expression") or ""):
        return "SKIP"
    return DEFAULTS[name]


def _normal(name: str, value: Any) -> Any:
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


def declared_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to declare for a job, without defaults and without fields of the server.

    >>> declared_of({"name": "x", "schedule_type": "IMMEDIATE", "status": "SCHEDULED", "version": 1,
    ...     "task": {"type": "http", "url": "http://a", "method": "POST"}, "max_retries": 3})
    {'name': 'x', 'schedule_type': 'IMMEDIATE', 'task': {'type': 'http', 'url': 'http://a'}}
    """
    found: dict[str, Any] = {}
    others = [name for name in job if name not in FIELD_ORDER and name not in READ_ONLY_FIELDS]
    for name in (*FIELD_ORDER, *others):
        value = job.get(name)
        default = _normal(name, _default(name, job)) if name in DEFAULTS else None
        if value is None or same(_normal(name, value), default):
            continue
        found[name] = _bare(name, value)
    return found


def _bare(name: str, value: Any) -> Any:
    if name == "task":
        defaults = TASK_DEFAULTS.get(str(value.get("type")), {})
    elif name == "retry":
        defaults = DEFAULTS["retry"]
    else:
        return value
    return {k: v for k, v in value.items() if k not in defaults or not same(v, defaults[k])}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return the differences between two jobs. Both are results of `whole`."""
    found: list[Difference] = []
    for name in FIELD_ORDER:
        found.extend(_between(name, old.get(name), new.get(name)))
    return found


def _between(path: str, old: Any, new: Any) -> Iterator[Difference]:
    if same(old, new):
        return
    if _opens(old, new) or _opens(new, old):
        old, new = ({} if value is ABSENT else value for value in (old, new))
        for key in dict.fromkeys([*old, *new]):
            yield from _between(f"{path}.{key}", old.get(key, ABSENT), new.get(key, ABSENT))
    else:
        yield Difference(path, old, new)


def _opens(one: Any, other: Any) -> bool:
    """Return True if a mapping is compared key by key instead of as a whole."""
    return isinstance(one, dict) and (isinstance(other, dict) or (other is ABSENT and bool(one)))


def same(one: Any, other: Any) -> bool:
    """Return True if two values are equal as JSON. 1 equals 1.0, but 1 does not equal true.

    >>> same({"a": [1]}, {"a": [1.0]}), same(1, True)
    (True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other)


def change_of(found: list[Difference], declared: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields to send. Each is complete, as declared, or null for its default."""
    kind = declared.get("schedule_type")
    sent: dict[str, Any] = {}
    for difference in found:
        name = difference.path.partition(".")[0]
        if name in declared:
            sent[name] = declared[name]
        elif kind in TYPES_OF_FIELD.get(name, (kind,)):
            sent[name] = None
    return sent
