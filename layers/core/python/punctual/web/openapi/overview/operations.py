"""The operations that say how things stand: open failures."""

from punctual.web.openapi.operation import (
    NOT_OFFERED,
    PAGE_PARAMETERS,
    UUID_SCHEMA,
    Operation,
    Parameter,
    Response,
)

_FAILURE_ID_PARAMETER = Parameter(
    "failure_id", {"type": "string"}, "The id of the failure.", "path", required=True
)

OVERVIEW_OPERATIONS = (
    Operation(
        "GET /overview",
        "getOverview",
        "Installation",
        "Read whether everything is all right",
        {200: Response("A verdict, one sentence and its facts.", "Overview")},
        "The facts are those of the caller's tenant. A run is late if it is due, and waits over "
        "15 s for anything but the rules of its own job. Probes read `/health`, plots read "
        "`/stats`.",
        notes=NOT_OFFERED,
    ),
    Operation(
        "GET /failures",
        "listFailures",
        "Runs",
        "List open failures",
        {200: Response("A page of failures. The last that happened comes first.", "FailurePage")},
        "A failure is open from a run that ended FAILED or TIMED_OUT, until a run of the job that "
        "began later ends with SUCCESS, or the job is cancelled or expires. There is one for each "
        "job and kind of error, at most 20 of a job. Ids, numbers and times in the first line of "
        "the error make no other kind. A failure that happens again comes first again.",
        (Parameter("job_id", UUID_SCHEMA, "Only the failures of this job."), *PAGE_PARAMETERS),
        notes=NOT_OFFERED,
    ),
    Operation(
        "POST /failures/{failure_id}/acknowledge",
        "acknowledgeFailure",
        "Runs",
        "Acknowledge a failure",
        {200: Response("The failure after the change.", "Failure")},
        "Says that a person knows of the failure. It holds for this kind of error until the "
        "failure is closed. Another kind of error of the job is another failure. A second call "
        "replaces the note.",
        (_FAILURE_ID_PARAMETER,),
        "AcknowledgeRequest",
        is_body_required=False,
    ),
)
