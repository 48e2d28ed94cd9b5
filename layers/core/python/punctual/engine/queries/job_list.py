"""Jobs as lists show them: heads with their definitions, none left out while it stands."""

from collections.abc import Callable, Mapping, Sequence

from punctual.domain.errors import NotFound, Unavailable
from punctual.domain.job_state import JobState
from punctual.engine.ports.job_states import JobStates, StoredState
from punctual.engine.ports.rows import DefinitionRow, Key

Log = Callable[..., None]
Whole = tuple[JobState, DefinitionRow]


def untold(_event: str, /, **_facts: object) -> None:
    """For who has no log."""


class JobList:
    """What a head names stands before it. A list without a job that is there would be wrong."""

    def __init__(self, heads: JobStates, log: Log) -> None:
        self._heads = heads
        self._log = log

    def load(self, key: Key) -> tuple[StoredState, DefinitionRow]:
        stored = self._heads.load([key]).get(key)
        if stored is None or stored.head.blank:
            raise NotFound("There is no such job.")
        wanted = (key, stored.head.current.body)
        body = self._heads.bodies([wanted]).get(wanted)
        if body is None:
            if key not in self._heads.load([key]):  # its time to be kept ended just now
                raise NotFound("There is no such job.")
            raise self._missing([key])
        return stored, body

    def page(self, tenant: str, before: str | None, limit: int) -> tuple[list[Whole], str | None]:
        page = self._heads.page(tenant, before, limit)
        found = [*page.items, *self._again(page.bare)]
        if page.bare:
            found.sort(key=lambda one: one[0].job_id, reverse=True)
        return found, page.before

    def definitions(self, heads: Sequence[JobState]) -> Mapping[str, DefinitionRow]:
        """By job; none of one that went since its head was read."""
        wanted = {(Key(head.tenant, head.job_id), head.current.body): head for head in heads}
        bodies = self._heads.bodies(list(wanted))
        bare = [head for asked, head in wanted.items() if asked not in bodies]
        again = {head.job_id: body for head, body in self._again(bare)}
        return {key.job_id: body for (key, _), body in bodies.items()} | again

    def _again(self, bare: Sequence[JobState]) -> Sequence[Whole]:
        """What has gone, or was changed, since its head was read, is as it is now."""
        if not bare:
            return ()
        stored = self._heads.load([Key(head.tenant, head.job_id) for head in bare])
        standing = {
            (key, one.head.current.body): one.head
            for key, one in stored.items()
            if not one.head.blank
        }
        bodies = self._heads.bodies(list(standing)) if standing else {}
        missing = [key for key, ref in standing if (key, ref) not in bodies]
        if missing:
            raise self._missing(missing)
        return [(head, bodies[asked]) for asked, head in standing.items()]

    def _missing(self, keys: Sequence[Key]) -> Unavailable:
        for key in keys:
            self._log("definition_missing", tenant=key.tenant, job_id=key.job_id)
        return Unavailable("The job's definition cannot be read from the store.")
