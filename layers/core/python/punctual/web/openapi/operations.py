"""Every operation of the API with its parameters, answers and descriptions."""

from typing import get_args

from punctual.web.openapi.answers import Action
from punctual.web.openapi.artifact_operations import ARTIFACT_OPERATIONS
from punctual.web.openapi.bulk.operations import BULK_OPERATIONS
from punctual.web.openapi.change_operations import CHANGE_OPERATIONS
from punctual.web.openapi.claim_operations import CLAIM_OPERATIONS
from punctual.web.openapi.job_list_operations import LIST_JOBS
from punctual.web.openapi.job_versions import LIST_VERSIONS
from punctual.web.openapi.operation import (
    FROM_PARAMETER,
    IDEMPOTENCY_KEY_PARAMETER,
    IF_MATCH_PARAMETER,
    JOB_ID_PARAMETER,
    PAGE_PARAMETERS,
    RUN_ID_PARAMETER,
    TO_PARAMETER,
    UUID_SCHEMA,
    Link,
    Operation,
    Parameter,
    Response,
    enum_schema,
    id_parameter,
    links_by_id,
)
from punctual.web.openapi.overview.operations import OVERVIEW_OPERATIONS
from punctual.web.openapi.runs.operations import RUN_LIST_OPERATIONS
from punctual.web.openapi.schedules.operations import SCHEDULE_OPERATIONS
from punctual.web.openapi.secret_operations import SECRET_OPERATIONS

TAGS = {
    "Jobs": "Define jobs: what runs, when and how.",
    "Runs": "Read, cancel and retry the runs of jobs.",
    "Changes": "Follow what changes.",
    "Operations": "Act on many jobs or runs at once.",
    "Schedules": "Preview schedules and list upcoming times.",
    "Claims": "Renew and finish attempts as an executor. The signed claim is the right.",
    "Artifacts": "Upload files that script jobs run.",
    "Access": "Manage tokens and secrets, and read the audit.",
    "Installation": "Read the health and the numbers of the installation.",
}

_JOB_ID_OF_PATH = {"job_id": "$request.path.job_id"}
_RUN_ID_OF_BODY = {"job_id": "$response.body#/job_id", "run_id": "$response.body#/run_id"}
_JOB_LINKS = links_by_id(
    "job",
    "getJob",
    "replaceJob",
    "changeJob",
    "cancelJob",
    "pauseJob",
    "resumeJob",
    "runJobNow",
    "backfillJob",
    "getJobStatus",
    "listRunsOfJob",
    "explainJob",
    "listJobVersions",
)
_RUN_LINKS = {
    name: Link(name, _RUN_ID_OF_BODY)
    for name in ("getRun", "cancelRun", "retryRun", "getRunOutput", "getRunLogs")
}
_CHANGED_JOB = Response(
    "The job after the change.", "Job", ("ETag",), {"getJob": Link("getJob", _JOB_ID_OF_PATH)}
)
_JOB_PARAMETERS = (JOB_ID_PARAMETER, IF_MATCH_PARAMETER)
_RUN_PARAMETERS = (JOB_ID_PARAMETER, RUN_ID_PARAMETER)
_TOKEN_ID_PARAMETER = id_parameter("token")
_JOB_CANCELLED = "The job is CANCELLED."
_NAME_TAKEN = "Another recurring job has the name (`NAME_TAKEN`); `job_id` is that job."
_JOB_ENDED = "The job is CANCELLED or COMPLETED."
_WRONG_VERSION = "The job has another version by now."
_CHANGE_RULES = (
    "Each field of the body replaces the old one whole; the other fields stay. Another "
    "`schedule_type` drops the fields of the old type. `schedule_time`, `cron_expression` or "
    "`interval_seconds` without a type makes the job FUTURE, CRON or INTERVAL. Fields of two "
    "types are an error. Existing runs keep the definition that they were created with."
)

_OPERATIONS = (
    Operation(
        "POST /jobs",
        "createJob",
        "Jobs",
        "Create a job",
        {202: Response("The job is stored and will run.", "Job", ("Location", "ETag"), _JOB_LINKS)},
        "`name` and the fields of one schedule type are enough. Null sets a default. Recurring "
        "jobs (CRON, INTERVAL) have different names until CANCELLED. Others may share one.",
        (IDEMPOTENCY_KEY_PARAMETER,),
        "NewJob",
        notes={409: _NAME_TAKEN},
    ),
    Operation(
        "POST /jobs/batch",
        "createJobs",
        "Jobs",
        "Create up to 500 jobs",
        {207: Response("One result for each job, in order.", "BatchResults")},
        "Each job is accepted or rejected by itself. The Idempotency-Key of item i is `<key>/<i>`.",
        (IDEMPOTENCY_KEY_PARAMETER,),
        "Batch",
    ),
    LIST_JOBS,
    Operation(
        "GET /jobs/{job_id}",
        "getJob",
        "Jobs",
        "Read a job",
        {200: Response("The job.", "Job", ("ETag",))},
        parameters=(JOB_ID_PARAMETER,),
    ),
    Operation(
        "PUT /jobs/{job_id}",
        "replaceJob",
        "Jobs",
        "Change a job (PUT)",
        {200: _CHANGED_JOB},
        f"The same as PATCH. {_CHANGE_RULES}",
        _JOB_PARAMETERS,
        "JobChange",
        notes={409: f"{_JOB_CANCELLED} Or: {_NAME_TAKEN}", 412: _WRONG_VERSION},
    ),
    Operation(
        "PATCH /jobs/{job_id}",
        "changeJob",
        "Jobs",
        "Change a job",
        {200: _CHANGED_JOB},
        _CHANGE_RULES,
        _JOB_PARAMETERS,
        "JobChange",
        notes={409: f"{_JOB_CANCELLED} Or: {_NAME_TAKEN}", 412: _WRONG_VERSION},
    ),
    Operation(
        "DELETE /jobs/{job_id}",
        "cancelJob",
        "Jobs",
        "Cancel a job",
        {200: _CHANGED_JOB},
        "Ends the schedule, cancels waiting runs and stops active runs. The job stays readable. A "
        "second call answers 200 too.",
        _JOB_PARAMETERS,
        notes={412: _WRONG_VERSION},
    ),
    Operation(
        "POST /jobs/{job_id}/pause",
        "pauseJob",
        "Jobs",
        "Pause a job",
        {200: _CHANGED_JOB},
        "Holds the schedule. Active runs continue, and runNow, backfill and retry still work. At "
        "`until` the job resumes by itself, and `misfire_policy` decides about the missed "
        "occurrences. A second call replaces `until` and `note`. The same call again changes "
        "nothing.",
        _JOB_PARAMETERS,
        "Pause",
        is_body_required=False,
        notes={409: _JOB_ENDED, 412: _WRONG_VERSION},
    ),
    Operation(
        "POST /jobs/{job_id}/resume",
        "resumeJob",
        "Jobs",
        "Resume a job",
        {200: _CHANGED_JOB},
        "Held runs continue. `missed` or the job's `misfire_policy` decides about the missed "
        "occurrences. A second call changes nothing.",
        _JOB_PARAMETERS,
        "Resume",
        is_body_required=False,
        notes={409: _JOB_ENDED, 412: _WRONG_VERSION},
    ),
    Operation(
        "GET /jobs/{job_id}/status",
        "getJobStatus",
        "Jobs",
        "Read the status of a job",
        {200: Response("The status, the latest run and the next time.", "JobStatus")},
        parameters=(JOB_ID_PARAMETER,),
    ),
    LIST_VERSIONS,
    Operation(
        "GET /jobs/{job_id}/explain",
        "explainJob",
        "Jobs",
        "Explain what happened or will happen at a time",
        {200: Response("The outcome and its reason.", "Explanation")},
        "The definition in force at that time counts. An occurrence in the same second as `at` "
        "matches.",
        (
            JOB_ID_PARAMETER,
            Parameter(
                "at",
                {"type": "string", "minLength": 1},
                "An RFC 3339 time. Without an offset it is in the job's time zone. Default: the "
                "last due time, or the first future time of a job that was never due.",
            ),
        ),
    ),
    Operation(
        "POST /jobs/{job_id}/runNow",
        "runJobNow",
        "Jobs",
        "Run a job now",
        {202: Response("The new run.", "Run", ("Location",), _RUN_LINKS)},
        "Creates one run and leaves the schedule as it is. `payload` replaces the payload of the "
        "job for this run.",
        (JOB_ID_PARAMETER, IDEMPOTENCY_KEY_PARAMETER),
        "RunNow",
        is_body_required=False,
        notes={409: _JOB_CANCELLED},
    ),
    Operation(
        "POST /jobs/{job_id}/backfill",
        "backfillJob",
        "Jobs",
        "Run the occurrences of a range that did not run",
        {
            200: Response("The result of a dry run.", "BackfillPreview"),
            202: Response("The number of created runs.", "Backfilled"),
        },
        "The schedule in force at each time counts. Before the creation of the job its first "
        "schedule counts. Occurrences after the end of `max_runs` do not count. More than 1,000 "
        "runs are a 422 that names the number. The call needs no Idempotency-Key, because a "
        "repeated call runs no occurrence twice.",
        (JOB_ID_PARAMETER,),
        "Backfill",
        notes={409: _JOB_CANCELLED},
    ),
    *RUN_LIST_OPERATIONS,
    Operation(
        "GET /jobs/{job_id}/runs/{run_id}",
        "getRun",
        "Runs",
        "Read a run",
        {200: Response("The run with all attempts.", "Run")},
        parameters=_RUN_PARAMETERS,
    ),
    Operation(
        "POST /jobs/{job_id}/runs/{run_id}/cancel",
        "cancelRun",
        "Runs",
        "Cancel a run",
        {202: Response("The run. An active run stops soon.", "Run")},
        parameters=_RUN_PARAMETERS,
        body="Nothing",
        is_body_required=False,
        notes={409: "The run has ended."},
    ),
    Operation(
        "POST /jobs/{job_id}/runs/{run_id}/retry",
        "retryRun",
        "Runs",
        "Retry a run that has ended",
        {202: Response("The new run.", "Run", ("Location",), _RUN_LINKS)},
        "The new run uses the current definition, and the original payload unless `payload` "
        "replaces it.",
        (*_RUN_PARAMETERS, IDEMPOTENCY_KEY_PARAMETER),
        "RetryRun",
        is_body_required=False,
        notes={409: "The run has not ended, or the job is CANCELLED."},
    ),
    Operation(
        "GET /jobs/{job_id}/runs/{run_id}/output",
        "getRunOutput",
        "Runs",
        "Read the output of a run",
        {
            200: Response(
                "The bytes with the content type of the task, as an attachment.",
                None,
                ("Content-Disposition", "X-Output-Truncated"),
                content="*/*",
            ),
            302: Response(
                "The presigned URL of the bytes.",
                None,
                ("Location", "X-Output-Truncated"),
                content="",
            ),
        },
        parameters=_RUN_PARAMETERS,
        notes={404: "The run does not exist, or it has no output yet."},
    ),
    Operation(
        "GET /jobs/{job_id}/runs/{run_id}/logs",
        "getRunLogs",
        "Runs",
        "Read the log of a run",
        {200: Response("The text of the log.", None, ("X-Next-Offset",), content="text/plain")},
        "A running run has a log too. Read on with `after`.",
        (
            *_RUN_PARAMETERS,
            Parameter(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 2**40, "default": 0},
                "The offset where the text begins. Send the X-Next-Offset of the answer before.",
            ),
        ),
        notes={404: "The run does not exist, or it has no log yet."},
    ),
    Operation(
        "GET /whoami",
        "whoami",
        "Access",
        "Read the caller and the limits of the tenant",
        {200: Response("The caller.", "Whoami")},
    ),
    Operation(
        "POST /tokens",
        "createToken",
        "Access",
        "Create a token",
        {
            201: Response(
                "The token with its secret. No other call shows the secret.",
                "NewToken",
                ("Location",),
                links_by_id("token", "getToken", "revokeToken"),
            )
        },
        "Only admins of the installation's own tenant may create tokens of other tenants. The call "
        "ignores an Idempotency-Key, because the secret is not stored. A tenant may have 1,000 "
        "valid tokens; another one gets 429.",
        body="TokenRequest",
    ),
    Operation(
        "GET /tokens",
        "listTokens",
        "Access",
        "List tokens",
        {200: Response("A page of tokens, newest first.", "TokenPage")},
        parameters=PAGE_PARAMETERS,
    ),
    Operation(
        "GET /tokens/{token_id}",
        "getToken",
        "Access",
        "Read a token",
        {200: Response("The token without its secret.", "Token")},
        parameters=(_TOKEN_ID_PARAMETER,),
    ),
    Operation(
        "DELETE /tokens/{token_id}",
        "revokeToken",
        "Access",
        "Revoke a token",
        {200: Response("The token, which is invalid within 60 s.", "Token")},
        "The token stays readable. A second call answers 200 too.",
        (_TOKEN_ID_PARAMETER,),
        "Nothing",
        is_body_required=False,
    ),
    Operation(
        "GET /webhook-secret",
        "getWebhookSecret",
        "Access",
        "Read the secret that signs webhooks",
        {200: Response("The secret of the tenant.", "WebhookSecret")},
        "Webhooks follow the convention of standardwebhooks.com. `webhook-signature` holds `v1,` "
        "and the base64 of an HMAC-SHA256 with this secret. It signs `webhook-id`, "
        "`webhook-timestamp` and the body, joined by dots. After a rotation of the installation's "
        "key the secret is another one, and webhooks carry signatures of both.",
    ),
    Operation(
        "GET /audit",
        "listAudit",
        "Access",
        "List the changes that callers made",
        {200: Response("A page of audit entries, newest first.", "AuditPage")},
        "An entry must match all filters. `token_id` is null and `address` is empty where an admin "
        "of the installation created a token for this tenant.",
        (
            Parameter("job_id", UUID_SCHEMA, "Changes of this job."),
            Parameter("caller", {"type": "string", "minLength": 1}, "Changes by this caller."),
            Parameter("action", enum_schema(*get_args(Action)), "Changes of this kind."),
            FROM_PARAMETER,
            TO_PARAMETER,
            *PAGE_PARAMETERS,
        ),
    ),
    Operation(
        "GET /stats",
        "getStats",
        "Installation",
        "Read statistics",
        {200: Response("The numbers of the caller's tenant.", "Stats")},
    ),
    Operation(
        "GET /health",
        "getHealth",
        "Installation",
        "Read the health of the installation",
        {
            200: Response("Jobs start on time.", "Health"),
            503: Response("Jobs start later than 15 s, or the store does not answer.", "Health"),
        },
    ),
    Operation(
        "GET /health/live",
        "getLiveness",
        "Installation",
        "Probe whether the process answers",
        {200: Response("The process answers.", "Probe")},
    ),
    Operation(
        "GET /health/ready",
        "getReadiness",
        "Installation",
        "Probe whether the installation takes requests and fires jobs",
        {
            200: Response("The installation is ready.", "Probe"),
            503: Response("The installation is not ready, or the store does not answer.", "Probe"),
        },
    ),
    Operation(
        "GET /openapi.json",
        "getOpenApi",
        "Installation",
        "Read this document",
        {200: Response("The OpenAPI 3.1 document.", "OpenApi", ("ETag",))},
    ),
)

_OTHER_OPERATIONS = (
    *SCHEDULE_OPERATIONS,
    *BULK_OPERATIONS,
    *ARTIFACT_OPERATIONS,
    *CHANGE_OPERATIONS,
    *OVERVIEW_OPERATIONS,
    *CLAIM_OPERATIONS,
    *SECRET_OPERATIONS,
)
OPERATIONS = {operation.call: operation for operation in (*_OPERATIONS, *_OTHER_OPERATIONS)}
