"""Read the filters and the order of a list of jobs from the parameters of a call."""

from punctual.domain.job_state import JobStatus, ScheduleKind
from punctual.engine.ports.lists.job_index import JobFilters, JobHealth, JobSort
from punctual.web.http.query import Query

MAX_FILTER_TEXT_CHARACTERS = 512  # as long as the longest tag, with its key
JOB_STATUSES = tuple(status.value for status in JobStatus)
SCHEDULE_TYPES = tuple(kind.value for kind in ScheduleKind)
JOB_SORTS = tuple(sort.value for sort in JobSort)
JOB_HEALTHS = tuple(health.value for health in JobHealth)
JOB_FILTERS = (
    "status",
    "schedule_type",
    "name",
    "name_prefix",
    "text",
    "created_by",
    "tag",
    "health",
)
REPEATED_JOB_FILTERS = ("status", "tag")


def read_job_filters(query: Query) -> JobFilters:
    """Return the filters, and note an error for each wrong one."""
    health = query.choice("health", JOB_HEALTHS)
    filters = JobFilters(
        status=query.choices("status", JOB_STATUSES),
        schedule_type=query.choice("schedule_type", SCHEDULE_TYPES),
        name=query.filter_text("name"),
        name_prefix=query.text("name_prefix"),
        text=query.filter_text("text"),
        created_by=query.filter_text("created_by"),
        tags=query.tags(),
        health=JobHealth(health) if health in JOB_HEALTHS else None,
    )
    for name in ("name", "name_prefix", "text", "created_by"):
        if len(query.text(name)) > MAX_FILTER_TEXT_CHARACTERS:
            query.add_error(name, f"must have at most {MAX_FILTER_TEXT_CHARACTERS} characters")
    return filters


def read_job_sort(query: Query) -> JobSort:
    sort = query.choice("sort", JOB_SORTS)
    return JobSort(sort) if sort in JOB_SORTS else JobSort.CREATED
