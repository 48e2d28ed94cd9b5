"""From what a client sent to a document that the engine may trust, or to every wrong field."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from punctual.web.features import Features
from punctual.web.http import timestamps
from punctual.web.http.json_body import (
    CONTAINERS,
    CONTROL_CHARACTER,
    JsonBody,
    is_payload_too_long,
    value_errors,
)
from punctual.web.models.defaults import are_equivalent, with_defaults
from punctual.web.models.field_errors import Path, invalid_fields, paths_and_errors, without_paths
from punctual.web.models.job import READ_ONLY_FIELDS, JobFields
from punctual.web.models.notify import check_notify
from punctual.web.models.schedule import (
    REQUIRED_FIELDS,
    SCHEDULE_FIELDS,
    TIME_FIELDS,
    AddError,
    check_schedule,
)
from punctual.web.models.schedule_types import RECURRING_TYPES, TYPES_OF_FIELD
from punctual.web.models.task import check_task, check_timeout

DEFAULT_BACKOFF_SECONDS = 5
DEFAULT_MAX_BACKOFF_SECONDS = 300
MAX_FIELDS = 200  # of an object, and entries of a list, where the contract names no bound
MAX_LIST_ENTRIES = 1_000
SMALL_BODY_BYTES = 4_096  # a body that cannot hold a crowd
MAX_TAG_KEY_CHARACTERS = 128
MAX_TAG_VALUE_CHARACTERS = 256

_CONTAINERS = frozenset(CONTAINERS)
_UNBOUNDED_FIELDS = ("payload", "task.body")
_validate = JobFields.__pydantic_validator__.validate_python


def new_job(parsed: JsonBody, now: datetime, features: Features) -> dict[str, Any]:
    """The document of a job to be: the fields that were sent, nulls left out."""
    return _validated_document(parsed.value, parsed, now, features, is_new=True)


def changed_job(
    old: dict[str, Any], parsed: JsonBody, now: datetime, features: Features
) -> dict[str, Any]:
    """Return the document after a change: each field sent replaces the former one, whole.

    Another type of schedule drops the fields of the former type. A change that says what is
    already so, by default as well, returns `old` itself.
    """
    sent = parsed.value
    if not sent:
        return old
    kept = dict(old)
    kind = _schedule_type_after(old, sent)
    if kind is not None and kind != old.get("schedule_type"):
        kept = {name: value for name, value in old.items() if _belongs_to_type(name, kind)}
        kept["schedule_type"] = kind
    # What is in force has passed the test of its time; only a new schedule is asked again.
    present = with_defaults(old)
    touched = any(
        not _is_schedule_unchanged(name, value, present.get(name)) for name, value in sent.items()
    )
    whole = {**kept, **sent}
    new = _validated_document(whole, parsed, now if touched else None, features, is_new=False)
    return old if are_equivalent(new, old) else new


def _schedule_type_after(old: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
    """Return the type that is sent, or the one type whose defining field is sent.

    Fields that define two types leave the type as it is, so that the foreign one is refused.
    """
    if "schedule_type" in sent:
        return sent["schedule_type"]
    kinds = [kind for kind, name in REQUIRED_FIELDS.items() if sent.get(name) is not None]
    return kinds[0] if len(kinds) == 1 else old.get("schedule_type")


def _belongs_to_type(name: str, kind: Any) -> bool:
    kinds = TYPES_OF_FIELD.get(name)
    return kinds is None or kind in kinds


def _is_schedule_unchanged(name: str, new: Any, old: Any) -> bool:
    """Whether a field says nothing new about the schedule."""
    if name not in SCHEDULE_FIELDS or new == old:
        return True
    if name not in TIME_FIELDS or not isinstance(new, str) or old is None:
        return False
    try:
        return bool(timestamps.normalize_time(timestamps.parse_time(new)) == old)
    except ValueError:
        return False


def _validated_document(
    value: dict[str, Any],
    parsed: JsonBody,
    now: datetime | None,
    features: Features,
    is_new: bool,
) -> dict[str, Any]:
    found: dict[str, str] = {}
    add = found.setdefault
    flat = _is_flat(value)
    if parsed.size > SMALL_BODY_BYTES and not flat:
        _check_sizes(value)
    if parsed.may_contain_nul or not flat:
        for error in value_errors(value, parsed):
            add(*error)
    right, wrong = _valid_part(value, found)
    times = check_schedule(right, wrong, now, is_new, add)
    _check_meaning(right, wrong, parsed, features, add)
    if found:
        raise invalid_fields(found)
    return _normalized(value, times)


def _is_flat(value: dict[str, Any]) -> bool:
    """No list and no object inside, as most jobs of a batch are."""
    return len(value) <= MAX_FIELDS and _CONTAINERS.isdisjoint(map(type, value.values()))


def _check_sizes(value: dict[str, Any]) -> None:
    """So many entries are no mistake: they are not looked at one by one."""
    task = value.get("task")
    crowded = {}
    for path, inside in (("", value), ("task.", task if isinstance(task, dict) else {})):
        if len(inside) > MAX_FIELDS:
            crowded[path.rstrip(".") or "body"] = f"must have at most {MAX_FIELDS} fields"
            continue
        for name, inner in inside.items():
            if isinstance(inner, CONTAINERS) and f"{path}{name}" not in _UNBOUNDED_FIELDS:
                most = MAX_LIST_ENTRIES if isinstance(inner, list) else MAX_FIELDS
                if len(inner) > most:
                    crowded[f"{path}{name}"] = f"must have at most {most:,} entries"
    if crowded:
        raise invalid_fields(crowded)


def _valid_part(
    value: dict[str, Any], found: dict[str, str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """The fields whose type is right, and the names of the others, which are noted in `found`."""
    paths: list[Path] = [(name,) for name in found]
    try:
        _validate(value)
    except ValidationError as error:
        for path, problem in paths_and_errors(error):
            message = problem.message
            if path and path[0] in READ_ONLY_FIELDS:
                message = "is set by the server"
            found.setdefault(problem.field, message)
            paths.append(path)
    if not paths:
        return value, frozenset()
    return without_paths(value, paths), frozenset(found)


def _check_meaning(
    fields: Mapping[str, Any],
    wrong: frozenset[str],
    parsed: JsonBody,
    features: Features,
    add: AddError,
) -> None:
    """The meaning of what has the right type."""
    name = fields.get("name")
    if name is not None and CONTROL_CHARACTER.search(name):
        add("name", "must not hold control characters")
    _check_limits(fields, add)
    task = fields.get("task")
    if task is not None:
        check_task(task, wrong, features, add)
    timeout = fields.get("timeout_seconds")
    if timeout is not None:
        kind = task.get("type") if task is not None else "event"
        check_timeout(timeout, None if "task" in wrong else kind, add)
    if "payload" in fields and is_payload_too_long(fields["payload"], parsed):
        add("payload", f"must not be longer than {parsed.max_payload_bytes} bytes as JSON")
    if fields.get("tags"):
        _check_tags(fields["tags"], add)
    if fields.get("notify"):
        check_notify(fields["notify"], features, add)


def _check_limits(fields: Mapping[str, Any], add: AddError) -> None:
    concurrency = fields.get("max_concurrency")
    if concurrency is not None and concurrency > 1 and fields.get("interval_from") == "COMPLETED":
        add("max_concurrency", "must be 1 when interval_from is COMPLETED")
    if fields.get("max_retries") and fields.get("delivery") == "AT_MOST_ONCE":
        add("max_retries", "must be 0 when delivery is AT_MOST_ONCE")
    retry = fields.get("retry")
    if retry:
        backoff = _value_or_default(retry, "backoff_seconds", DEFAULT_BACKOFF_SECONDS)
        most = _value_or_default(retry, "max_backoff_seconds", DEFAULT_MAX_BACKOFF_SECONDS)
        if backoff > most:
            sent = retry.get("max_backoff_seconds") is not None
            name = "max_backoff_seconds" if sent else "backoff_seconds"
            text = f"must not be less than backoff_seconds, {backoff:g}"
            if not sent:
                text = f"must not exceed max_backoff_seconds, {most:g} by default"
            add(f"retry.{name}", text)


def _check_tags(tags: Mapping[str, str], add: AddError) -> None:
    for key, value in tags.items():
        if not 1 <= len(key) <= MAX_TAG_KEY_CHARACTERS or ":" in key:
            text = f"a tag's key has 1 to {MAX_TAG_KEY_CHARACTERS} characters and no ':'"
            add(f"tags.{key[:MAX_TAG_KEY_CHARACTERS]}", text)
        elif len(value) > MAX_TAG_VALUE_CHARACTERS:
            add(f"tags.{key}", f"must have at most {MAX_TAG_VALUE_CHARACTERS} characters")


def _normalized(value: dict[str, Any], times: Mapping[str, datetime | None]) -> dict[str, Any]:
    """Nulls stand for defaults and are left out; times are written one way."""
    document = {
        name: _without_nulls(name, inner) for name, inner in value.items() if inner is not None
    }
    if document["schedule_type"] not in RECURRING_TYPES:
        document.pop("exclude", None)
    for name, at in times.items():
        if at is not None:
            document[name] = timestamps.normalize_time(at)
    return document


def _without_nulls(name: str, value: Any) -> Any:
    if name in ("task", "retry") and None in value.values():
        return {inner: one for inner, one in value.items() if one is not None}
    return value


def _value_or_default(values: Mapping[str, Any], name: str, default: float) -> float:
    value = values.get(name)
    return default if value is None else float(value)
