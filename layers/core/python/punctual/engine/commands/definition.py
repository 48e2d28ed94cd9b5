"""Compiles a validated job document into the values that `decide` uses."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from punctual.domain.identifiers import jitter_ms
from punctual.domain.job_state import Kind, Lane, Limits, Misfire, Overlap, Priority, Retry, Rules
from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule
from punctual.domain.tenants.notify import letters

LONG_TASKS = frozenset({"script", "container"})
QUICK_SECONDS = 300  # runs with a longer timeout go to the long lane

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
_USUAL_LIMITS = Limits()
_KINDS = {kind.value: kind for kind in Kind}


class CompiledJob(NamedTuple):
    """A definition as rules for runs, limits, and a schedule."""

    kind: Kind
    schedule: Schedule
    rules: Rules
    limits: Limits
    notify: str = ""


def compile_definition(
    document: Mapping[str, Any], job_id: str, ref: str, now: datetime
) -> CompiledJob:
    """Return the compiled job of a document that has passed the validation of the API."""
    return CompiledJob(
        kind=_KINDS[document["schedule_type"]],
        schedule=_schedule(document, now),
        rules=_rules(document, ref, now),
        limits=_limits(document, job_id),
        notify=_notify(document),
    )


def keep_phase(new: Schedule, old: Schedule | None) -> Schedule | None:
    """Return the new schedule, or None if it equals the old one except for its anchor.

    None leaves the old schedule and its phase in force.
    """
    if isinstance(new, Every | Cron) and type(new) is type(old):
        anchored = replace(new, anchor_at=old.anchor_at)
        return None if _spelt_out(anchored) == _spelt_out(old) else new
    return None if new == old else new


def _spelt_out(schedule: Every | Cron) -> Every | Cron:
    """Fill in defaults, so an explicit default equals an omitted field."""
    if isinstance(schedule, Every):
        return schedule
    return replace(schedule, dst_gap=schedule.gap, dst_fold=schedule.fold)


def moment(text: str) -> datetime:
    """Return the UTC time of an RFC 3339 text."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _optional(text: str | None) -> datetime | None:
    return None if text is None else moment(text)


def _schedule(document: Mapping[str, Any], now: datetime) -> Schedule:
    kind = document["schedule_type"]
    if kind == "IMMEDIATE":
        return Once(now)
    if kind == "FUTURE":
        return Once(moment(document["schedule_time"]))
    start_at, end_at = _optional(document.get("start_time")), _optional(document.get("end_time"))
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
        return Rules(body=ref, since_at=now)
    task_type = (document.get("task") or {"type": "event"})["type"]
    at_most_once = document.get("delivery") == "AT_MOST_ONCE"
    timeout = _given(document, "timeout_seconds", 300)
    long = task_type in LONG_TASKS or timeout > QUICK_SECONDS
    retry = document.get("retry") or {}
    return Rules(
        body=ref,
        since_at=now,
        task_type=task_type,
        lane=Lane.LONG if long else Lane.QUICK,
        priority=Priority[document.get("priority") or "NORMAL"],
        timeout_seconds=timeout,
        max_retries=_given(document, "max_retries", 0 if at_most_once else 3),
        retry=Retry(**{name: value for name, value in retry.items() if value is not None}),
        deadline_seconds=document.get("deadline_seconds"),
        at_most_once=at_most_once,
    )


def _limits(document: Mapping[str, Any], job_id: str) -> Limits:
    if _LIMIT_FIELDS.isdisjoint(document):
        return _USUAL_LIMITS
    return Limits(
        max_concurrency=_given(document, "max_concurrency", 1),
        overlap=Overlap(document.get("overlap_policy") or "QUEUE"),
        max_waiting=_given(document, "max_waiting", 100),
        misfire=Misfire(document.get("misfire_policy") or "RUN_ONCE"),
        misfire_grace_seconds=_given(document, "misfire_grace_seconds", 60),
        max_runs=document.get("max_runs"),
        jitter_ms=jitter_ms(job_id, document.get("jitter_seconds") or 0),
    )


def _notify(document: Mapping[str, Any]) -> str:
    return letters(entry["on"] for entry in document.get("notify") or ())


def _given(document: Mapping[str, Any], name: str, default: int) -> int:
    value = document.get(name)
    return default if value is None else int(value)
