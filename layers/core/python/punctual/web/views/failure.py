"""Render open failures."""

from typing import Any

from punctual.domain.timestamps import format_time
from punctual.engine.queries.overview.failures import FailureView


def failure_json(view: FailureView) -> dict[str, Any]:
    failure, known = view.failure, view.failure.acknowledged
    return {
        "failure_id": failure.failure_id,
        "job_id": failure.job_id,
        "job_name": view.job_name,
        "error": failure.error,
        "status": failure.status,
        "count": failure.count,
        "first_at": format_time(failure.first_at),
        "last_at": format_time(failure.last_at),
        "last_run_id": failure.last_run_id,
        "acknowledged": None
        if known is None
        else {"by": known.by, "at": format_time(known.at), "note": known.note or None},
    }
