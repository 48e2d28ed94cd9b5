"""Render operations on many jobs."""

from collections.abc import Mapping, Sequence
from typing import Any

from punctual.domain.operations.operation import Operation, OperationError, OperationItem
from punctual.domain.timestamps import format_optional_time, format_time


def operation_url(root: str, operation_id: str) -> str:
    return f"{root}/operations/{operation_id}"


def operation_json(operation: Operation) -> dict[str, Any]:
    return {
        "operation_id": operation.operation_id,
        "action": operation.action.value,
        "filter": operation.filter,
        "status": operation.status.value,
        "matched": operation.matched,
        "done": operation.done,
        "failed": operation.failed,
        "errors": [_error_json(error) for error in operation.errors],
        "until": format_optional_time(operation.until),
        "note": operation.note,
        "created_by": operation.created_by,
        "created_at": format_time(operation.created_at),
        "ended_at": format_optional_time(operation.ended_at),
    }


def preview_json(matched: int, first: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"matched": matched, "first": list(first)}


def item_json(item: OperationItem, job_name: str | None) -> dict[str, Any]:
    value: dict[str, Any] = {"job_id": item.job_id, "job_name": job_name}
    return {**value, "run_id": item.run_id} if item.run_id else value


def _error_json(error: OperationError) -> dict[str, Any]:
    return {
        "job_id": error.job_id,
        "run_id": error.run_id or None,
        "code": error.code,
        "message": error.message,
    }
