"""A list of jobs without an index of its own: it walks the job states, newest first."""

from datetime import datetime

from punctual.domain.errors import FieldError, Invalid
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.lists.job_index import (
    NO_FILTERS,
    JobHealth,
    JobIndexPage,
    JobQuery,
    JobSort,
    Position,
)

MIN_WALKED_STATES = 50  # smallest page, in states, if a filter may pass few of them


class WalkedJobIndex:
    def __init__(self, job_states: JobStates) -> None:
        self._job_states = job_states

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        if query.sort is not JobSort.CREATED:
            raise Invalid.of(
                FieldError("sort", "can only be `created`; this installation has no other order")
            )
        if query.filters.health is JobHealth.FAILING:
            raise Invalid.of(
                FieldError("health", "cannot be FAILING; this installation has no list of failures")
            )
        before = after[-1] if after else None
        size = limit if query.filters == NO_FILTERS else max(limit, MIN_WALKED_STATES)
        page = self._job_states.page(tenant, before, size)
        matching = [
            state.job_id
            for state, definition in page.items
            if query.filters.matches(state, definition, now)
        ]
        # The reader reports these, so that no list leaves a job out.
        matching += [state.job_id for state in page.without_definition]
        positions = [(job_id,) for job_id in sorted(matching, reverse=True)]
        if len(positions) > limit:
            return JobIndexPage(positions[:limit], positions[limit - 1])
        return JobIndexPage(positions, None if page.before is None else (page.before,))
