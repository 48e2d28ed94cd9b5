"""The operations that list jobs."""

from punctual.domain.job_state import JobStatus, ScheduleKind
from punctual.engine.ports.lists.job_index import JobHealth, JobSort
from punctual.engine.queries.recent_runs import MAX_RECENT_RUNS
from punctual.web.http.job_filters import MAX_FILTER_TEXT_CHARACTERS
from punctual.web.openapi.operation import (
    PAGE_PARAMETERS,
    Operation,
    Parameter,
    Response,
    Schema,
    enum_schema,
)

_TEXT: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_FILTER_TEXT_CHARACTERS,
}
_JOB_FILTER_PARAMETERS = (
    Parameter(
        "status", enum_schema(*JobStatus), "Jobs with one of these statuses.", is_repeatable=True
    ),
    Parameter("schedule_type", enum_schema(*ScheduleKind), "Jobs with this schedule type."),
    Parameter("name", _TEXT, "Jobs with exactly this name."),
    Parameter(
        "name_prefix",
        {"type": "string", "maxLength": MAX_FILTER_TEXT_CHARACTERS},
        "Jobs with a name that begins so.",
    ),
    Parameter(
        "text",
        _TEXT,
        "Jobs with this text in the name or in a tag, as `key:value`. Upper and lower case are the "
        "same.",
    ),
    Parameter("created_by", _TEXT, "Jobs that this caller created."),
    Parameter(
        "tag",
        {"type": "string", "pattern": "^[^:]+:[\\s\\S]*$"},
        "Jobs with this tag, as `key:value`. A job must have all tags.",
        is_repeatable=True,
    ),
    Parameter(
        "health",
        enum_schema(*JobHealth),
        "FAILING: a run failed or timed out, and none has succeeded since. LATE: a run is due for "
        "over 15 s and waits for an executor, not for a rule of its own job. NEVER_RAN: no run of "
        "the job has begun or waits for an executor.",
    ),
)
_JOB_SORT_PARAMETER = Parameter(
    "sort",
    {**enum_schema(*JobSort), "default": JobSort.CREATED.value},
    "created: newest first. name: by the code points of the name. next_run: soonest first, then "
    "the jobs without a next time. A job that gets another name or next time between two pages "
    "may be on both or on none. Every other job is on exactly one.",
)

LIST_JOBS = Operation(
    "GET /jobs",
    "listJobs",
    "Jobs",
    "List jobs",
    {200: Response("A page of jobs.", "JobPage")},
    "A job must match all filters. `status` and `tag` may repeat. A page may be short although "
    "more jobs follow; `next_token` is null on the last page.",
    (
        *_JOB_FILTER_PARAMETERS,
        _JOB_SORT_PARAMETER,
        Parameter(
            "recent",
            {"type": "integer", "minimum": 1, "maximum": MAX_RECENT_RUNS},
            "Show the outcomes of so many of the last runs of each job.",
        ),
        *PAGE_PARAMETERS,
    ),
)
