"""The calls on operations: act on many jobs or runs at once."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from msgspec import UNSET

from punctual.client.answers.operations import BulkPreview, Operation
from punctual.client.call_steps import ClientSettings, Steps, Stream, send_request
from punctual.client.calls.paging import stream_pages
from punctual.client.endpoints.changes import Follower, reconnecting
from punctual.client.fields import MisfirePolicy, TimeValue
from punctual.client.model import convert_model, decode_model
from punctual.client.run_watch import MAX_WATCH_POLL_SECONDS
from punctual.client.wire import (
    Repeat,
    Request,
    build_path,
    encode_body,
    idempotency_headers,
)

BulkAction = Literal["pause", "resume", "cancel", "run_now", "retry"]
OperationRef = str | Operation
OPERATION_READ_SECONDS = 60.0  # an operation is read so often also without an entry


def begin(
    settings: ClientSettings,
    action: BulkAction,
    filter: Mapping[str, Any] | None = None,  # noqa: A002
    *,
    all: bool = False,  # noqa: A002
    until: TimeValue | None = None,
    note: str | None = None,
    missed: MisfirePolicy | None = None,
    payload: Any = UNSET,
    idempotency_key: str | None = None,
) -> Steps[Operation]:
    """Begin an operation on all jobs that match the filter, or for `retry` on all runs.

    It continues by itself. `wait_for` returns it after its end.
    """
    key = settings.new_idempotency_key() if idempotency_key is None else idempotency_key
    request = Request(
        "POST",
        "/jobs/bulk",
        body=encode_body(_fields(action, filter, all, until, note, missed, payload)),
        headers=idempotency_headers(key),
        repeat=Repeat.SAFE,
    )
    return decode_model(Operation, (yield from send_request(settings, request)))


def preview(
    settings: ClientSettings,
    action: BulkAction,
    filter: Mapping[str, Any] | None = None,  # noqa: A002
    *,
    all: bool = False,  # noqa: A002
) -> Steps[BulkPreview]:
    """Return what an operation would act on, without beginning it."""
    fields = {**_fields(action, filter, all, None, None, None, UNSET), "dry_run": True}
    request = Request("POST", "/jobs/bulk", body=encode_body(fields), repeat=Repeat.READS)
    return decode_model(BulkPreview, (yield from send_request(settings, request)))


def list_operations(settings: ClientSettings, *, limit: int | None = None) -> Stream[Operation]:
    """Yield the operations of the last 7 days, newest first."""
    return stream_pages(
        settings,
        "/operations",
        (),
        "operations",
        lambda value: convert_model(Operation, value),
        limit,
    )


def get(settings: ClientSettings, operation: OperationRef) -> Steps[Operation]:
    request = Request("GET", _operation_path(operation), repeat=Repeat.READS)
    return decode_model(Operation, (yield from send_request(settings, request)))


def cancel(settings: ClientSettings, operation: OperationRef) -> Steps[Operation]:
    """Stop an operation. What is done stays done."""
    request = Request("POST", _operation_path(operation, "cancel"), repeat=Repeat.SAFE)
    return decode_model(Operation, (yield from send_request(settings, request)))


def wait_for(
    settings: ClientSettings,
    operation: OperationRef,
    *,
    on_progress: Callable[[Operation], None] | None = None,
) -> Steps[Operation]:
    """Return the operation after its end. `on_progress` gets each state after a change.

    It comes from the change feed. The operation itself is read at last, for its errors.
    """
    operation_id = operation if isinstance(operation, str) else operation.operation_id
    follower = Follower(settings, kind="operation", max_poll_seconds=MAX_WATCH_POLL_SECONDS)
    yield from reconnecting(settings, follower.begin)
    while True:
        current = yield from reconnecting(settings, partial(get, settings, operation_id))
        assert current is not None
        if on_progress is not None:
            on_progress(current)
        if current.ended:
            return current
        steady_end = settings.steady_clock() + OPERATION_READ_SECONDS
        while not current.ended and settings.steady_clock() < steady_end:
            page = yield from follower.read(steady_end - settings.steady_clock())
            if page.gap:
                break
            for change in page.changes:
                if change.operation is not None and change.operation.operation_id == operation_id:
                    current = change.operation
                    if on_progress is not None and not current.ended:
                        on_progress(current)


def _fields(
    action: BulkAction,
    bulk_filter: Mapping[str, Any] | None,
    is_all: bool,
    until: TimeValue | None,
    note: str | None,
    missed: MisfirePolicy | None,
    payload: Any,
) -> dict[str, Any]:
    fields: dict[str, Any] = {"action": action, "filter": dict(bulk_filter or {})}
    given = {"all": is_all or None, "until": until, "note": note, "missed": missed}
    fields.update((name, value) for name, value in given.items() if value is not None)
    return fields if payload is UNSET else {**fields, "payload": payload}


def _operation_path(operation: OperationRef, *parts: str) -> str:
    operation_id = operation if isinstance(operation, str) else operation.operation_id
    return build_path("operations", operation_id, *parts)
