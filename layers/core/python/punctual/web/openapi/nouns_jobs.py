"""The calls about jobs."""

from punctual.domain.job_state import JobStatus, Kind
from punctual.web.openapi.operation import (
    IDEMPOTENCY_KEY_PARAMETER,
    IF_MATCH_PARAMETER,
    JOB_ID_PARAMETER,
    PAGE_PARAMETERS,
    Link,
    Operation,
    Parameter,
    Response,
    enum_schema,
)

_JOB_ID_OF_BODY = {"job_id": "$response.body#/job_id"}
_JOB_LINKS = {
    name: Link(name, _JOB_ID_OF_BODY)
    for name in (
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
    )
}
_JOB_ID_OF_PATH = {"job_id": "$request.path.job_id"}
_RUN_ID_OF_BODY = {"job_id": "$response.body#/job_id", "run_id": "$response.body#/run_id"}
RUN_LINKS = {
    name: Link(name, _RUN_ID_OF_BODY)
    for name in ("getRun", "cancelRun", "retryRun", "getRunOutput", "getRunLogs")
}
_CHANGED_JOB = Response(
    "The job as it is now.", "Job", ("ETag",), {"getJob": Link("getJob", _JOB_ID_OF_PATH)}
)
_JOB_CANCELLED = "The job is CANCELLED."
_WRONG_VERSION = "The job has another version by now."
_TYPE_CHANGE = (
    "Another `schedule_type` drops the former type's fields. `schedule_time`, `cron_expression` or "
    "`interval_seconds` without a type makes the job FUTURE, CRON or INTERVAL; fields of two types "
    "are refused. Runs that exist keep the definition they were made with."
)

JOB_OPERATIONS = (
    Operation(
        "createJob",
        "Jobs",
        "Submit a job",
        {202: Response("Kept, and sure to run.", "Job", ("Location", "ETag"), _JOB_LINKS)},
        "`name` and the fields of one schedule type are a whole job; null sets a default.",
        (IDEMPOTENCY_KEY_PARAMETER,),
        "NewJob",
    ),
    Operation(
        "createJobs",
        "Jobs",
        "Submit up to 500 jobs",
        {207: Response("One result for each, in order.", "BatchResults")},
        "Each is accepted or refused on its own. Item i's idempotency key is `<key>/<i>`.",
        (IDEMPOTENCY_KEY_PARAMETER,),
        "Batch",
    ),
    Operation(
        "listJobs",
        "Jobs",
        "List jobs",
        {200: Response("A page, newest first.", "JobPage")},
        "Filters combine by AND; `status` and `tag` may repeat.",
        (
            Parameter("status", enum_schema(*JobStatus), "Jobs in one of these.", many=True),
            Parameter("schedule_type", enum_schema(*Kind), "Jobs of this type."),
            Parameter("name_prefix", {"type": "string"}, "Jobs whose name begins so."),
            Parameter("created_by", {"type": "string", "minLength": 1}, "Jobs of this caller."),
            Parameter(
                "tag",
                {"type": "string", "pattern": "^[^:]+:[\\s\\S]*$"},
                "`key:value`, all of which a job must have.",
                many=True,
            ),
            *PAGE_PARAMETERS,
        ),
    ),
    Operation(
        "getJob",
        "Jobs",
        "Read a job",
        {200: Response("The job.", "Job", ("ETag",))},
        parameters=(JOB_ID_PARAMETER,),
    ),
    Operation(
        "replaceJob",
        "Jobs",
        "Change a job (PUT)",
        {200: _CHANGED_JOB},
        f"The same as PATCH: a merge of top-level fields. {_TYPE_CHANGE}",
        (JOB_ID_PARAMETER, IF_MATCH_PARAMETER),
        "JobChange",
        notes={409: _JOB_CANCELLED, 412: _WRONG_VERSION},
    ),
    Operation(
        "changeJob",
        "Jobs",
        "Change a job",
        {200: _CHANGED_JOB},
        f"A merge of top-level fields. {_TYPE_CHANGE}",
        (JOB_ID_PARAMETER, IF_MATCH_PARAMETER),
        "JobChange",
        notes={409: _JOB_CANCELLED, 412: _WRONG_VERSION},
    ),
    Operation(
        "cancelJob",
        "Jobs",
        "Cancel a job",
        {200: _CHANGED_JOB},
        "Ends what is scheduled and stops what runs. It stays readable; again: 200.",
        (JOB_ID_PARAMETER, IF_MATCH_PARAMETER),
        notes={412: _WRONG_VERSION},
    ),
    Operation(
        "pauseJob",
        "Jobs",
        "Pause a job",
        {200: _CHANGED_JOB},
        "Holds its schedule; what runs goes on, and what a person orders runs. Idempotent.",
        (JOB_ID_PARAMETER, IF_MATCH_PARAMETER),
        "Nothing",
        must=False,
        notes={409: "The job is CANCELLED or COMPLETED.", 412: _WRONG_VERSION},
    ),
    Operation(
        "resumeJob",
        "Jobs",
        "Resume a job",
        {200: _CHANGED_JOB},
        "Held runs go on; what was missed follows `misfire_policy`, or `missed`. Idempotent.",
        (JOB_ID_PARAMETER, IF_MATCH_PARAMETER),
        "Resume",
        must=False,
        notes={409: "The job is CANCELLED or COMPLETED.", 412: _WRONG_VERSION},
    ),
    Operation(
        "getJobStatus",
        "Jobs",
        "How a job stands",
        {200: Response("Its status, latest run and next time.", "JobStatus")},
        parameters=(JOB_ID_PARAMETER,),
    ),
    Operation(
        "explainJob",
        "Jobs",
        "What happened at a time, or will, and why",
        {200: Response("By the definition in force then.", "Explanation")},
        "An occurrence matches within the second of `at`.",
        (
            JOB_ID_PARAMETER,
            Parameter(
                "at",
                {"type": "string", "minLength": 1},
                "An RFC 3339 time; without an offset it is in the job's time zone. Left out: the "
                "last due time, or the first one to come where none was due yet.",
            ),
        ),
    ),
    Operation(
        "runJobNow",
        "Jobs",
        "Run a job now",
        {202: Response("The run.", "Run", ("Location",), RUN_LINKS)},
        "One run, the schedule untouched; with `payload`, of another payload.",
        (JOB_ID_PARAMETER, IDEMPOTENCY_KEY_PARAMETER),
        "RunNow",
        must=False,
        notes={409: _JOB_CANCELLED},
    ),
    Operation(
        "backfillJob",
        "Jobs",
        "Run what fell in a range and did not run",
        {
            200: Response("Of a dry run: what would run.", "BackfillPreview"),
            202: Response("How many runs were made.", "Backfilled"),
        },
        "By the schedule in force at each time, and before the job by its first; what max_runs cut "
        "off never fell. Over 1,000 runs: 422 with the number. An Idempotency-Key has nothing to "
        "do here: asked again, no time runs twice.",
        (JOB_ID_PARAMETER,),
        "Backfill",
        notes={409: _JOB_CANCELLED},
    ),
)
