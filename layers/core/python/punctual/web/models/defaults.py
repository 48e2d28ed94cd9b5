"""The defaults of a job's fields, and a comparison of documents that respects them."""

from collections.abc import Mapping
from typing import Any

from punctual.domain.schedules.values import Cron
from punctual.web.http.json_body import encode_canonical
from punctual.web.models.schedule_types import TYPES_OF_FIELD

DEFAULTS: dict[str, Any] = {
    "schedule_time": None,
    "cron_expression": None,
    "timezone": "UTC",
    "dst_gap": "NEXT",
    "dst_fold": "FIRST",
    "interval_seconds": None,
    "interval_from": "SCHEDULED",
    "start_time": None,
    "end_time": None,
    "max_runs": None,
    "exclude": [],
    "jitter_seconds": 0,
    "misfire_policy": "RUN_ONCE",
    "misfire_grace_seconds": 60,
    "task": {"type": "event"},
    "payload": None,
    "priority": "NORMAL",
    "max_concurrency": 1,
    "overlap_policy": "QUEUE",
    "max_waiting": 100,
    "timeout_seconds": 300,
    "max_retries": 3,
    "retry": {"backoff_seconds": 5, "max_backoff_seconds": 300, "multiplier": 2, "jitter": True},
    "deadline_seconds": None,
    "delivery": "AT_LEAST_ONCE",
    "notify": [],
    "output": "keep",
    "tags": {},
}
# The defaults of a task's fields, by task type.
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "event": {"detail_type": "Job Run"},
    "http": {"method": "POST", "follow_redirects": 0},
}


def _defaults_of_type(kind: str) -> dict[str, Any]:
    """Return the defaults for a schedule type. Fields of other types are null or empty."""
    others = {
        name for name, kinds in TYPES_OF_FIELD.items() if kind not in kinds and DEFAULTS[name] != []
    }
    defaults = {name: None if name in others else value for name, value in DEFAULTS.items()}
    return {"schedule_type": kind, **defaults}


_DEFAULTS_BY_TYPE = {
    kind: _defaults_of_type(kind) for kind in ("IMMEDIATE", "FUTURE", "CRON", "INTERVAL")
}
_EMPTY_EQUALS_ABSENT = ("headers", "args", "env", "resources")  # fields of a task


def with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a default for each absent field."""
    schedule_type, task = document["schedule_type"], document.get("task") or DEFAULTS["task"]
    return {
        "name": document["name"],
        **_DEFAULTS_BY_TYPE[schedule_type],
        **(_clock_change_defaults(document) if schedule_type == "CRON" else {}),
        **({"max_retries": 0} if document.get("delivery") == "AT_MOST_ONCE" else {}),
        **document,
        "task": {"type": task["type"], **TASK_DEFAULTS.get(task["type"], {}), **task},
        "retry": {**DEFAULTS["retry"], **document.get("retry", {})},
    }


def are_equivalent(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return True if two documents mean the same job. An explicit default equals an absent field.

    The JSON text is compared too, because `True == 1` in Python.
    """
    left, right = _comparable(first), _comparable(second)
    return left == right and encode_canonical(left) == encode_canonical(right)


def _comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    complete = with_defaults(document)
    task, retry = complete["task"], complete["retry"]
    return {
        **complete,
        "task": {
            name: value for name, value in task.items() if value or name not in _EMPTY_EQUALS_ABSENT
        },
        "retry": {
            name: value if isinstance(value, bool) else float(value)
            for name, value in retry.items()
        },
    }


def _clock_change_defaults(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the clock change defaults of an expression. Those of EventBridge differ."""
    schedule = Cron(document["cron_expression"])
    return {"dst_gap": schedule.gap, "dst_fold": schedule.fold}
