"""A change of a run as the event bus and webhooks tell it: docs/events.md is the contract."""

from datetime import datetime, timedelta
from typing import Any

from punctual.domain.run import Run
from punctual.engine.execution.notifications import Notification
from punctual.web.http.timestamps import format_optional_time, format_time

EVENT_FORMAT_VERSION = 1
_MILLISECOND = timedelta(milliseconds=1)


def event_envelope_json(
    tenant: str, job_id: str, told: str, sequence: int, at: datetime
) -> dict[str, Any]:
    """What everything that is told begins with; `told` is its id."""
    return {
        "version": EVENT_FORMAT_VERSION,
        "id": told,
        "sequence": sequence,
        "time": format_time(at),
        "tenant": tenant,
        "job_id": job_id,
    }


def run_changed_json(run: Run, before: str | None, after: str | None) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "job_version": run.definition,
        "trigger": run.trigger.value,
        "retried_from": run.retried_from or None,
        "from": before,
        "to": after,
        "reason": run.reason.value or None,
        "attempt_number": run.attempt,
        "scheduled_time": format_time(run.scheduled_at),
        "due_time": format_time(run.due_at),
        "start_time": format_optional_time(run.started_at),
        "end_time": format_optional_time(run.ended_at),
        "lateness_ms": None if run.lateness is None else run.lateness / _MILLISECOND,
        "count": run.count,
    }


def notification_json(notice: Notification, run: Run) -> dict[str, Any]:
    """The same each time it is tried."""
    told = f"{run.run_id}.{notice.version}"
    at = run.ended_at or run.changed_at
    return {
        **event_envelope_json(notice.tenant, notice.job_id, told, notice.version, at),
        **run_changed_json(run, notice.before or None, run.status.value),
    }
