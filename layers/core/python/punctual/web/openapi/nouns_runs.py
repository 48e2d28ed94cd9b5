"""The calls about runs, schedules and the installation."""

from punctual.domain.run import RunStatus, Trigger
from punctual.engine.queries.filters import By
from punctual.web.openapi.nouns_jobs import OF_RUN
from punctual.web.openapi.operation import (
    FROM,
    JOB_ID,
    KEY,
    PAGING,
    RUN_ID,
    TO,
    Answer,
    Operation,
    Parameter,
    listed,
)

_ONE = (JOB_ID, RUN_ID)
_FILTERS = (
    Parameter("status", listed(*RunStatus), "Runs in one of these.", many=True),
    Parameter("trigger", listed(*Trigger), "Runs made by this."),
    FROM,
    TO,
    Parameter(
        "by",
        {**listed(*By), "default": By.SCHEDULED.value},
        "Which time of a run `from` and `to` mean. A run without that time is left out.",
    ),
    *PAGING,
)
_PAGE = Answer("A page, newest first.", "RunPage")

RUNS = (
    Operation(
        "listRunsOfJob",
        "Runs",
        "List a job's runs",
        {200: _PAGE},
        "Filters combine by AND; `status` may repeat.",
        (JOB_ID, *_FILTERS),
    ),
    Operation(
        "listRuns",
        "Runs",
        "List runs of all jobs",
        {200: _PAGE},
        "`status=RUNNING` is what runs now. On AWS `by` is `scheduled` here.",
        _FILTERS,
    ),
    Operation(
        "getRun",
        "Runs",
        "Read a run",
        {200: Answer("The run, with every attempt.", "Run")},
        parameters=_ONE,
    ),
    Operation(
        "cancelRun",
        "Runs",
        "Cancel a run",
        {202: Answer("The run; where it runs, it is stopped soon.", "Run")},
        parameters=_ONE,
        body="Nothing",
        must=False,
        notes={409: "The run has ended."},
    ),
    Operation(
        "retryRun",
        "Runs",
        "Retry a run that has ended",
        {202: Answer("The new run.", "Run", ("Location",), OF_RUN)},
        "By the present definition, with the original payload.",
        (*_ONE, KEY),
        "Nothing",
        must=False,
        notes={409: "The run is alive, or the job is CANCELLED."},
    ),
    Operation(
        "getRunOutput",
        "Runs",
        "What a run answered or printed",
        {
            200: Answer(
                "The bytes, of whatever type they were, as an attachment.",
                None,
                ("Content-Disposition", "X-Output-Truncated"),
                content="*/*",
            ),
            302: Answer("Where they are: a presigned URL.", None, ("Location",), content=""),
        },
        parameters=_ONE,
        notes={404: "There is no such run, or it has no output yet."},
    ),
    Operation(
        "getRunLogs",
        "Runs",
        "A run's log, also while it runs",
        {200: Answer("Text.", None, ("X-Next-Offset",), content="text/plain")},
        parameters=(
            *_ONE,
            Parameter(
                "after",
                {"type": "integer", "minimum": 0, "maximum": 2**40, "default": 0},
                "Go on from this offset: the X-Next-Offset of the answer before.",
            ),
        ),
        notes={404: "There is no such run, or it has no log yet."},
    ),
)

SCHEDULES = (
    Operation(
        "previewSchedule",
        "Schedules",
        "When a schedule would fire",
        {200: Answer("Its times strictly after `from`.", "Preview")},
        "The job's schedule fields, `from` (now) and `count` (10).",
        body="PreviewOf",
    ),
    Operation(
        "listUpcoming",
        "Schedules",
        "What comes, over all jobs",
        {200: Answer("A page, soonest first.", "UpcomingPage")},
        "`from` is now and `to` 7 days later where they are left out; at most 31 days.",
        (FROM, TO, *PAGING),
    ),
)

INSTALLATION = (
    Operation(
        "getStats",
        "Installation",
        "How the installation does, in numbers",
        {200: Answer("For this tenant.", "Stats")},
    ),
    Operation(
        "getHealth",
        "Installation",
        "Whether the installation does what it should",
        {
            200: Answer("It does.", "Health"),
            503: Answer("It is later than 15 s, or the store does not answer.", "Health"),
        },
    ),
    Operation(
        "getLiveness",
        "Installation",
        "Whether the process answers",
        {200: Answer("It answers.", "Probe")},
    ),
    Operation(
        "getReadiness",
        "Installation",
        "Whether the installation takes requests and fires jobs",
        {
            200: Answer("It does.", "Probe"),
            503: Answer("It does not, or the store does not answer.", "Probe"),
        },
    ),
    Operation(
        "getOpenApi",
        "Installation",
        "This document",
        {200: Answer("OpenAPI 3.1.", "OpenApi", ("ETag",))},
    ),
)
