"""Builds the events for the event bus. docs/events.md is their contract."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from punctual.domain.job_state import JobState, JobStatus, Rules
from punctual.domain.task_limits import LATER_STARTING_TASK_TYPES
from punctual.domain.timestamps import format_optional_time
from punctual.lambdas.status.changes import Changes, JobChange, RunChange
from punctual.tasks.limits import RESERVED_DETAIL_TYPES
from punctual.tasks.script_function import MAX_FUNCTION_SCRIPT_SECONDS
from punctual.web.views.event import event_envelope_json, run_changed_json

EVENT_SOURCE = "punctual"
JOB_CHANGED, RUN_CHANGED, STOP_REQUESTED = RESERVED_DETAIL_TYPES
ALL_RUN_EVENTS, ENDED_RUN_EVENTS = "all", "ended"  # which changes of runs become events

Event = Mapping[str, Any]


def build_events(
    state: JobState, sequence: int, changed_at: datetime, changes: Changes, run_events: str
) -> Iterator[Event]:
    """Yield events in the order of their ids. `state` is the present or last job state."""
    if changes.job is not None:
        yield _bus_event(JOB_CHANGED, _job_detail(state, sequence, changed_at, changes.job))
    for change in changes.runs:
        if run_events == ALL_RUN_EVENTS or (run_events == ENDED_RUN_EVENTS and change.has_ended):
            yield _bus_event(RUN_CHANGED, _run_detail(state, sequence, changed_at, change))


def stop_events(old: JobState | None, new: JobState | None) -> Iterator[Event]:
    """Yield the event that stops containers of runs with a new cancel request.

    A container without our runner does not renew. Without this event only the sweep, up to a
    minute later, would stop it.
    """
    if new is None:
        return
    requested = {run.run_id for state in (old,) if state for run in state.runs if run.cancel_reason}
    run_ids = [
        run.run_id
        for run in new.runs
        if run.is_held
        and run.cancel_reason
        and run.run_id not in requested
        and _may_run_in_container(new.rules[run.definition])
    ]
    if run_ids:
        yield _bus_event(STOP_REQUESTED, {"job_id": new.job_id, "run_ids": run_ids})


def _may_run_in_container(rules: Rules) -> bool:
    """Return whether a task of ECS may run this. A script with much memory is found by a sweep."""
    is_long = rules.timeout_seconds > MAX_FUNCTION_SCRIPT_SECONDS
    return rules.task_type in LATER_STARTING_TASK_TYPES or (rules.task_type == "script" and is_long)


def _bus_event(kind: str, detail: Mapping[str, Any]) -> Event:
    return {"source": EVENT_SOURCE, "detail-type": kind, "detail": detail}


def _job_detail(
    state: JobState, sequence: int, changed_at: datetime, change: JobChange
) -> dict[str, Any]:
    next_at = state.next_at if change.after is JobStatus.SCHEDULED else None
    return {
        **_envelope(state, f"{state.job_id}.{sequence}", sequence, changed_at),
        "job_version": state.edition,
        "schedule_type": state.kind.value,
        "from": change.before,
        "to": change.after,
        "reason": change.reason,
        "next_run_time": format_optional_time(next_at),
    }


def _run_detail(
    state: JobState, sequence: int, changed_at: datetime, change: RunChange
) -> dict[str, Any]:
    run, before, after = change.run, change.before, change.after
    return {
        **_envelope(state, f"{run.run_id}.{sequence}", sequence, changed_at),
        **run_changed_json(
            run,
            None if before is None else before.status.value,
            None if after is None else after.status.value,
        ),
    }


def _envelope(
    state: JobState, event_id: str, sequence: int, changed_at: datetime
) -> dict[str, Any]:
    return event_envelope_json(state.tenant, state.job_id, event_id, sequence, changed_at)
