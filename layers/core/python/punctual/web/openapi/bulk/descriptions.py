"""The descriptions of fields about operations on many jobs or runs, by model."""

from collections.abc import Mapping

from punctual.web.openapi.operation import NEXT_TOKEN_TEXT

BULK_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "BulkFields": {
        "action": "What to do with each job, or for `retry` with each run.",
        "filter": "The filters of `GET /jobs` by name, or for `retry` those of `GET /runs`. A "
        "filter that may repeat takes a list. `paused_by` names the operation that paused the "
        "jobs. `latest_only`, for `retry`, leaves out runs that were retried or followed by a "
        "success.",
        "all": "True acts on all jobs or runs. It stands for an empty filter.",
        "dry_run": "True only answers what matches.",
        "until": "For `pause`: the time when the jobs resume by themselves.",
        "note": "For `pause`: why the jobs are paused.",
        "missed": "For `resume`: the policy for occurrences during the pause. Default: that of "
        "each job.",
        "payload": "For `run_now` and `retry`: the payload of each new run.",
    },
    "BulkPreview": {
        "matched": "The number of jobs or runs that match.",
        "first": "The first 20 of them.",
    },
    "OperationItemAnswer": {
        "job_id": "The id of the job.",
        "job_name": "Its name, or null if it cannot be read.",
        "run_id": "The id of the run, for `retry`.",
    },
    "OperationErrorAnswer": {
        "job_id": "The id of the job.",
        "run_id": "The id of the run, for `retry`.",
        "code": "The code of the error.",
        "message": "Why the operation could not act.",
    },
    "OperationPage": {
        "operations": "The operations, newest first.",
        "next_token": NEXT_TOKEN_TEXT,
    },
    "OperationAnswer": {
        "operation_id": "The id of the operation.",
        "action": "What it does.",
        "filter": "The filter as it was sent.",
        "status": "RUNNING, DONE after the last job or run, or CANCELLED.",
        "matched": "The number of jobs or runs when it began.",
        "done": "How many it has acted on.",
        "failed": "For how many it failed.",
        "errors": "The first 100 failures.",
        "until": "For `pause`: when the jobs resume.",
        "note": "For `pause`: why.",
        "created_by": "The caller that began it.",
        "created_at": "The time when it began.",
        "ended_at": "The time when it ended, or null.",
    },
}
