"""Jobs as the API shows them: what was sent, the defaults of the rest, and how they stand."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from punctual.domain.head import Head, State
from punctual.domain.run import Status, Trigger
from punctual.domain.schedule import Cron
from punctual.engine.ports import Body
from punctual.engine.runs import in_head
from punctual.engine.views import JobView, RunView
from punctual.web.moments import shown, shown_or_none
from punctual.web.render_run import listed_run_json
from punctual.web.schedule_types import OF_TYPE

_SCHEDULE_DEFAULTS = {
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
}
# What a job of each type shows of its schedule; a field of another type is null.
_SCHEDULES: dict[str, dict[str, Any]] = {
    kind: {
        "schedule_type": kind,
        **{n: v if kind in OF_TYPE[n] else None for n, v in _SCHEDULE_DEFAULTS.items()},
    }
    for kind in ("IMMEDIATE", "FUTURE", "CRON", "INTERVAL")
}
_RETRY = {"backoff_seconds": 5, "max_backoff_seconds": 300, "multiplier": 2, "jitter": True}
_TASKS: dict[str, dict[str, Any]] = {
    "event": {"type": "event", "detail_type": "Job Run"},
    "http": {"type": "http", "method": "POST", "follow_redirects": 0},
}
_USUAL: dict[str, Any] = {
    "exclude": [],
    "jitter_seconds": 0,
    "misfire_policy": "RUN_ONCE",
    "misfire_grace_seconds": 60,
    "priority": "NORMAL",
    "max_concurrency": 1,
    "overlap_policy": "QUEUE",
    "max_waiting": 100,
    "timeout_seconds": 300,
    "deadline_seconds": None,
    "delivery": "AT_LEAST_ONCE",
    "notify": [],
    "tags": {},
}
_AT_REST = frozenset({State.PAUSED, State.COMPLETED, State.CANCELLED})


def job_url(root: str, job_id: str) -> str:
    return f"{root}/jobs/{job_id}"


def job_json(view: JobView, root: str, now: datetime) -> dict[str, Any]:
    head = view.head
    latest = view.latest or _latest_alive(head, now)
    return {
        "job_id": head.job_id,
        **definition_json(view.body, _clock_changes(head)),
        "status": head.state.value,
        "next_run_time": shown_or_none(next_run_at(head, now)),
        "latest_run": None if latest is None else listed_run_json(latest, root),
        "created_at": shown(head.created_at),
        "created_by": view.body.created_by,
        "updated_at": shown(head.updated_at),
        "version": head.edition,
    }


def definition_json(body: Body, clock_changes: Mapping[str, str] = {}) -> dict[str, Any]:
    """What a client sent, and the defaults of the rest."""
    sent = body.document
    task = sent.get("task")
    return {
        "name": body.name,
        **_SCHEDULES[sent["schedule_type"]],
        **_USUAL,
        "max_retries": 0 if sent.get("delivery") == "AT_MOST_ONCE" else 3,
        **clock_changes,
        **sent,
        "payload": body.payload,
        "task": _TASKS["event"] if task is None else {**_TASKS.get(task["type"], {}), **task},
        "retry": {**_RETRY, **sent["retry"]} if "retry" in sent else _RETRY,
    }


def status_json(view: JobView, root: str, now: datetime) -> dict[str, Any]:
    latest = view.latest or _latest_alive(view.head, now)
    return {
        "job_id": view.head.job_id,
        "status": view.head.state.value,
        "latest_run": None if latest is None else listed_run_json(latest, root),
        "next_run_time": shown_or_none(next_run_at(view.head, now)),
    }


def next_run_at(head: Head, now: datetime) -> datetime | None:
    """The next occurrence; what is fired ahead of its time is still to come."""
    if head.state in _AT_REST:
        return None
    ahead = [
        run.scheduled_at
        for run in head.runs
        if run.status is Status.QUEUED
        and run.trigger is Trigger.SCHEDULE
        and run.scheduled_at > now
        and not run.past
    ]
    return min(ahead) if ahead else head.next_at


def _latest_alive(head: Head, now: datetime) -> RunView | None:
    """The answer to a submission has read no history, but the head knows what it began."""
    if not head.latest:
        return None
    return next((view for view in in_head(head, now) if view.run.run_id == head.latest), None)


def _clock_changes(head: Head) -> dict[str, str]:
    schedule = head.schedule
    if not isinstance(schedule, Cron):
        return {}
    return {"dst_gap": schedule.gap, "dst_fold": schedule.fold}
