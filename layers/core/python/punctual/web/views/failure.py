"""Render open failures."""

from typing import Any

from punctual.domain.failures import Acknowledgement
from punctual.domain.timestamps import format_time
from punctual.engine.queries.overview.failures import FailureView


def failure_json(view: FailureView) -> dict[str, Any]:
    failure = view.failure
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
        "acknowledged": _acknowledgement_json(failure.acknowledged),
    }


def _acknowledgement_json(acknowledgement: Acknowledgement | None) -> dict[str, Any] | None:
    if acknowledgement is None:
        return None
    return {
        "by": acknowledgement.by,
        "at": format_time(acknowledgement.at),
        "note": acknowledgement.note or None,
    }
