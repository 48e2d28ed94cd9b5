"""What the heads say is queued, for whoever reads it again."""

from collections.abc import Collection, Sequence

from punctual.domain.head import Head
from punctual.domain.run import Run, Status
from punctual.engine.plan import load
from punctual.engine.ports import Key, Message
from punctual.local.heads import SqliteHeads
from punctual.local.kinds import Place


class QueuedHeads:
    def __init__(self, heads: SqliteHeads) -> None:
        self._heads = heads

    def places(self, rank: int, after: Place | None, most: int, /) -> Sequence[Place]:
        return self._heads.queued(rank, after, most)

    def keys(self, places: Sequence[Place], /) -> Sequence[Key]:
        return self._heads.keys(places)

    def messages(self, keys: Collection[Key], /) -> Sequence[Message]:
        found, _ = load(self._heads, list(keys))
        return [one for key in keys if key in found for one in messages_of(found[key].head)]


def messages_of(head: Head) -> list[Message]:
    """What is queued of one job, as the swaps that queued it announced it."""
    return [_message(head, run) for run in head.runs if run.status is Status.QUEUED]


def _message(head: Head, run: Run) -> Message:
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
