"""Compiles a validated job document into the values that `decide` uses."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from punctual.domain.identifiers import jitter_ms
from punctual.domain.job_state import (
    JobLimits,
    Lane,
    MisfirePolicy,
    OverlapPolicy,
    Priority,
    Retry,
    Rules,
    ScheduleKind,
)
from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule
from punctual.domain.task_limits import LONG_TASK_TYPES
from punctual.domain.tenants.notify import notify_letters

MAX_QUICK_TIMEOUT_SECONDS = 300  # runs with a longer timeout go to the long lane

# Most documents set few fields. Without any of these fields the defaults apply.
_RULE_FIELDS = frozenset(
    {
        "task",
        "delivery",
        "timeout_seconds",
        "retry",
        "priority",
        "max_retries",
        "deadline_seconds",
    }
)
_LIMIT_FIELDS = frozenset(
    {
        "max_concurrency",
        "overlap_policy",
        "max_waiting",
        "misfire_policy",
        "misfire_grace_seconds",
        "max_runs",
        "jitter_seconds",
    }
)
_DEFAULT_LIMITS = JobLimits()
_KINDS_BY_VALUE = {kind.value: kind for kind in ScheduleKind}


class CompiledJob(NamedTuple):
    """A definition as rules for runs, limits, and a schedule."""

    kind: ScheduleKind
    schedule: Schedule
    rules: Rules
    limits: JobLimits
    notify: str = ""


def compile_definition(
    document: Mapping[str, Any], job_id: str, ref: str, now: datetime
) -> CompiledJob:
    """Return the compiled job of a document that has passed the validation of the API."""
    return CompiledJob(
        kind=_KINDS_BY_VALUE[document["schedule_type"]],
        schedule=_schedule(document, now),
        rules=_rules(document, ref, now),
        limits=_limits(document, job_id),
        notify=_notify(document),
    )


def changed_schedule(new: Schedule, old: Schedule | None) -> Schedule | None:
    """Return the new schedule, or None if it equals the old one except for its anchor.

    None leaves the old schedule and its phase in force.
    """
    if isinstance(new, Every | Cron) and type(new) is type(old):
        same_anchor = replace(new, anchor_at=old.anchor_at)
        return None if _with_defaults(same_anchor) == _with_defaults(old) else new
    return None if new == old else new


def _with_defaults(schedule: Every | Cron) -> Every | Cron:
    """Fill in defaults, so an explicit default equals an omitted field."""
    if isinstance(schedule, Every):
        return schedule
    return replace(schedule, dst_gap=schedule.gap, dst_fold=schedule.fold)


def parse_time(text: str) -> datetime:
    """Return the UTC time of an RFC 3339 text."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _parse_optional_time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)


def _schedule(document: Mapping[str, Any], now: datetime) -> Schedule:
    kind = document["schedule_type"]
    if kind == "IMMEDIATE":
        return Once(now)
    if kind == "FUTURE":
        return Once(parse_time(document["schedule_time"]))
    start_at, end_at = (
        _parse_optional_time(document.get("start_time")),
        _parse_optional_time(document.get("end_time")),
    )
    exclude = tuple(sorted({date.fromisoformat(day) for day in document.get("exclude") or ()}))
    timezone = document.get("timezone") or "UTC"
    if kind == "CRON":
        return Cron(
            expression=document["cron_expression"],
            timezone=timezone,
            dst_gap=document.get("dst_gap") or "",
            dst_fold=document.get("dst_fold") or "",
            start_at=start_at,
            end_at=end_at,
            exclude=exclude,
            anchor_at=now if document["cron_expression"].lstrip().startswith("rate") else None,
        )
    return Every(
        seconds=document["interval_seconds"],
        anchor_at=now,
        from_completion=document.get("interval_from") == "COMPLETED",
        start_at=start_at,
        end_at=end_at,
        exclude=exclude,
        timezone=timezone,
    )


def _rules(document: Mapping[str, Any], ref: str, now: datetime) -> Rules:
    if _RULE_FIELDS.isdisjoint(document):
        return Rules(definition_ref=ref, effective_at=now)
    task = document.get("task") or {"type": "event"}
    task_type = task["type"]
    resources = (task.get("resources") if task_type == "script" else None) or {}
    at_most_once = document.get("delivery") == "AT_MOST_ONCE"
    timeout = _value_or_default(document, "timeout_seconds", 300)
    is_long = task_type in LONG_TASK_TYPES or timeout > MAX_QUICK_TIMEOUT_SECONDS
    retry = document.get("retry") or {}
    return Rules(
        definition_ref=ref,
        effective_at=now,
        task_type=task_type,
        lane=Lane.LONG if is_long else Lane.QUICK,
        priority=Priority[document.get("priority") or "NORMAL"],
        timeout_seconds=timeout,
        max_retries=_value_or_default(document, "max_retries", 0 if at_most_once else 3),
        retry=Retry(**{name: value for name, value in retry.items() if value is not None}),
        deadline_seconds=document.get("deadline_seconds"),
        at_most_once=at_most_once,
        memory_mb=resources.get("memory_mb") or 0,
        has_artifact=task_type == "script" and bool(task.get("artifact_id")),
    )


def _limits(document: Mapping[str, Any], job_id: str) -> JobLimits:
    if _LIMIT_FIELDS.isdisjoint(document):
        return _DEFAULT_LIMITS
    return JobLimits(
        max_concurrency=_value_or_default(document, "max_concurrency", 1),
        overlap=OverlapPolicy(document.get("overlap_policy") or "QUEUE"),
        max_waiting=_value_or_default(document, "max_waiting", 100),
        misfire=MisfirePolicy(document.get("misfire_policy") or "RUN_ONCE"),
        misfire_grace_seconds=_value_or_default(document, "misfire_grace_seconds", 60),
        max_runs=document.get("max_runs"),
        jitter_ms=jitter_ms(job_id, document.get("jitter_seconds") or 0),
    )


def _notify(document: Mapping[str, Any]) -> str:
    return notify_letters(entry["on"] for entry in document.get("notify") or ())


def _value_or_default(document: Mapping[str, Any], name: str, default: int) -> int:
    value = document.get(name)
    return default if value is None else int(value)
