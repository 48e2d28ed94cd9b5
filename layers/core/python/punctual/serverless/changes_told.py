"""What the event bus is told of changes: docs/events.md is the contract of it."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from punctual.domain.head import Head, State
from punctual.serverless.changes import Changes, JobChange, RunChange
from punctual.tasks.limits import OWN_DETAIL_TYPES
from punctual.web.moments import shown, shown_or_none

SOURCE = "punctual"
JOB_CHANGED, RUN_CHANGED = OWN_DETAIL_TYPES
SCHEMA = 1
ALL, ENDED, NONE = "all", "ended", "none"  # which changes of runs are told

Event = Mapping[str, Any]
_MILLISECOND = timedelta(milliseconds=1)


def events(head: Head, sequence: int, at: datetime, changes: Changes, runs: str) -> Iterator[Event]:
    """In the order of their ids; `head` as it stands now, or stood last."""
    if changes.job is not None:
        yield _event(JOB_CHANGED, _job(head, sequence, at, changes.job))
    for change in changes.runs:
        if runs == ALL or (runs == ENDED and change.has_ended):
            yield _event(RUN_CHANGED, _run(head, sequence, at, change))


def _event(kind: str, detail: Mapping[str, Any]) -> Event:
    return {"source": SOURCE, "detail-type": kind, "detail": detail}


def _job(head: Head, sequence: int, at: datetime, change: JobChange) -> dict[str, Any]:
    coming = head.next_at if change.after is State.SCHEDULED else None
    return {
        **_common(head, f"{head.job_id}.{sequence}", sequence, at),
        "job_version": head.edition,
        "schedule_type": head.kind.value,
        "from": change.before,
        "to": change.after,
        "reason": change.reason,
        "next_run_time": shown_or_none(coming),
    }


def _run(head: Head, sequence: int, at: datetime, change: RunChange) -> dict[str, Any]:
    run = change.run
    return {
        **_common(head, f"{run.run_id}.{sequence}", sequence, at),
        "run_id": run.run_id,
        "job_version": run.definition,
        "trigger": run.trigger.value,
        "retried_from": run.retried_from or None,
        "from": None if change.before is None else change.before.status.value,
        "to": None if change.after is None else change.after.status.value,
        "reason": run.reason.value or None,
        "attempt_number": run.attempt,
        "scheduled_time": shown(run.scheduled_at),
        "due_time": shown(run.due_at),
        "start_time": shown_or_none(run.started_at),
        "end_time": shown_or_none(run.ended_at),
        "lateness_ms": None if run.lateness is None else run.lateness / _MILLISECOND,
        "count": run.count,
    }


def _common(head: Head, told: str, sequence: int, at: datetime) -> dict[str, Any]:
    return {
        "version": SCHEMA,
        "id": told,
        "sequence": sequence,
        "time": shown(at),
        "tenant": head.tenant,
        "job_id": head.job_id,
    }
