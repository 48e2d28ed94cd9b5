"""The operations that look ahead: previews, differences, upcoming times."""

from punctual.engine.queries.schedules.forecast import MAX_FORECAST_HOURS, MAX_HOURS_BY_MINUTE
from punctual.web.openapi.operation import (
    FROM_PARAMETER,
    PAGE_PARAMETERS,
    TO_PARAMETER,
    UUID_SCHEMA,
    Operation,
    Parameter,
    Response,
)

SCHEDULE_OPERATIONS = (
    Operation(
        "POST /schedules/preview",
        "previewSchedule",
        "Schedules",
        "Preview a schedule",
        {200: Response("The times of the schedule after `from`.", "Preview")},
        "The body has the schedule fields of a job, `from` and `count`.",
        body="PreviewOf",
    ),
    Operation(
        "POST /schedules/diff",
        "diffSchedules",
        "Schedules",
        "Compare the times of two schedules",
        {200: Response("What the change adds, removes, moves and leaves.", "ScheduleDiff")},
        "A time of both schedules is unchanged. The others are grouped by local date, each in the "
        "time zone of its schedule. If a date has equally many times of both, they are pairs in "
        "order: moved. If not, the times of the old schedule are removed, and those of the new one "
        "are added. So a daily job that moves from 02:00 to 03:00 has one moved time each day. "
        "Nothing is stored. More than 200,000 times of one schedule are a 422 that names the "
        "possible `days`.",
        body="ScheduleDiffRequest",
        notes={404: "The job of `before` does not exist for this tenant."},
    ),
    Operation(
        "GET /forecast",
        "getForecast",
        "Schedules",
        "Forecast the scheduled starts of the coming hours",
        {200: Response("The number of starts by minute or hour.", "Forecast")},
        "Counts the occurrences of all SCHEDULED jobs at their `due_time`, with `exclude`, "
        "`end_time` and `max_runs`. A job with a pause that ends by itself counts from its end "
        "on, with the runs that `misfire_policy` then starts. Not counted: occurrences that are "
        "due already, requested runs, retries, and an interval from completion while its run goes "
        "on. Overlap rules are not applied, so some starts may become SKIPPED or wait. A tenant "
        "with more jobs than one answer can count gets a 422 with the code `TOO_MUCH_WORK`. On AWS "
        "an answer can count 10,000 jobs with a start in these hours.",
        (
            Parameter(
                "hours",
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_FORECAST_HOURS,
                    "default": MAX_HOURS_BY_MINUTE,
                },
                "The length of the range. Up to 24 hours are counted by minute, more by hour.",
            ),
        ),
    ),
    Operation(
        "GET /schedules/upcoming",
        "listUpcoming",
        "Schedules",
        "List the upcoming times of one job or of all jobs",
        {200: Response("A page of times, earliest first.", "UpcomingPage")},
        "`from` is now by default, `to` 7 days later. The range is at most 31 days. An interval "
        "from completion has at most its next time. A job with a pause that ends by itself has "
        "the times from its end on.",
        (
            Parameter("job_id", UUID_SCHEMA, "The times of this job."),
            FROM_PARAMETER,
            TO_PARAMETER,
            *PAGE_PARAMETERS,
        ),
        notes={404: "The job does not exist for this tenant."},
    ),
)
