"""Reads jobs with their definitions, for lists and single reads."""

from collections.abc import Mapping, Sequence

from punctual.domain.draft import job_expires_at
from punctual.domain.errors import NotFound, Unavailable
from punctual.domain.job_state import JobState
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.lists.job_index import Position
from punctual.engine.ports.log import Log
from punctual.engine.ports.rows import DefinitionRow, JobKey


class JobList:
    """Reads jobs. A job without a readable definition is an error, so no list leaves a job out.

    A definition is written before the state that names it, and removed only with its expired job.
    """

    def __init__(self, job_states: JobStates, clock: Clock, log: Log) -> None:
        self._job_states = job_states
        self._clock = clock
        self._log = log

    def load(self, key: JobKey) -> tuple[StoredState, DefinitionRow]:
        """Return a job with its definition in force."""
        stored = self._job_states.load([key]).get(key)
        if stored is None or stored.state.is_blank:
            raise NotFound("There is no such job.")
        job_and_ref = (key, stored.state.current_rules.definition_ref)
        definition = self._job_states.load_definitions([job_and_ref]).get(job_and_ref)
        if definition is None:
            self._check_expired([stored.state])
            raise NotFound("There is no such job.")
        return stored, definition

    def load_listed(
        self, tenant: str, positions: Sequence[Position]
    ) -> list[tuple[Position, JobState, DefinitionRow]]:
        """Return the jobs at these positions that still exist."""
        keys = [JobKey(tenant, position[-1]) for position in positions]
        loaded = self._job_states.load(keys)
        states = {
            key.job_id: stored.state for key, stored in loaded.items() if not stored.state.is_blank
        }
        definitions = self.load_definitions(list(states.values()))
        return [
            (position, states[job_id], definitions[job_id])
            for position in positions
            if (job_id := position[-1]) in definitions
        ]

    def page(
        self, tenant: str, before: str | None, limit: int
    ) -> tuple[Sequence[tuple[JobState, DefinitionRow]], str | None]:
        """Return up to `limit` jobs, newest first, and the id that the next page starts below."""
        page = self._job_states.page(tenant, before, limit)
        self._check_expired(page.without_definition)
        return page.items, page.before

    def load_definitions(self, states: Sequence[JobState]) -> Mapping[str, DefinitionRow]:
        """Return the definitions in force by job id, without jobs that have expired."""
        states_by_ref = {
            (JobKey(state.tenant, state.job_id), state.current_rules.definition_ref): state
            for state in states
        }
        definitions = self._job_states.load_definitions(list(states_by_ref))
        self._check_expired(
            [
                state
                for job_and_ref, state in states_by_ref.items()
                if job_and_ref not in definitions
            ]
        )
        return {key.job_id: definition for (key, _), definition in definitions.items()}

    def _check_expired(self, states: Sequence[JobState]) -> None:
        """Raise `Unavailable` if one of these jobs without a definition has not expired."""
        now = self._clock()  # read after the rows, since a job may expire between the two reads
        missing = [state for state in states if (at := job_expires_at(state)) is None or at > now]
        for state in missing:
            self._log("definition_missing", tenant=state.tenant, job_id=state.job_id)
        if missing:
            raise Unavailable("The job's definition cannot be read from the store.")
