"""Turn a request body into a valid job document, or report every wrong field."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from punctual.domain import timestamps
from punctual.web.features import Features
from punctual.web.http.json_body import (
    CONTAINER_TYPES,
    CONTROL_CHARACTER,
    JsonBody,
    is_payload_too_long,
    value_errors,
)
from punctual.web.models.defaults import are_equivalent, with_defaults
from punctual.web.models.field_errors import (
    MAX_FIELDS,
    FieldPath,
    invalid_fields,
    paths_and_errors,
    without_paths,
)
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
MAX_LIST_ENTRIES = 1_000
SMALL_BODY_BYTES = 4_096  # a body of this size cannot hold too many entries
MAX_TAG_KEY_CHARACTERS = 128
MAX_TAG_VALUE_CHARACTERS = 256

_CONTAINER_TYPES = frozenset(CONTAINER_TYPES)
_UNBOUNDED_FIELDS = ("payload", "task.body")
_validate = JobFields.__pydantic_validator__.validate_python


def new_job(body: JsonBody, now: datetime, features: Features) -> dict[str, Any]:
    """Return the document of a new job: the fields that were sent, without nulls."""
    return _validated_document(body.value, body, now, features, is_new=True)


def changed_job(
    old: dict[str, Any], body: JsonBody, now: datetime, features: Features
) -> dict[str, Any]:
    """Return the document after a change. Each field that was sent replaces the old one whole.

    Another schedule type drops the fields of the old type. A change without effect returns
    `old` itself.
    """
    sent = body.value
    if not sent:
        return old
    base = dict(old)
    schedule_type = _schedule_type_after(old, sent)
    if schedule_type is not None and schedule_type != old.get("schedule_type"):
        base = {name: value for name, value in old.items() if _belongs_to_type(name, schedule_type)}
        base["schedule_type"] = schedule_type
    # The old schedule may be in the past by now. Only a new schedule is checked against the clock.
    current = with_defaults(old)
    is_rescheduled = any(
        not _is_schedule_unchanged(name, value, current.get(name)) for name, value in sent.items()
    )
    merged = {**base, **sent}
    new = _validated_document(merged, body, now if is_rescheduled else None, features, is_new=False)
    return old if are_equivalent(new, old) else new


def _schedule_type_after(old: Mapping[str, Any], sent: Mapping[str, Any]) -> Any:
    """Return the type that was sent, or the type of the required field that was sent.

    Required fields of two types leave the type as it is. The foreign field is then an error.
    """
    if "schedule_type" in sent:
        return sent["schedule_type"]
    kinds = [kind for kind, name in REQUIRED_FIELDS.items() if sent.get(name) is not None]
    return kinds[0] if len(kinds) == 1 else old.get("schedule_type")


def _belongs_to_type(name: str, kind: Any) -> bool:
    kinds = TYPES_OF_FIELD.get(name)
    return kinds is None or kind in kinds


def _is_schedule_unchanged(name: str, new: Any, old: Any) -> bool:
    """Return True if a field does not change the schedule."""
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
    body: JsonBody,
    now: datetime | None,
    features: Features,
    is_new: bool,
) -> dict[str, Any]:
    errors: dict[str, str] = {}
    add_error = errors.setdefault
    is_flat = _is_flat(value)
    if body.size > SMALL_BODY_BYTES and not is_flat:
        _check_sizes(value)
    if body.may_contain_nul or not is_flat:
        for error in value_errors(value, body):
            add_error(*error)
    valid_fields, wrong_names = _valid_part(value, errors)
    times = check_schedule(valid_fields, wrong_names, now, is_new, add_error)
    _check_meaning(valid_fields, wrong_names, body, features, add_error)
    if errors:
        raise invalid_fields(errors)
    return _normalize(value, times)


def _is_flat(value: dict[str, Any]) -> bool:
    """Return True if no field holds a list or an object, as in most jobs of a batch."""
    return len(value) <= MAX_FIELDS and _CONTAINER_TYPES.isdisjoint(map(type, value.values()))


def _check_sizes(value: dict[str, Any]) -> None:
    """Raise if an object or a list has too many entries to check one by one."""
    task = value.get("task")
    errors = {}
    for path, fields in (("", value), ("task.", task if isinstance(task, dict) else {})):
        if len(fields) > MAX_FIELDS:
            errors[path.rstrip(".") or "body"] = f"must have at most {MAX_FIELDS} fields"
            continue
        for name, inner in fields.items():
            if isinstance(inner, CONTAINER_TYPES) and f"{path}{name}" not in _UNBOUNDED_FIELDS:
                max_entries = MAX_LIST_ENTRIES if isinstance(inner, list) else MAX_FIELDS
                if len(inner) > max_entries:
                    errors[f"{path}{name}"] = f"must have at most {max_entries:,} entries"
    if errors:
        raise invalid_fields(errors)


def _valid_part(
    value: dict[str, Any], errors: dict[str, str]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the fields with the right type and the names of the others, and fill `errors`."""
    paths: list[FieldPath] = [(name,) for name in errors]
    try:
        _validate(value)
    except ValidationError as error:
        for path, field_error in paths_and_errors(error):
            message = field_error.message
            if path and path[0] in READ_ONLY_FIELDS:
                message = "is set by the server: leave it out"
            errors.setdefault(field_error.field, message)
            paths.append(path)
    if not paths:
        return value, frozenset()
    return without_paths(value, paths), frozenset(errors)


def _check_meaning(
    fields: Mapping[str, Any],
    wrong_names: frozenset[str],
    body: JsonBody,
    features: Features,
    add_error: AddError,
) -> None:
    """Check what the fields with the right type mean."""
    name = fields.get("name")
    if name is not None and CONTROL_CHARACTER.search(name):
        add_error("name", "must not hold control characters")
    _check_limits(fields, add_error)
    task = fields.get("task")
    if task is not None:
        check_task(task, wrong_names, features, add_error)
    timeout = fields.get("timeout_seconds")
    if timeout is not None:
        task_type = task.get("type") if task is not None else "event"
        check_timeout(timeout, None if "task" in wrong_names else task_type, features, add_error)
    if "payload" in fields and is_payload_too_long(fields["payload"], body):
        add_error("payload", f"must not be longer than {body.max_payload_bytes} bytes as JSON")
    if fields.get("tags"):
        _check_tags(fields["tags"], add_error)
    if fields.get("notify"):
        check_notify(fields["notify"], features, add_error)


def _check_limits(fields: Mapping[str, Any], add_error: AddError) -> None:
    concurrency = fields.get("max_concurrency")
    if concurrency is not None and concurrency > 1 and fields.get("interval_from") == "COMPLETED":
        add_error("max_concurrency", "must be 1 when interval_from is COMPLETED")
    if fields.get("max_retries") and fields.get("delivery") == "AT_MOST_ONCE":
        add_error("max_retries", "must be 0 when delivery is AT_MOST_ONCE")
    retry = fields.get("retry")
    if retry:
        backoff = _value_or_default(retry, "backoff_seconds", DEFAULT_BACKOFF_SECONDS)
        max_backoff = _value_or_default(retry, "max_backoff_seconds", DEFAULT_MAX_BACKOFF_SECONDS)
        if backoff > max_backoff:
            is_sent = retry.get("max_backoff_seconds") is not None
            name = "max_backoff_seconds" if is_sent else "backoff_seconds"
            text = f"must be at least backoff_seconds, which is {backoff:g}"
            if not is_sent:
                text = f"must be at most max_backoff_seconds, which is {max_backoff:g} by default"
            add_error(f"retry.{name}", text)


def _check_tags(tags: Mapping[str, str], add_error: AddError) -> None:
    for key, value in tags.items():
        if not 1 <= len(key) <= MAX_TAG_KEY_CHARACTERS or ":" in key:
            text = f"must have a key of 1 to {MAX_TAG_KEY_CHARACTERS} characters without ':'"
            add_error(f"tags.{key[:MAX_TAG_KEY_CHARACTERS]}", text)
        elif len(value) > MAX_TAG_VALUE_CHARACTERS:
            add_error(f"tags.{key}", f"must have at most {MAX_TAG_VALUE_CHARACTERS} characters")


def _normalize(value: dict[str, Any], times: Mapping[str, datetime | None]) -> dict[str, Any]:
    """Return the document without nulls, and with all times in one form."""
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
        return {field: inner for field, inner in value.items() if inner is not None}
    return value


def _value_or_default(values: Mapping[str, Any], name: str, default: float) -> float:
    value = values.get(name)
    return default if value is None else float(value)
