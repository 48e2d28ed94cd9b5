"""Render jobs: the fields that were sent, the defaults of the others, and the status."""

from datetime import datetime
from typing import Any

from punctual.domain.job_state import JobPause, JobState
from punctual.domain.schedules.upcoming import next_run_at
from punctual.domain.timestamps import format_optional_time, format_time
from punctual.domain.utc import to_milliseconds
from punctual.engine.ports.history import RecentRun
from punctual.engine.ports.rows import DefinitionRow
from punctual.engine.queries.run_views import label_of, runs_in_state
from punctual.engine.queries.views import JobView, RunView
from punctual.web.models.defaults import with_defaults
from punctual.web.views.run import listed_run_json


def job_url(root: str, job_id: str) -> str:
    return f"{root}/jobs/{job_id}"


def job_json(view: JobView, root: str, now: datetime, recent: int | None = None) -> dict[str, Any]:
    """Return a job, with its last `recent` outcomes if a list asked for them."""
    state, outcomes = view.state, view.outcomes
    value = {
        "job_id": state.job_id,
        **definition_json(view.definition),
        "status": state.status.value,
        "pause": None if state.pause is None else pause_json(state.pause),
        "next_run_time": format_optional_time(next_run_at(state)),
        "latest_run": _latest_run_json(view, root, now),
        "usual_duration_ms": to_milliseconds(outcomes.usual_duration),
        "created_at": format_time(state.created_at),
        "created_by": view.definition.created_by,
        "updated_at": format_time(state.updated_at),
        "version": state.edition,
    }
    if recent is not None:
        value["recent"] = [_recent_run_json(run) for run in outcomes.recent[:recent]]
    return value


def _recent_run_json(run: RecentRun) -> dict[str, Any]:
    return {
        "status": run.status,
        "scheduled_time": format_time(run.scheduled_at),
        "run_id": run.run_id,
    }


def pause_json(pause: JobPause) -> dict[str, Any]:
    return {
        "until": format_optional_time(pause.until),
        "note": pause.note or None,
        "by": pause.by,
        "at": format_time(pause.at),
    }


def definition_json(definition: DefinitionRow) -> dict[str, Any]:
    """Return the fields that a client sent, with the defaults of the others."""
    return {**with_defaults(definition.document), "payload": definition.payload}


def status_json(view: JobView, root: str, now: datetime) -> dict[str, Any]:
    return {
        "job_id": view.state.job_id,
        "status": view.state.status.value,
        "latest_run": _latest_run_json(view, root, now),
        "next_run_time": format_optional_time(next_run_at(view.state)),
    }


def _latest_run_json(view: JobView, root: str, now: datetime) -> dict[str, Any] | None:
    latest = view.latest_run or _latest_live_run(view.state, now)
    if latest is None:
        return None
    return listed_run_json(latest._replace(label=label_of(view.definition)), root)


def has_ended_run(state: JobState) -> bool:
    """Return True if the latest run has ended, so that only the history shows it."""
    live_run_ids = {run.run_id for run in state.runs} | {
        waiting.run_id for waiting in state.wait_queue
    }
    return bool(state.latest_run_id) and state.latest_run_id not in live_run_ids


def _latest_live_run(state: JobState, now: datetime) -> RunView | None:
    """Return the latest run from the job state alone, or None if it has ended."""
    views = runs_in_state(state, now)
    return next(
        (view for view in views if view.run.run_id == state.latest_run_id and _is_live(view)), None
    )


def _is_live(view: RunView) -> bool:
    return view.run.ended_at is None
