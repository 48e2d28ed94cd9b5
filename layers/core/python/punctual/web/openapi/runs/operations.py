"""The operations that list runs."""

from punctual.domain.run import RunStatus, Trigger
from punctual.engine.ports.lists.run_filters import TimeField
from punctual.web.http.job_filters import MAX_FILTER_TEXT_CHARACTERS
from punctual.web.http.run_filters import DURATION_RANGE_PATTERN, REASONS
from punctual.web.openapi.operation import (
    FROM_PARAMETER,
    JOB_ID_PARAMETER,
    PAGE_PARAMETERS,
    TO_PARAMETER,
    Operation,
    Parameter,
    Response,
    enum_schema,
)

_FILTER_PARAMETERS = (
    Parameter(
        "status", enum_schema(*RunStatus), "Runs with one of these statuses.", is_repeatable=True
    ),
    Parameter("trigger", enum_schema(*Trigger), "Runs with this trigger."),
    Parameter(
        "reason", enum_schema(*REASONS), "Runs with one of these reasons.", is_repeatable=True
    ),
    Parameter(
        "duration_ms",
        {"type": "string", "pattern": DURATION_RANGE_PATTERN},
        "Ended runs with a `duration_ms` in this range of whole milliseconds, both ends included: "
        "`1000..` is a second or longer, `..500` at most half a second, `100..500` between them. A "
        "run without a duration is left out.",
    ),
    FROM_PARAMETER,
    TO_PARAMETER,
    Parameter(
        "by",
        {**enum_schema(*TimeField), "default": TimeField.SCHEDULED.value},
        "The time of a run that `from` and `to` mean. A run without that time is left out.",
    ),
)
_LABEL_FILTER_PARAMETERS = (
    Parameter(
        "job_name",
        {"type": "string", "minLength": 1, "maxLength": MAX_FILTER_TEXT_CHARACTERS},
        "Runs of the jobs with exactly this name.",
    ),
    Parameter(
        "tag",
        {"type": "string", "pattern": "^[^:]+:[\\s\\S]*$"},
        "Runs of the jobs with this tag, as `key:value`. A job must have all tags.",
        is_repeatable=True,
    ),
)
_RUN_PAGE = Response("A page of runs, newest first.", "RunPage")
_SHORT_PAGES = (
    "A run must match all filters. `status` and `reason` may repeat: one of the values must match. "
    "A page may be short, or empty, although more runs follow: `next_token` is null on the last."
)
RUN_LIST_OPERATIONS = (
    Operation(
        "GET /jobs/{job_id}/runs",
        "listRunsOfJob",
        "Runs",
        "List the runs of a job",
        {200: _RUN_PAGE},
        _SHORT_PAGES,
        (JOB_ID_PARAMETER, *_FILTER_PARAMETERS, *PAGE_PARAMETERS),
    ),
    Operation(
        "GET /runs",
        "listRuns",
        "Runs",
        "List the runs of all jobs",
        {200: _RUN_PAGE},
        f"{_SHORT_PAGES} After a change of a job's name or tags, its ended runs may keep the "
        "former ones here. On AWS this list may lag by up to 10 s; that of one job does not.",
        (*_FILTER_PARAMETERS, *_LABEL_FILTER_PARAMETERS, *PAGE_PARAMETERS),
    ),
)
