"""What is queued on this machine: by priority, then by due time, for each kind of slot.

Only a hint in memory: the heads say what is queued, and are read after a start and where more
was queued than is kept.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from punctual.domain.job_state import Priority
from punctual.engine.ports.run_queue import Message
from punctual.node.limits import Admission
from punctual.node.run_queue.cache import HELD, OTHERS, Memory
from punctual.node.run_queue.priority_list import Entry
from punctual.node.run_queue.refill import Queued, Rereading

KEPT = 100_000


class RunQueue:
    """The Messages port of the node."""

    def __init__(
        self,
        queued: Queued,
        inline_types: frozenset[str],
        admission: Admission | None = None,
        kept: int = KEPT,
    ) -> None:
        """`admission`, where it is on, says how many runs of a tenant may start."""
        self._queued = queued
        self._admission = admission if admission is not None and admission.on else None
        self._inline = inline_types
        self._kept = kept
        self.start_over()

    def __len__(self) -> int:
        return len(self._memory)

    def start_over(self) -> None:
        """What was taken may not have been claimed: ask the heads."""
        self._memory = Memory(self._kept, self._inline, self._may_wait)
        self._heads = Rereading(self._queued, self._memory)
        self._taken_at: datetime | None = None
        self._come: datetime | None = None  # when the first of those is due that came since then

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        self._heads.add(messages)
        self._note(messages)
        return [True] * len(messages)

    def hold(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Keep those of runs that stand nowhere else: True for each that is inline, and kept."""
        if not self._memory.has_room(len(messages)):
            return [False] * len(messages)
        kept = [
            message.task_type in self._inline and not self._may_wait(message.tenant)
            for message in messages
        ]
        ours = [message for message, one in zip(messages, kept, strict=True) if one]
        for message in ours:
            self._memory.hold(message)
        self._note(ours)
        return kept

    def _note(self, messages: Sequence[Message]) -> None:
        if messages:
            first = min(message.due_at for message in messages)
            self._come = first if self._come is None else min(first, self._come)

    def again(self, message: Message, at: datetime) -> None:
        """It could not be taken yet: offer it once more then."""
        self.send([message._replace(due_at=max(at, message.due_at))])

    def take(self, kind: str, now: datetime, most: int) -> list[Message]:
        """What is due now and not started: the most urgent of all that may start. Whose limit is
        reached holds up no other."""
        self._heads.go_on(kind)
        self._taken_at, self._come = now, None
        memory, admission = self._memory, self._admission
        if admission is not None:
            memory.set_apart(kind, now, most)
        offered: list[tuple[Entry, str]] = []
        for whose, line in memory.lines[kind].items():
            room = most
            if admission is not None and is_apart(whose):
                room = admission.room(whose, now, most, kind)
            offered += [(entry, whose) for entry in line.due(now, room)]
        offered.sort()
        chosen = offered[:most]
        counts: Counter[tuple[str, Priority]] = Counter((whose, one[0]) for one, whose in chosen)
        for (whose, priority), count in counts.items():
            memory.take(kind, whose, priority, count)
            if admission is not None and is_apart(whose):
                admission.reserve(whose, count)
        return [message for (*_, message), _ in chosen]

    def _may_wait(self, tenant: str) -> bool:
        return self._admission is not None and self._admission.holds(tenant)

    def next_at(self) -> datetime | None:
        """When the next one is due, or a tenant may start more; others wait for a slot."""
        moments = [self._come]
        waiting = set[str]()
        for lines in self._memory.lines.values():
            for whose, line in lines.items():
                moments.append(line.next_after(self._taken_at))
                if is_apart(whose) and self._taken_at and line.is_due(self._taken_at):
                    waiting.add(whose)
        if self._admission is not None:
            moments += [self._admission.free_at(tenant) for tenant in waiting]
        return min((at for at in moments if at is not None), default=None)

    def waiting(self, kind: str, now: datetime) -> bool:
        """Whether anything of this kind only waits for a slot, or to be read."""
        if self._heads.is_wanted(kind):
            return True
        admission = self._admission
        return any(
            line.is_due(now)
            and (
                admission is None or not is_apart(whose) or admission.room(whose, now, 1, kind) > 0
            )
            for whose, line in self._memory.lines[kind].items()
        )


def is_apart(whose: str) -> bool:
    """Whether it is the name of a tenant that may have to wait."""
    return whose not in (OTHERS, HELD)
