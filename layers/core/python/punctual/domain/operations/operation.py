"""An operation: one action on many jobs, or on many runs, with its progress."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

OPERATION_RETENTION = timedelta(days=7)
MAX_OPERATION_ERRORS = 100
MAX_OPERATION_JOBS = 100_000
MAX_OPERATION_RUNS = 10_000  # each of a retry reads its run and writes a new one
MAX_SLICE_ITEMS = 100  # that one slice acts on
# Since the last progress. Later a slice is not repeated, because its jobs forget the operation.
MAX_SLICE_AGE = timedelta(hours=6)


class OperationAction(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RUN_NOW = "run_now"
    RETRY = "retry"

    @property
    def is_on_runs(self) -> bool:
        return self is OperationAction.RETRY


class OperationStatus(StrEnum):
    RUNNING = "RUNNING"
    DONE = "DONE"
    CANCELLED = "CANCELLED"


class OperationItem(NamedTuple):
    """A job, or a run of a job, that the operation acts on once."""

    job_id: str
    run_id: str = ""


class OperationError(Struct, frozen=True, omit_defaults=True):
    """Why the operation could not act on one item."""

    job_id: str
    code: str
    message: str
    run_id: str = ""


class Operation(Struct, frozen=True, omit_defaults=True):
    """The progress of an operation. `next_item` is the number of the first item still to act on."""

    tenant: str
    operation_id: str
    action: OperationAction
    filter: dict[str, Any]
    matched: int
    created_at: datetime
    expires_at: datetime
    created_by: str = ""
    until: datetime | None = None
    note: str = ""
    missed: str = ""
    status: OperationStatus = OperationStatus.RUNNING
    next_item: int = 0
    done: int = 0
    failed: int = 0
    errors: tuple[OperationError, ...] = ()
    ended_at: datetime | None = None
    revision: int = 1  # each write raises it
    moved_at: datetime | None = None  # when `next_item` last rose

    @property
    def is_running(self) -> bool:
        return self.status is OperationStatus.RUNNING

    def without_errors(self) -> "Operation":
        """Return the operation as the change feed holds it. Errors may be long."""
        return replace(self, errors=()) if self.errors else self


class ItemResults(NamedTuple):
    """What became of some items: how many were acted on, and the errors of the others."""

    done: int
    errors: tuple[OperationError, ...] = ()

    @property
    def item_count(self) -> int:
        return self.done + len(self.errors)


def with_results(operation: Operation, results: ItemResults, now: datetime) -> Operation:
    """Return the operation after these items. It is DONE after its last item.

    A cancelled operation stays CANCELLED, and counts the items that were under way.
    """
    next_item = operation.next_item + results.item_count
    is_done = operation.is_running and next_item >= operation.matched
    return replace(
        operation,
        next_item=next_item,
        done=operation.done + results.done,
        failed=operation.failed + len(results.errors),
        errors=(*operation.errors, *results.errors)[:MAX_OPERATION_ERRORS],
        status=OperationStatus.DONE if is_done else operation.status,
        ended_at=now if is_done else operation.ended_at,
        revision=operation.revision + 1,
        moved_at=now if results.item_count else operation.moved_at,
    )


def cancelled(operation: Operation, now: datetime) -> Operation:
    """Return the operation after its cancel. One that has ended stays as it is."""
    if not operation.is_running:
        return operation
    return replace(
        operation,
        status=OperationStatus.CANCELLED,
        ended_at=now,
        revision=operation.revision + 1,
    )
