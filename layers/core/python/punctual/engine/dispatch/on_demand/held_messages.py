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
from punctual.engine.dispatch.on_demand.wakeup_times import SEND_LEAD, Throughput
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.run_queue import Message, RunQueue
from punctual.engine.ports.timers import Timer

MAX_EARLY_SEND = timedelta(seconds=2)  # an executor waits at most this long for the due time

Evaluation = tuple[Sequence[Timer], Result]


class Released(NamedTuple):
    """The evaluations for which all messages were sent or refused."""

    evaluations: Sequence[Evaluation]
    consumed_timers: Sequence[Timer]  # to delete, because their messages are sent


class _HeldEvaluation:
    """An evaluation with held messages."""

    __slots__ = ("evaluation", "is_sent", "unsent_count")

    def __init__(self, evaluation: Evaluation, unsent_count: int) -> None:
        self.evaluation = evaluation
        self.unsent_count = unsent_count
        self.is_sent = True


class HeldMessages:
    """The run queue of a poller that fires ahead. It reports held messages as not sent."""

    def __init__(self, run_queue: RunQueue, clock: Clock, throughput: Throughput) -> None:
        self._run_queue = run_queue
        self._throughput = throughput
        self._clock = clock
        self._new_messages: dict[JobKey, list[Message]] = {}  # of the evaluation in progress
        self._refused_keys: set[JobKey] = set()
        self._heap: list[tuple[datetime, int, Message, _HeldEvaluation]] = []
        self._sequence = count()
        self.sent_count = 0

    def send(self, messages: Sequence[Message]) -> Sequence[bool]:
        until = self._clock() + SEND_LEAD
        due_messages = [message for message in messages if message.due_at <= until]
        try:
            accepted = dict(zip(due_messages, self._send(due_messages), strict=True))
        except Unavailable:
            self._refused_keys.update(_key(message) for message in messages)
            raise
        for message in messages:
            if message not in accepted:
                self._new_messages.setdefault(_key(message), []).append(message)
            elif not accepted[message]:
                self._refused_keys.add(_key(message))
        return [accepted.get(message, False) for message in messages]

    def _send(self, messages: Sequence[Message]) -> Sequence[bool]:
        accepted = self._run_queue.send(messages) if messages else ()
        self.sent_count += sum(accepted)
        return accepted

    def hold_back(self, evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        """Keep the evaluations with held messages. Return the others."""
        complete = []
        for trigger_timers, result in evaluations:
            held_messages = self._new_messages.get(trigger_timers[0].key, [])
            if (
                not held_messages
                or result.is_contended
                or trigger_timers[0].key in self._refused_keys
            ):
                complete.append((trigger_timers, result))
                continue
            evaluation = _HeldEvaluation((trigger_timers, result), len(held_messages))
            for message in held_messages:
                heapq.heappush(
                    self._heap, (message.due_at, next(self._sequence), message, evaluation)
                )
        self._new_messages, self._refused_keys = {}, set()
        return complete

    def release(self, until: datetime, limit: int) -> Released:
        """Send at most `limit` held messages that are due by `until`, the soonest first."""
        released: list[tuple[Message, _HeldEvaluation]] = []
        while self._heap and self._heap[0][0] <= until and len(released) < limit:
            _, _, message, evaluation = heapq.heappop(self._heap)
            released.append((message, evaluation))
        if not released:
            return Released((), ())
        try:
            outcomes = self._send([message for message, _ in released])
        except Unavailable:
            outcomes = [False] * len(released)
        evaluations: list[Evaluation] = []
        consumed_timers: list[Timer] = []
        for (_, evaluation), is_accepted in zip(released, outcomes, strict=True):
            evaluation.unsent_count -= 1
            evaluation.is_sent &= is_accepted
            if not evaluation.unsent_count:
                trigger_timers, result = evaluation.evaluation
                is_done = evaluation.is_sent and result.history_recorded
                evaluations.append((trigger_timers, replace(result, effects_done=is_done)))
                if is_done:
                    consumed_timers.extend(
                        timer for timer in trigger_timers if timer not in result.remaining_timers
                    )
        return Released(evaluations, consumed_timers)

    def next_send_at(self) -> datetime | None:
        """Return when to begin to send, as late as the number of messages allows."""
        return self._heap[0][0] - self.send_lead if self._heap else None

    @property
    def send_duration(self) -> timedelta:
        """Return the time that it takes to send all held messages."""
        return timedelta(seconds=len(self._heap) / self._throughput.sent_per_second)

    @property
    def send_lead(self) -> timedelta:
        return min(MAX_EARLY_SEND, max(SEND_LEAD, self.send_duration))


def _key(message: Message) -> JobKey:
    return JobKey(message.tenant, message.job_id)
