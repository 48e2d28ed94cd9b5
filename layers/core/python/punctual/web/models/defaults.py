"""What a job is where its document says nothing: shown to readers, and no change when said."""

from collections.abc import Mapping
from typing import Any

import msgspec

from punctual.domain.schedules.values import Cron
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
    "tags": {},
}
# Of a task, by its type.
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "event": {"detail_type": "Job Run"},
    "http": {"method": "POST", "follow_redirects": 0},
}


def _defaults_of_type(kind: str) -> dict[str, Any]:
    """What a job of this type shows; a field of another type is null, and dates are none."""
    others = {
        name for name, kinds in TYPES_OF_FIELD.items() if kind not in kinds and DEFAULTS[name] != []
    }
    shown = {name: None if name in others else value for name, value in DEFAULTS.items()}
    return {"schedule_type": kind, **shown}


_DEFAULTS_BY_TYPE = {
    kind: _defaults_of_type(kind) for kind in ("IMMEDIATE", "FUTURE", "CRON", "INTERVAL")
}
_EMPTY_EQUALS_ABSENT = ("headers", "args", "env", "resources")  # of a task, where they are empty
_encode = msgspec.json.Encoder(order="deterministic").encode


def with_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """A document with the defaults of what it does not name."""
    kind, task = document["schedule_type"], document.get("task") or DEFAULTS["task"]
    return {
        "name": document["name"],
        **_DEFAULTS_BY_TYPE[kind],
        **(_clock_change_defaults(document) if kind == "CRON" else {}),
        **({"max_retries": 0} if document.get("delivery") == "AT_MOST_ONCE" else {}),
        **document,
        "task": {"type": task["type"], **TASK_DEFAULTS.get(task["type"], {}), **task},
        "retry": {**DEFAULTS["retry"], **document.get("retry", {})},
    }


def are_equivalent(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Of two documents, whatever of the defaults each names; as JSON: true is not 1 there."""
    mine, yours = _comparable(one), _comparable(other)
    return mine == yours and _encode(mine) == _encode(yours)


def _comparable(document: Mapping[str, Any]) -> dict[str, Any]:
    whole = with_defaults(document)
    task, retry = whole["task"], whole["retry"]
    return {
        **whole,
        "task": {name: v for name, v in task.items() if v or name not in _EMPTY_EQUALS_ABSENT},
        "retry": {name: v if isinstance(v, bool) else float(v) for name, v in retry.items()},
    }


def _clock_change_defaults(document: Mapping[str, Any]) -> dict[str, str]:
    """EventBridge's own expressions have other defaults."""
    schedule = Cron(document["cron_expression"])
    return {"dst_gap": schedule.gap, "dst_fold": schedule.fold}
