"""The lists over all jobs of the in-memory store."""

from datetime import datetime
from typing import TYPE_CHECKING

from punctual.domain.errors import FieldError, Invalid
from punctual.engine.ports.lists.job_index import JobHealth, JobIndexPage, JobQuery, Position
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.job_order import is_after, position_of, sort_positions

if TYPE_CHECKING:
    from tests.support.simulation.memory import MemoryJobStates


class MemoryJobIndex:
    """Filters and sorts all job states at each call."""

    def __init__(self, job_states: "MemoryJobStates") -> None:
        self._job_states = job_states

    def page(
        self, tenant: str, query: JobQuery, limit: int, after: Position | None, now: datetime
    ) -> JobIndexPage:
        if query.filters.health is JobHealth.FAILING:
            raise Invalid.of(FieldError("health", "cannot be FAILING in memory"))
        positions = []
        for stored in self._job_states.alive():
            state = stored.state
            if state.tenant != tenant or state.is_blank:
                continue
            ref = (JobKey(tenant, state.job_id), state.current_rules.definition_ref)
            definition = self._job_states.load_definitions([ref]).get(ref)
            # The reader reports a job without a definition.
            if definition is None or query.filters.matches(state, definition, now):
                name = "" if definition is None else definition.name
                positions.append(position_of(query.sort, state, name))
        listed = [
            position
            for position in sort_positions(query.sort, positions)
            if is_after(query.sort, position, after)
        ]
        has_more = len(listed) > limit
        return JobIndexPage(listed[:limit], listed[limit - 1] if has_more else None)
