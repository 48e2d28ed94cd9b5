"""The models of answers about operations on many jobs or runs."""

from typing import Any

from punctual.domain.operations.operation import OperationAction, OperationStatus
from punctual.web.openapi.answers import Count, Id, NextToken, ResponseModel, Time


class OperationItemAnswer(ResponseModel):
    job_id: Id
    job_name: str | None
    run_id: Id | None = None


class BulkPreview(ResponseModel):
    matched: Count
    first: list[OperationItemAnswer]


class OperationErrorAnswer(ResponseModel):
    job_id: Id
    run_id: Id | None
    code: str
    message: str


class OperationAnswer(ResponseModel):
    operation_id: Id
    action: OperationAction
    filter: dict[str, Any]
    status: OperationStatus
    matched: Count
    done: Count
    failed: Count
    errors: list[OperationErrorAnswer]
    until: Time | None
    note: str
    created_by: str
    created_at: Time
    ended_at: Time | None


class OperationPage(ResponseModel):
    operations: list[OperationAnswer]
    next_token: NextToken
