"""Render run changes for the event bus and webhooks. docs/events.md is the contract."""

from datetime import datetime
from typing import Any

from punctual.domain.run import Run
from punctual.domain.timestamps import format_optional_time, format_time
from punctual.domain.utc import to_milliseconds
from punctual.engine.ports.notifications import Notification

EVENT_FORMAT_VERSION = 1


def event_envelope_json(
    tenant: str, job_id: str, event_id: str, sequence: int, at: datetime
) -> dict[str, Any]:
    """Return the fields that every event begins with."""
    return {
        "version": EVENT_FORMAT_VERSION,
        "id": event_id,
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
        "queued_at": format_optional_time(run.queued_at),
        "claimed_at": format_optional_time(run.claimed_at),
        "start_time": format_optional_time(run.first_start_at),
        "end_time": format_optional_time(run.ended_at),
        "lateness_ms": to_milliseconds(run.start_lateness),
        "duration_ms": to_milliseconds(run.duration),
        "count": run.occurrence_count,
    }


def notification_json(notification: Notification, run: Run) -> dict[str, Any]:
    """Return the body of a webhook. It is the same for each delivery attempt."""
    event_id = f"{run.run_id}.{notification.version}"
    at = run.ended_at or run.changed_at
    return {
        **event_envelope_json(
            notification.tenant, notification.job_id, event_id, notification.version, at
        ),
        **run_changed_json(run, notification.previous_status or None, run.status.value),
    }
