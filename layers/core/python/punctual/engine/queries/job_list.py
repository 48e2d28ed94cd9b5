"""Reads jobs with their definitions, for lists and single reads."""

from collections.abc import Mapping, Sequence

from punctual.domain.draft import expires_at
from punctual.domain.errors import NotFound, Unavailable
from punctual.domain.job_state import JobState
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.log import Log
from punctual.engine.ports.rows import DefinitionRow, Key


class JobList:
    """Reads jobs. A job without a readable definition is an error, so no list leaves a job out.

    A definition is written before the state that names it, and removed only with its expired job.
    """

    def __init__(self, heads: JobStates, clock: Clock, log: Log) -> None:
        self._heads = heads
        self._clock = clock
        self._log = log

    def load(self, key: Key) -> tuple[StoredState, DefinitionRow]:
        """Return a job with its definition in force."""
        stored = self._heads.load([key]).get(key)
        if stored is None or stored.head.blank:
            raise NotFound("There is no such job.")
        wanted = (key, stored.head.current.body)
        body = self._heads.bodies([wanted]).get(wanted)
        if body is None:
            self._check_expired([stored.head])
            raise NotFound("There is no such job.")
        return stored, body

    def page(
        self, tenant: str, before: str | None, limit: int
    ) -> tuple[Sequence[tuple[JobState, DefinitionRow]], str | None]:
        """Return up to `limit` jobs, newest first, and the id that the next page starts below."""
        page = self._heads.page(tenant, before, limit)
        self._check_expired(page.bare)
        return page.items, page.before

    def definitions(self, heads: Sequence[JobState]) -> Mapping[str, DefinitionRow]:
        """Return the definitions in force by job id, without jobs that have expired."""
        wanted = {(Key(head.tenant, head.job_id), head.current.body): head for head in heads}
        bodies = self._heads.bodies(list(wanted))
        self._check_expired([head for asked, head in wanted.items() if asked not in bodies])
        return {key.job_id: body for (key, _), body in bodies.items()}

    def _check_expired(self, heads: Sequence[JobState]) -> None:
        """Raise `Unavailable` if one of these jobs without a definition has not expired."""
        now = self._clock()  # read after the rows, since a job may expire between the two reads
        missing = [head for head in heads if (at := expires_at(head)) is None or at > now]
        for head in missing:
            self._log("definition_missing", tenant=head.tenant, job_id=head.job_id)
        if missing:
            raise Unavailable("The job's definition cannot be read from the store.")
