"""What lists show of definitions, read once for each definition."""

from collections.abc import Iterable, Mapping

from punctual.aws.dynamodb.lists.job_row import DefinitionHead
from punctual.engine.ports.job_states import JobStates
from punctual.engine.ports.rows import JobKey

MAX_CACHED_HEADS = 5_000  # in one environment of the function
MAX_CACHED_TAG_CHARACTERS = 2_000  # of one definition; one with more is read each time

DefinitionId = tuple[JobKey, str]


class DefinitionCache:
    """Keeps the heads of the last definitions. A definition row never changes."""

    def __init__(self, job_states: JobStates) -> None:
        self._job_states = job_states
        self._cached: dict[DefinitionId, DefinitionHead] = {}

    def load(self, definition_ids: Iterable[DefinitionId]) -> Mapping[DefinitionId, DefinitionHead]:
        """Return the heads of the definitions that exist, by job and ref."""
        distinct_ids = dict.fromkeys(definition_ids)
        heads = {
            definition_id: self._cached[definition_id]
            for definition_id in distinct_ids
            if definition_id in self._cached
        }
        missing = [definition_id for definition_id in distinct_ids if definition_id not in heads]
        definitions = self._job_states.load_definitions(missing) if missing else {}
        for definition_id, definition in definitions.items():
            head = DefinitionHead(definition.name, definition.tags, definition.created_by)
            heads[definition_id] = head
            self._keep(definition_id, head)
        return heads

    def _keep(self, definition_id: DefinitionId, head: DefinitionHead) -> None:
        characters = sum(len(key) + len(value) for key, value in head.tags.items())
        if characters > MAX_CACHED_TAG_CHARACTERS:
            return
        if len(self._cached) >= MAX_CACHED_HEADS:
            del self._cached[next(iter(self._cached))]
        self._cached[definition_id] = head
