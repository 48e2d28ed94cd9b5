"""What is queued on this machine: by priority, then by due time, for each kind of slot.

Only a hint in memory: the heads say what is queued, and fill it again after a start or when more
was queued than it keeps.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TypeVar

from punctual.domain.head import Head, Lane, Priority
from punctual.domain.run import Run, Status
from punctual.engine.ports import Message

KEPT = 100_000
INLINE = "inline"  # done by the node itself: takes no slot

_Early = tuple[datetime, int, Message]
_Ready = tuple[Priority, datetime, int, Message]
Refill = Callable[[datetime, int], Iterable[Message]]


_Place = TypeVar("_Place", _Early, _Ready)


class Ready:
    """The Messages port of the node. Lists in order: what comes nearly always comes last."""

    def __init__(self, refill: Refill, inline_types: frozenset[str], kept: int = KEPT) -> None:
        self._refill = refill
        self._inline = inline_types
        self._kept = kept
        self._early: list[_Early] = []
        self._ready: dict[str, list[_Ready]] = {INLINE: [], Lane.QUICK: [], Lane.LONG: []}
        self._known: set[tuple[str, int]] = set()
        self._sent = 0  # what is due together goes as it came: jobs side by side, as their rows are
        self._overflowed = True  # after a start nothing is known

    def __len__(self) -> int:
        return len(self._known)

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        for message in messages:
            mark = (message.run_id, message.version)
            if mark in self._known:
                continue
            if len(self._known) >= self._kept:
                self._overflowed = True
                continue
            self._known.add(mark)
            self._sent += 1
            _put(self._early, (message.due_at, self._sent, message))
        return [True] * len(messages)

    def hold(self, messages: Sequence[Message]) -> Sequence[bool]:
        """Keep those of runs that stand nowhere else: True for each that is inline, and kept."""
        if len(self._known) + len(messages) > self._kept:
            return [False] * len(messages)
        kept = [message.task_type in self._inline for message in messages]
        self.send([message for message, ours in zip(messages, kept, strict=True) if ours])
        return kept

    def again(self, message: Message, at: datetime) -> None:
        """It could not be taken yet: offer it once more then."""
        self.send([message._replace(due_at=max(at, message.due_at))])

    def start_over(self) -> None:
        """What was taken may not have been claimed: ask the heads."""
        self._early = []
        self._ready = {kind: [] for kind in self._ready}
        self._known = set()
        self._overflowed = True

    def take(self, kind: str, now: datetime, most: int) -> list[Message]:
        """What is due now and not started, the most urgent first."""
        if self._overflowed and len(self._known) < self._kept // 2:
            self._overflowed = False
            self.send(list(self._refill(now, self._kept // 2)))
        self._ripen(now)
        ready = self._ready[kind]
        taken = [message for *_, message in ready[:most]]
        del ready[:most]
        for message in taken:
            self._known.discard((message.run_id, message.version))
        return taken

    def _ripen(self, now: datetime) -> None:
        early, ready, inline = self._early, self._ready, self._inline
        if not early or early[0][0] > now:
            return
        ripe = bisect_right(early, now, key=itemgetter(0))
        for due_at, sent, message in early[:ripe]:
            kind = INLINE if message.task_type in inline else message.lane
            _put(ready[kind], (message.priority, due_at, sent, message))
        del early[:ripe]

    def next_at(self) -> datetime | None:
        """When the next one is due; those due already wait for a slot, not for time."""
        return self._early[0][0] if self._early else None

    def waiting(self, kind: str) -> int:
        return len(self._ready[kind])


def _put(line: list[_Place], place: _Place) -> None:
    if line and place < line[-1]:
        insort(line, place)
    else:
        line.append(place)


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
