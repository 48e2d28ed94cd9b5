"""Messages of runs that were fired ahead, held until shortly before their time.

A held message may be lost. Its trigger timers stay until it is sent. An evaluation of these timers
sends again each queued run that is due and not claimed.
"""

import heapq
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from punctual.domain.errors import Unavailable
from punctual.engine.changes.change import Result
from punctual.engine.dispatch.on_demand.throughput import Pace
from punctual.engine.dispatch.on_demand.wakeup_times import SEND
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import Key
from punctual.engine.ports.run_queue import Message, Messages
from punctual.engine.ports.timers import Timer

LONGEST = timedelta(seconds=2)  # an executor waits at most this long for the due time

Looked = tuple[Sequence[Timer], Result]


class Released(NamedTuple):
    """The evaluations for which all messages were sent or refused."""

    looked: Sequence[Looked]
    gone: Sequence[Timer]  # to delete, because their messages are sent


class _Owner:
    """An evaluation with held messages."""

    __slots__ = ("left", "looked", "sent")

    def __init__(self, looked: Looked, left: int) -> None:
        self.looked = looked
        self.left = left
        self.sent = True


class EarlyMessages:
    """The queue of a poller that fires ahead. It answers for held messages that they are unsent."""

    def __init__(self, queue: Messages, clock: Clock, pace: Pace) -> None:
        self._queue = queue
        self._pace = pace
        self._clock = clock
        self._made: dict[Key, list[Message]] = {}  # of the evaluation in progress
        self._refused: set[Key] = set()
        self._heap: list[tuple[datetime, int, Message, _Owner]] = []
        self._order = count()
        self.sent = 0

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        until = self._clock() + SEND
        near = [message for message in messages if message.due_at <= until]
        try:
            answers = dict(zip(near, self._send(near), strict=True))
        except Unavailable:
            self._refused.update(_key(message) for message in messages)
            raise
        for message in messages:
            if message not in answers:
                self._made.setdefault(_key(message), []).append(message)
            elif not answers[message]:
                self._refused.add(_key(message))
        return [answers.get(message, False) for message in messages]

    def _send(self, messages: Sequence[Message]) -> Sequence[bool]:
        answers = self._queue.send(messages) if messages else ()
        self.sent += sum(answers)
        return answers

    def adopt(self, looked: Iterable[Looked]) -> list[Looked]:
        """Keep the evaluations with held messages. Return the others."""
        rest = []
        for brought, result in looked:
            made = self._made.get(brought[0].key, [])
            if not made or result.contended or brought[0].key in self._refused:
                rest.append((brought, result))
                continue
            owner = _Owner((brought, result), len(made))
            for message in made:
                heapq.heappush(self._heap, (message.due_at, next(self._order), message, owner))
        self._made, self._refused = {}, set()
        return rest

    def release(self, until: datetime, most: int) -> Released:
        """Send at most `most` held messages that are due by `until`, the soonest first."""
        taken: list[tuple[Message, _Owner]] = []
        while self._heap and self._heap[0][0] <= until and len(taken) < most:
            _, _, message, owner = heapq.heappop(self._heap)
            taken.append((message, owner))
        if not taken:
            return Released((), ())
        try:
            answers = self._send([message for message, _ in taken])
        except Unavailable:
            answers = [False] * len(taken)
        looked: list[Looked] = []
        gone: list[Timer] = []
        for (_, owner), answer in zip(taken, answers, strict=True):
            owner.left -= 1
            owner.sent &= answer
            if not owner.left:
                brought, result = owner.looked
                done = owner.sent and result.recorded
                looked.append((brought, replace(result, effects_done=done)))
                if done:
                    gone.extend(timer for timer in brought if timer not in result.kept)
        return Released(looked, gone)

    def next_at(self) -> datetime | None:
        """Return when to begin to send, as late as the number of messages allows."""
        return self._heap[0][0] - self.lead if self._heap else None

    @property
    def sending(self) -> timedelta:
        """Return the time that it takes to send all held messages."""
        return timedelta(seconds=len(self._heap) / self._pace.sent)

    @property
    def lead(self) -> timedelta:
        return min(LONGEST, max(SEND, self.sending))


def _key(message: Message) -> Key:
    return Key(message.tenant, message.job_id)
