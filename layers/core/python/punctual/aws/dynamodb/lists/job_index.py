"""The index of jobs over the rows of the list. It filters while it reads."""

from datetime import datetime

from punctual.aws.dynamodb.lists.job_row import JobRow
from punctual.aws.dynamodb.lists.job_row_reader import JobRowReader, ListedJob
from punctual.domain.errors import FieldError, Invalid
from punctual.domain.run import MAX_START_DELAY
from punctual.engine.ports.lists.job_index import (
    NO_FILTERS,
    JobFilters,
    JobHealth,
    JobIndexPage,
    JobQuery,
    JobSort,
    Position,
    searched_texts,
)
from punctual.engine.queries.job_order import (
    is_after,
    next_run_position,
    next_time_of,
    sort_positions,
)

MAX_SORTED_JOBS = 20_000  # matching jobs that one call sorts


class DynamoJobIndex:
    """The list of jobs, behind the job states by the delay of the stream."""

    def __init__(self, listed_jobs: JobRowReader) -> None:
        self._listed_jobs = listed_jobs

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        if query.sort is not JobSort.CREATED:
            return self._sorted_page(tenant, query, limit, after, now)
        before = after[-1] if after else None
        if query.filters == NO_FILTERS:
            page = self._listed_jobs.page(tenant, before, limit)
            cursor = None if page.before is None else (page.before,)
            return JobIndexPage([(job_id,) for job_id in page.job_ids], cursor)
        return self._filtered_page(tenant, query.filters, limit, before, now)

    def _filtered_page(
        self, tenant: str, filters: JobFilters, limit: int, before: str | None, now: datetime
    ) -> JobIndexPage:
        positions: list[Position] = []
        for entry in self._listed_jobs.scan(tenant, before):
            if isinstance(entry, str):
                return JobIndexPage(positions, (entry,))
            if _matches(filters, entry, now):
                if len(positions) == limit:
                    return JobIndexPage(positions, positions[-1])
                positions.append((entry.job_id,))
        return JobIndexPage(positions, None)

    def _sorted_page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        if query.sort is JobSort.NEXT_RUN and after is not None:
            next_time_of(after)  # raises if a client has made up the cursor
        listed = self._listed_jobs.read_all(tenant)
        matching = [job for job in listed or () if _matches(query.filters, job, now)]
        if listed is None or len(matching) > MAX_SORTED_JOBS:
            raise Invalid.of(
                FieldError(
                    "sort",
                    f"can only be `created` for a list of more than {MAX_SORTED_JOBS:,} jobs. "
                    "Leave `sort` out, or narrow the list by filters",
                )
            )
        positions = [_position_of(query.sort, job) for job in matching]
        later = [
            position
            for position in sort_positions(query.sort, positions)
            if is_after(query.sort, position, after)
        ]
        cursor = later[limit - 1] if len(later) > limit else None
        return JobIndexPage(later[:limit], cursor)


def _position_of(sort: JobSort, job: ListedJob) -> Position:
    if sort is JobSort.NAME:
        return (job.row.name, job.job_id)
    return next_run_position(job.row.next_run_at, job.job_id)


def _matches(filters: JobFilters, job: ListedJob, now: datetime) -> bool:
    """Return whether the row passes. One without a name passes, so that its reader reports it."""
    row = job.row
    return not row.name or (
        (not filters.status or row.status in filters.status)
        and (not filters.schedule_type or row.kind == filters.schedule_type)
        and (not filters.name or row.name == filters.name)
        and row.name.startswith(filters.name_prefix)
        and (not filters.created_by or row.created_by == filters.created_by)
        and all(row.tags.get(key) == value for key, value in filters.tags)
        and (not filters.text or _has_text(filters.text, row))
        and _has_health(filters.health, job, now)
        and (
            filters.pause_ends_before is None
            or (row.pause_until is not None and row.pause_until < filters.pause_ends_before)
        )
    )


def _has_text(text: str, row: JobRow) -> bool:
    folded = text.casefold()
    return any(folded in part for part in searched_texts(row.name, row.tags))


def _has_health(health: JobHealth | None, job: ListedJob, now: datetime) -> bool:
    """Return whether the job may have this health. The reader checks all but FAILING again."""
    match health:
        case JobHealth.FAILING:
            return job.is_failing
        case JobHealth.LATE:
            due_at = job.row.unstarted_due_at
            return due_at is not None and due_at <= now - MAX_START_DELAY
        case JobHealth.NEVER_RAN:
            return not job.row.has_run
    return True
