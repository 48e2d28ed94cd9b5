"""Builds the events for the event bus. docs/events.md is their contract."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from punctual.domain.job_state import JobState, JobStatus
from punctual.lambdas.status.changes import Changes, JobChange, RunChange
from punctual.tasks.limits import OWN_DETAIL_TYPES
from punctual.web.http.timestamps import format_optional_time
from punctual.web.views.event import event_envelope_json, run_changed_json

SOURCE = "punctual"
JOB_CHANGED, RUN_CHANGED = OWN_DETAIL_TYPES
ALL, ENDED = "all", "ended"  # which changes of runs become events

Event = Mapping[str, Any]


def events(
    head: JobState, sequence: int, at: datetime, changes: Changes, runs: str
) -> Iterator[Event]:
    """Yield events in the order of their ids. `head` is the present or last job state."""
    if changes.job is not None:
        yield _event(JOB_CHANGED, _job(head, sequence, at, changes.job))
    for change in changes.runs:
        if runs == ALL or (runs == ENDED and change.has_ended):
            yield _event(RUN_CHANGED, _run(head, sequence, at, change))


def _event(kind: str, detail: Mapping[str, Any]) -> Event:
    return {"source": SOURCE, "detail-type": kind, "detail": detail}


def _job(head: JobState, sequence: int, at: datetime, change: JobChange) -> dict[str, Any]:
    coming = head.next_at if change.after is JobStatus.SCHEDULED else None
    return {
        **_common(head, f"{head.job_id}.{sequence}", sequence, at),
        "job_version": head.edition,
        "schedule_type": head.kind.value,
        "from": change.before,
        "to": change.after,
        "reason": change.reason,
        "next_run_time": format_optional_time(coming),
    }


def _run(head: JobState, sequence: int, at: datetime, change: RunChange) -> dict[str, Any]:
    run, before, after = change.run, change.before, change.after
    return {
        **_common(head, f"{run.run_id}.{sequence}", sequence, at),
        **run_changed_json(
            run,
            None if before is None else before.status.value,
            None if after is None else after.status.value,
        ),
    }


def _common(head: JobState, told: str, sequence: int, at: datetime) -> dict[str, Any]:
    return event_envelope_json(head.tenant, head.job_id, told, sequence, at)
