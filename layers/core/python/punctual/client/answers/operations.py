"""Answers about operations on many jobs."""

from typing import Any

import msgspec

from punctual.client.model import AwareDatetime, Model


class OperationItem(Model, frozen=True, kw_only=True):
    """A job that an operation would act on, or one of its runs."""

    job_id: str
    job_name: str | None = None
    run_id: str | None = None


class BulkPreview(Model, frozen=True, kw_only=True):
    """How many jobs or runs match, and the first 20 of them."""

    matched: int
    first: tuple[OperationItem, ...] = ()


class OperationError(Model, frozen=True, kw_only=True):
    """Why an operation could not act on one job or run."""

    job_id: str
    run_id: str | None = None
    code: str = ""
    message: str = ""


class Operation(Model, frozen=True, kw_only=True):
    """An action on many jobs or runs, with its progress."""

    operation_id: str
    action: str
    status: str
    matched: int
    done: int
    failed: int
    filter: dict[str, Any] = msgspec.field(default_factory=dict)
    errors: tuple[OperationError, ...] = ()
    until: AwareDatetime | None = None
    note: str = ""
    created_by: str = ""
    created_at: AwareDatetime
    ended_at: AwareDatetime | None = None

    @property
    def ended(self) -> bool:
        return self.status != "RUNNING"
