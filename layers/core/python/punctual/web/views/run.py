"""Render runs and their attempts."""

from collections.abc import Sequence
from typing import Any

from punctual.domain.run import HELD_RUN_STATUSES, Progress, Reason, Run, RunStatus
from punctual.domain.timestamps import format_optional_time, format_time
from punctual.domain.utc import to_milliseconds
from punctual.engine.ports.rows import AttemptRow
from punctual.engine.queries.explain import REASON_TEXTS
from punctual.engine.queries.views import RunView


def run_url(root: str, job_id: str, run_id: str) -> str:
    return f"{root}/jobs/{job_id}/runs/{run_id}"


def run_json(view: RunView, root: str) -> dict[str, Any]:
    """Return a run with every attempt."""
    value = listed_run_json(view, root)
    attempts = [_ended_attempt_json(row) for row in view.attempts]
    current = _current_attempt_json(view)
    value["attempts"] = attempts if current is None else [*attempts, current]
    value["progress"] = _progress(view.progress)
    return value


def listed_run_json(view: RunView, root: str) -> dict[str, Any]:
    """Return a run as lists show it, without its attempts."""
    run, detail = view.run, view.detail
    url = run_url(root, view.job_id, run.run_id)
    has_log = bool(detail.log_blob) or run.status is RunStatus.RUNNING
    has_output = detail.output is not None or bool(detail.output_blob)
    value: dict[str, Any] = {
        "run_id": run.run_id,
        "job_id": view.job_id,
        "job_name": None if view.label is None else view.label.name,
        "task_type": view.task_type,
        "job_version": run.definition,
        "trigger": run.trigger,
        "retried_from": run.retried_from or None,
        "status": run.status,
        "reason": _reason(run),
        "scheduled_time": format_time(run.scheduled_at),
        "due_time": format_time(run.due_at),
        "queued_at": format_optional_time(run.queued_at),
        "claimed_at": format_optional_time(run.claimed_at),
        "start_time": format_optional_time(run.first_start_at),
        "end_time": format_optional_time(run.ended_at),
        "modified_time": format_time(run.changed_at),
        "created_at": format_time(run.created_at),
        "next_attempt_time": format_optional_time(_next_attempt(run)),
        "lateness_ms": to_milliseconds(run.start_lateness),
        "duration_ms": to_milliseconds(run.duration),
        "attempt_number": run.attempt,
        "executor_id": run.executor_id or None,
        "error_message": _error(view),
        "exit_code": detail.exit_code,
        "log_url": f"{url}/logs" if has_log else None,
        "output_url": f"{url}/output" if has_output else None,
        "output_truncated": detail.output_truncated,
        "log_truncated": detail.log_truncated,
        "output_discarded": detail.discarded,
        "count": run.occurrence_count,
        "tzdata": view.tzdata,
    }
    if run.last_at is not None:
        value["last_scheduled_time"] = format_time(run.last_at)
    if detail.http_status is not None:
        value["http_status"] = detail.http_status
        value["http_headers"] = [list(pair) for pair in detail.http_headers]
    if view.has_payload:
        value["payload"] = view.payload
    return value


def _progress(progress: Progress | None) -> dict[str, Any] | None:
    if progress is None:
        return None
    return {"percent": progress.percent, "text": progress.text or None}


def _next_attempt(run: Run) -> Any:
    is_waiting = run.status in (RunStatus.WAITING, RunStatus.QUEUED)
    return run.next_at if is_waiting and run.past_attempts else None


def _reason(run: Run) -> dict[str, str] | None:
    if run.reason is Reason.NONE:
        return None
    return {"code": run.reason.value, "text": REASON_TEXTS.get(run.reason, "")}


def _error(view: RunView) -> str | None:
    """Return the error of the last attempt that ended."""
    if view.detail.error:
        return view.detail.error
    if view.run.ended_at is None and view.attempts:
        return _last_error(view.attempts)
    return None


def _last_error(attempts: Sequence[AttemptRow]) -> str | None:
    return attempts[-1].detail.error or None


def _ended_attempt_json(row: AttemptRow) -> dict[str, Any]:
    return {
        "attempt_number": row.number,
        "start_time": format_time(row.started_at),
        "end_time": format_time(row.ended_at),
        "status": "LOST" if row.lost else row.status,
        "executor_id": row.executor_id or None,
        "error_message": row.detail.error or None,
    }


def _current_attempt_json(view: RunView) -> dict[str, Any] | None:
    """Return the attempt that runs now, or the attempt that ended the run."""
    run = view.run
    if run.attempt_at is None or not (run.status in HELD_RUN_STATUSES or run.ended_at is not None):
        return None
    return {
        "attempt_number": run.attempt,
        "start_time": format_time(run.attempt_at),
        "end_time": format_optional_time(run.ended_at),
        "status": run.status.value,
        "executor_id": run.executor_id or None,
        "error_message": view.detail.error or None,
    }
