"""The operations that act on many jobs or runs at once."""

from punctual.web.openapi.operation import (
    IDEMPOTENCY_KEY_PARAMETER,
    NOT_OFFERED,
    PAGE_PARAMETERS,
    Operation,
    Response,
    id_parameter,
    links_by_id,
)

_OPERATION_LINKS = links_by_id("operation", "getOperation", "cancelOperation")
_OPERATION_ID_PARAMETER = id_parameter("operation")

BULK_OPERATIONS = (
    Operation(
        "POST /jobs/bulk",
        "beginOperation",
        "Operations",
        "Act on many jobs or runs",
        {
            200: Response("With `dry_run`: what matches. Nothing is changed.", "BulkPreview"),
            202: Response(
                "The operation. It continues by itself, also after a crash.",
                "OperationAnswer",
                ("Location",),
                _OPERATION_LINKS,
            ),
        },
        "What matches is fixed when the operation begins, and each job or run is acted on once. "
        "At most 100,000 jobs or 10,000 runs may match. Without `status` in the filter, `pause` "
        "reaches SCHEDULED jobs, `resume` PAUSED ones, `cancel` and `run_now` both, and `retry` "
        "runs that are FAILED or TIMED_OUT.",
        (IDEMPOTENCY_KEY_PARAMETER,),
        "BulkRequest",
        notes=NOT_OFFERED,
    ),
    Operation(
        "GET /operations",
        "listOperations",
        "Operations",
        "List operations",
        {200: Response("A page of operations of the last 7 days, newest first.", "OperationPage")},
        parameters=PAGE_PARAMETERS,
        notes=NOT_OFFERED,
    ),
    Operation(
        "GET /operations/{operation_id}",
        "getOperation",
        "Operations",
        "Read an operation",
        {200: Response("The operation with its progress.", "OperationAnswer")},
        parameters=(_OPERATION_ID_PARAMETER,),
    ),
    Operation(
        "POST /operations/{operation_id}/cancel",
        "cancelOperation",
        "Operations",
        "Cancel an operation",
        {200: Response("The operation. What is done stays done.", "OperationAnswer")},
        "A change that is under way may still happen. An operation that has ended stays as it is.",
        (_OPERATION_ID_PARAMETER,),
        "Nothing",
        is_body_required=False,
    ),
)
