"""Begin, read and cancel operations."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from punctual.domain.errors import LimitExceeded, Unavailable
from punctual.domain.operations.operation import (
    OPERATION_RETENTION,
    Operation,
    OperationAction,
    OperationItem,
    OperationStatus,
    cancelled,
)
from punctual.engine.commands import audit
from punctual.engine.commands.idempotency import IdempotencyKeys
from punctual.engine.operations.matching import BulkFilter, Matcher
from punctual.engine.ports.audit_log import Actor, AuditLog, Note
from punctual.engine.ports.clock import Clock, NewId
from punctual.engine.ports.lists.operations import OperationKey, OperationRequest, Operations
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.operations import OperationQueries
from punctual.engine.queries.runs.job_labels import JobLabels
from punctual.engine.queries.slices import Sliced

# Operations of a tenant at the same time. On AWS requests at the same moment may pass together.
MAX_RUNNING = 20
RUNNING_RETRY_SECONDS = 60.0
_TOO_MANY_RUNNING = (
    f"This tenant has {MAX_RUNNING} running operations: wait until one ends, or cancel one."
)
MAX_CANCEL_TRIES = 64  # a running operation writes its progress at the same time


class BulkRequest(NamedTuple):
    """What a client asks for. `filter_json` is the filter as it was sent."""

    action: OperationAction
    bulk_filter: BulkFilter
    filter_json: Mapping[str, Any]
    until: datetime | None = None
    note: str = ""
    missed: str = ""
    payload: Any = UNSET


class OperationCommands:
    def __init__(
        self,
        operations: Operations,
        matcher: Matcher,
        labels: JobLabels,
        idempotency_keys: IdempotencyKeys,
        audit_log: AuditLog,
        clock: Clock,
        new_id: NewId,
        notify_created: Callable[[OperationKey], None],
    ) -> None:
        self._operations = operations
        self.queries = OperationQueries(operations)
        self._matcher = matcher
        self._labels = labels
        self._idempotency_keys = idempotency_keys
        self._audit_log = audit_log
        self._clock = clock
        self._new_id = new_id
        self._notify_created = notify_created

    def preview(self, tenant: str, request: BulkRequest) -> Sliced[Sequence[OperationItem]]:
        """Return what the operation would act on now."""
        return self._matcher.matches(tenant, request.action, request.bulk_filter, self._clock())

    def begin(
        self,
        tenant: str,
        caller: str,
        request: BulkRequest,
        actor: Actor,
        key: str | None = None,
        fingerprint: str = "",
    ) -> Sliced[Operation]:
        """Store an operation on all that matches now. It is durable on return."""
        now, new_id = self._clock(), self._new_id()
        operation_id = self._idempotency_keys.resolve_id(tenant, key, fingerprint, new_id, now)
        operation_key = OperationKey(tenant, operation_id)
        repeated = None if operation_id == new_id else self._operations.load(operation_key)
        if repeated is not None:
            return repeated
        items = yield from self._matcher.matches(tenant, request.action, request.bulk_filter, now)
        has_payload = request.payload is not UNSET
        operation = _new_operation(operation_key, caller, request, items, now)
        stored_request = OperationRequest(
            msgspec.json.encode(actor), request.payload if has_payload else None, has_payload
        )
        twin = self._operations.load(operation_key)  # of a request at the same time
        if twin is not None:
            return twin
        if operation.is_running and self._operations.count_running(tenant) >= MAX_RUNNING:
            raise LimitExceeded(_TOO_MANY_RUNNING, RUNNING_RETRY_SECONDS)
        # The note comes first, so no operation lacks one.
        self._add_note(tenant, actor, audit.OPERATION_BEGIN, now, _audited_fields(operation))
        if not self._operations.create(operation, stored_request, items):
            return self.queries.load(tenant, operation_id)
        if operation.is_running:
            self._notify_created(operation_key)
        return operation

    def job_names(self, tenant: str, items: Sequence[OperationItem]) -> Mapping[str, str]:
        """Return the names of the jobs of these items, by job id."""
        keys = [JobKey(tenant, job_id) for job_id in dict.fromkeys(item.job_id for item in items)]
        labels = self._labels.load(keys) if keys else {}
        return {key.job_id: label.name for key, label in labels.items()}

    def cancel(self, tenant: str, operation_id: str, actor: Actor) -> Operation:
        """Stop an operation. A slice that is under way may still end; what is done stays done."""
        now = self._clock()
        for _ in range(MAX_CANCEL_TRIES):
            operation = self.queries.load(tenant, operation_id)
            stopped = cancelled(operation, now)
            if stopped is operation:
                return operation
            if self._operations.swap(stopped):
                after = {"operation_id": operation_id}
                self._add_note(tenant, actor, audit.OPERATION_CANCEL, now, after)
                return stopped
        raise Unavailable("The operation changes too often: try again.")

    def _add_note(
        self, tenant: str, actor: Actor, action: str, at: datetime, after: dict[str, Any]
    ) -> None:
        self._audit_log.add_note(tenant, Note(actor, action, at, after=after))


def _audited_fields(operation: Operation) -> dict[str, Any]:
    return {
        "operation_id": operation.operation_id,
        "action": operation.action.value,
        "filter": operation.filter,
        "matched": operation.matched,
    }


def _new_operation(
    key: OperationKey,
    caller: str,
    request: BulkRequest,
    items: Sequence[OperationItem],
    now: datetime,
) -> Operation:
    has_items = bool(items)
    return Operation(
        key.tenant,
        key.operation_id,
        request.action,
        dict(request.filter_json),
        len(items),
        now,
        now + OPERATION_RETENTION,
        created_by=caller,
        until=request.until,
        note=request.note,
        missed=request.missed,
        status=OperationStatus.RUNNING if has_items else OperationStatus.DONE,
        ended_at=None if has_items else now,
    )
