"""Render the entries of the change feed."""

from typing import Any

from punctual.domain.timestamps import format_optional_time, format_time
from punctual.engine.ports.lists.change_feed import Change, ChangeKind, JobSummary
from punctual.engine.queries.run_views import view_of_row
from punctual.web.views.job import pause_json
from punctual.web.views.operation import operation_json
from punctual.web.views.run import listed_run_json


def change_json(change: Change, root: str) -> dict[str, Any]:
    value: dict[str, Any] = {
        "kind": change.kind.value,
        "state_version": change.version,
        "at": format_time(change.at),
    }
    if change.operation is not None:
        return {**value, "operation": operation_json(change.operation)}
    value["job_id"] = change.job_id
    if change.kind is ChangeKind.JOB:
        return {**value, "job": None if change.job is None else _job(change.job_id, change.job)}
    run = None if change.run is None else listed_run_json(view_of_row(change.run), root)
    return {**value, "run_id": change.run_id, "run": run}


def _job(job_id: str, job: JobSummary) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "name": job.name,
        "status": job.status.value,
        "schedule_type": job.kind.value,
        "pause": None if job.pause is None else pause_json(job.pause),
        "next_run_time": format_optional_time(job.next_run_at),
        "live_run_ids": list(job.live_run_ids),
        "waiting_runs": job.waiting_count,
        "updated_at": format_time(job.updated_at),
        "version": job.edition,
    }
