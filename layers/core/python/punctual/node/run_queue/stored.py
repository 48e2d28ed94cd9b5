"""What the heads say is queued, for whoever reads it again."""

from collections.abc import Collection, Sequence

from punctual.domain.job_state import JobState
from punctual.domain.run import Run, RunStatus
from punctual.engine.changes.plan import load
from punctual.engine.ports.rows import Key
from punctual.engine.ports.run_queue import Message
from punctual.node.run_queue.slots import Place
from punctual.node.sqlite.job_states import SqliteJobStates


class QueuedStates:
    def __init__(self, heads: SqliteJobStates) -> None:
        self._heads = heads

    def places(self, rank: int, after: Place | None, most: int, /) -> Sequence[Place]:
        return self._heads.queued(rank, after, most)

    def keys(self, places: Sequence[Place], /) -> Sequence[Key]:
        return self._heads.keys(places)

    def messages(self, keys: Collection[Key], /) -> Sequence[Message]:
        found, _ = load(self._heads, list(keys))
        return [one for key in keys if key in found for one in messages_of(found[key].head)]


def messages_of(head: JobState) -> list[Message]:
    """What is queued of one job, as the swaps that queued it announced it."""
    return [_message(head, run) for run in head.runs if run.status is RunStatus.QUEUED]


def _message(head: JobState, run: Run) -> Message:
    rules = head.rules[run.definition]
    return Message(
        head.tenant,
        head.job_id,
        run.run_id,
        run.due_at,
        rules.priority,
        rules.lane,
        head.version,
        rules.task_type,
    )
