"""The descriptions of fields about times to come, by model."""

from collections.abc import Mapping

SCHEDULE_DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "Forecast": {
        "from": "Starts that are due from this time on are counted.",
        "to": "The end of the range, exclusive.",
        "step_seconds": "The seconds of each entry of `minutes`: 60, or 3,600 if `hours` is over "
        "24.",
        "minutes": "All minutes or hours of the range, earliest first.",
        "busiest": "The minute with the most starts, also of a forecast by hour. It is null "
        "without a start.",
        "starts": "The number of all starts.",
        "jobs": "The number of jobs with an occurrence in the range.",
        "from_completion_jobs": "The number of these jobs with an interval from completion. Their "
        "later starts assume runs that take no time, so the true number is lower.",
    },
    "ForecastMinute": {
        "minute": "The begin of the minute or hour.",
        "starts": "The number of scheduled runs that are due to start in it.",
    },
    "ScheduleDiffFields": {
        "before": "The id of a job, which keeps the phase of its interval and the count of its "
        "`max_runs`, or the schedule fields of a job.",
        "after": "The new schedule fields. A field that is absent has its default, also where "
        "`before` is a job.",
        "from": "The change takes effect at this time, and later times are compared. Default: now.",
        "days": "The number of whole local dates to compare, at most 366, after the rest of the "
        "present date. Default: 30.",
    },
    "ScheduleDiff": {
        "from": "The start of the range, exclusive.",
        "to": "The end of the range, exclusive: the end of a date in the time zone of `after`.",
        "added": "The times that only the new schedule has.",
        "removed": "The times that only the old schedule has.",
        "moved": "The times that move within their local date.",
        "unchanged": "The times that both schedules have.",
        "warnings": "Warnings about clock changes, as in a preview. `Before:` or `After:` names "
        "the schedule that one of them affects, if it does not affect both.",
        "tzdata": "The version of the time zone data.",
    },
    "DiffTimes": {
        "count": "The number of times.",
        "times": "The first 100 of them, earliest first, in the time zone of their schedule.",
    },
    "MovedTimes": {
        "count": "The number of moved times.",
        "shift_seconds": "By how much each of them moves, negative for earlier. It is null if "
        "they differ.",
        "times": "The first 100 of them, earliest first.",
    },
    "MovedTime": {
        "before": "The time by the old schedule.",
        "after": "The time by the new schedule.",
    },
}
