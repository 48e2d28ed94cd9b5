"""Messages made before their time: held back until a consumer need not wait long for it.

Nothing rests on what is held. The timers that brought it stand until it is sent, and a look at
one of them sends again what stands queued and due without a claim.
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

LONGEST = timedelta(seconds=2)  # so long an executor waits for the moment

Looked = tuple[Sequence[Timer], Result]


class Released(NamedTuple):
    """What became of messages whose time came near: looks whose effects are done, or not."""

    looked: Sequence[Looked]
    gone: Sequence[Timer]  # to be deleted, now that what they brought is sent


class _Owner:
    """A look some of whose messages are held."""

    __slots__ = ("left", "looked", "sent")

    def __init__(self, looked: Looked, left: int) -> None:
        self.looked = looked
        self.left = left
        self.sent = True


class EarlyMessages:
    """The Messages port of a poller that fires ahead. What is held is answered as not sent yet."""

    def __init__(self, queue: Messages, clock: Clock, pace: Pace) -> None:
        self._queue = queue
        self._pace = pace
        self._clock = clock
        self._made: dict[Key, list[Message]] = {}  # by the look that goes on, not adopted yet
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
        """Keep the looks that have messages to be sent yet; the others are given back."""
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
        """Send what is due by then, the soonest first."""
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
        """When to begin to send: as late as their number allows."""
        return self._heap[0][0] - self.lead if self._heap else None

    @property
    def sending(self) -> timedelta:
        """What it takes to send all that is held."""
        return timedelta(seconds=len(self._heap) / self._pace.sent)

    @property
    def lead(self) -> timedelta:
        return min(LONGEST, max(SEND, self.sending))


def _key(message: Message) -> Key:
    return Key(message.tenant, message.job_id)
