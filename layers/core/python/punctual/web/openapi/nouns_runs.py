"""The calls about runs, schedules and the installation."""

from punctual.domain.run import RunStatus, Trigger
from punctual.engine.queries.filters import By
from punctual.web.openapi.nouns_jobs import RUN_LINKS
from punctual.web.openapi.operation import (
    FROM_PARAMETER,
    IDEMPOTENCY_KEY_PARAMETER,
    JOB_ID_PARAMETER,
    PAGE_PARAMETERS,
    RUN_ID_PARAMETER,
    TO_PARAMETER,
    Operation,
    Parameter,
    Response,
    enum_schema,
)

_RUN_PARAMETERS = (JOB_ID_PARAMETER, RUN_ID_PARAMETER)
_RUN_FILTER_PARAMETERS = (
    Parameter("status", enum_schema(*RunStatus), "Runs in one of these.", many=True),
    Parameter("trigger", enum_schema(*Trigger), "Runs made by this."),
    FROM_PARAMETER,
    TO_PARAMETER,
    Parameter(
        "by",
        {**enum_schema(*By), "default": By.SCHEDULED.value},
        "Which time of a run `from` and `to` mean. A run without that time is left out.",
    ),
    *PAGE_PARAMETERS,
)
_PAGE = Response("A page, newest first.", "RunPage")

RUN_OPERATIONS = (
    Operation(
        "listRunsOfJob",
        "Runs",
        "List a job's runs",
        {200: _PAGE},
        "Filters combine by AND; `status` may repeat.",
        (JOB_ID_PARAMETER, *_RUN_FILTER_PARAMETERS),
    ),
    Operation(
        "listRuns",
        "Runs",
        "List runs of all jobs",
        {200: _PAGE},
        "`status=RUNNING` is what runs now. On AWS `by` is `scheduled` here.",
        _RUN_FILTER_PARAMETERS,
    ),
    Operation(
        "getRun",
        "Runs",
        "Read a run",
        {200: Response("The run, with every attempt.", "Run")},
        parameters=_RUN_PARAMETERS,
    ),
    Operation(
        "cancelRun",
        "Runs",
        "Cancel a run",
        {202: Response("The run; where it runs, it is stopped soon.", "Run")},
        parameters=_RUN_PARAMETERS,
        body="Nothing",
        must=False,
        notes={409: "The run has ended."},
    ),
    Operation(
        "retryRun",
        "Runs",
        "Retry a run that has ended",
        {202: Response("The new run.", "Run", ("Location",), RUN_LINKS)},
        "By the present definition, with the original payload.",
        (*_RUN_PARAMETERS, IDEMPOTENCY_KEY_PARAMETER),
        "Nothing",
        must=False,
        notes={409: "The run is alive, or the job is CANCELLED."},
    ),
    Operation(
        "getRunOutput",
        "Runs",
        "What a run answered or printed",
        {
            200: Response(
                "The bytes, of whatever type they were, as an attachment.",
                None,
                ("Content-Disposition", "X-Output-Truncated"),
                content="*/*",
            ),
            302: Response(
                "Where they are: a presigned URL.",
                None,
                ("Location", "X-Output-Truncated"),
                content="",
            ),
        },
        parameters=_RUN_PARAMETERS,
        notes={404: "There is no such run, or it has no output yet."},
    ),
    Operation(
        "getRunLogs",
        "Runs",
        "A run's log, also while it runs",
        {200: Response("Text.", None, ("X-Next-Offset",), content="text/plain")},
        parameters=(
            *_RUN_PARAMETERS,
            Parameter(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 2**40, "default": 0},
                "Go on from this offset: the X-Next-Offset of the answer before.",
            ),
        ),
        notes={404: "There is no such run, or it has no log yet."},
    ),
)

SCHEDULE_OPERATIONS = (
    Operation(
        "previewSchedule",
        "Schedules",
        "When a schedule would fire",
        {200: Response("Its times strictly after `from`.", "Preview")},
        "The job's schedule fields, `from` (now) and `count` (10).",
        body="PreviewOf",
    ),
    Operation(
        "listUpcoming",
        "Schedules",
        "What comes, over all jobs",
        {200: Response("A page, soonest first.", "UpcomingPage")},
        "`from` is now and `to` 7 days later where they are left out; at most 31 days.",
        (FROM_PARAMETER, TO_PARAMETER, *PAGE_PARAMETERS),
    ),
)

INSTALLATION_OPERATIONS = (
    Operation(
        "getStats",
        "Installation",
        "How the installation does, in numbers",
        {200: Response("For this tenant.", "Stats")},
    ),
    Operation(
        "getHealth",
        "Installation",
        "Whether the installation does what it should",
        {
            200: Response("It does.", "Health"),
            503: Response("It is later than 15 s, or the store does not answer.", "Health"),
        },
    ),
    Operation(
        "getLiveness",
        "Installation",
        "Whether the process answers",
        {200: Response("It answers.", "Probe")},
    ),
    Operation(
        "getReadiness",
        "Installation",
        "Whether the installation takes requests and fires jobs",
        {
            200: Response("It does.", "Probe"),
            503: Response("It does not, or the store does not answer.", "Probe"),
        },
    ),
    Operation(
        "getOpenApi",
        "Installation",
        "This document",
        {200: Response("OpenAPI 3.1.", "OpenApi", ("ETag",))},
    ),
)
