"""The `event` task on the node: published in the commit that ends its run."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from punctual.domain.run import RunStatus
from punctual.engine.changes.change import Result
from punctual.engine.changes.effects import message_of
from punctual.engine.execution.deferred import Held
from punctual.engine.execution.executor import Assignment, Finished
from punctual.engine.execution.inline import Done, Performing, Prepared
from punctual.engine.ports.rows import Detail
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from punctual.node.run_queue.queue import RunQueue
from punctual.node.run_queue.slots import INLINE
from punctual.node.running_tasks import attempt_of
from punctual.node.sqlite.feed import SqliteFeed
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.event import build_event, published
from punctual.tasks.placeholders import expand, has_placeholders, no_secrets


class Ran(NamedTuple):
    taken: int
    done: Done
    again: Sequence[tuple[Message, datetime]]
    looked: Sequence[tuple[Sequence[Timer], Result]]


class EventsInline:
    """Each run is claimed and ended by one swap; its event goes into the same transaction.

    What a timer brings ahead of its time is held in memory until then, made ready but for the
    moment at which it happens.
    """

    def __init__(
        self, performing: Performing, ready: RunQueue, feed: SqliteFeed, new_id: Callable[[], str]
    ) -> None:
        self._performing = performing
        self._ready = ready
        self._feed = feed
        self._new_id = new_id
        self._held: dict[tuple[str, int], Prepared] = {}
        self._events: dict[str, bytes] = {}  # of runs made ready

    def hold(self, held: Sequence[Held]) -> Sequence[bool]:
        messages = [message_of(h.change.key, h.run, h.decision.head) for h in held]
        taken = self._ready.hold(messages)
        mine = [h for h, ours in zip(held, taken, strict=True) if ours]
        prepared = iter(self._performing.prepare(mine, self._work))
        return [ours and self._keep(next(prepared)) for ours in taken]

    def _keep(self, prepared: Prepared | None) -> bool:
        """What cannot be made ready is written as queued, as if there had been no room for it."""
        if prepared is None:
            return False
        one = prepared[0].held
        self._held[one.run.run_id, one.decision.head.version] = prepared
        return True

    def start_over(self) -> None:
        """Nothing of what was held was written: its timers bring it again."""
        self._held.clear()
        self._events.clear()

    def run(self, now: datetime, most: int) -> Ran:
        """Do what is due, of what was held and of what stands queued."""
        messages = self._ready.take(INLINE, now, most)
        if not messages:
            return Ran(0, (), (), ())
        held, queued = [], []
        for message in messages:
            one = self._held.pop((message.run_id, message.version), None)
            if one is None:
                queued.append(message)
            else:
                held.append(one)
        done: list[Any] = []
        looked: Sequence[tuple[Sequence[Timer], Result]] = ()
        again: Sequence[tuple[Message, datetime]] = ()
        if held:
            completed = self._performing.complete(held)
            done.extend(completed.done)
            looked = completed.looked
        if queued:
            performed = self._performing.perform(queued, self._work)
            done.extend(performed.done)
            again = performed.again
        events = self._events
        found = [events.pop(one.run_id, None) for one, _ in done]
        self._feed.publish_encoded([event for event in found if event is not None])
        if len(done) < len(messages):
            for message in messages:
                events.pop(message.run_id, None)
        return Ran(len(messages), done, again, looked)

    def _work(self, assignment: Assignment) -> Finished:
        """A placeholder that names nothing fails the run for good."""
        try:
            event = build_event(_expanded(attempt_of(assignment)))
        except BadTask as error:
            return _ended(assignment, RunStatus.FAILED, Detail(error=str(error)))
        event_id = self._new_id()
        self._events[assignment.run.run_id] = self._feed.encode({"id": event_id, **event})
        outcome = published(event_id)
        detail = Detail(output=outcome.output, output_type=outcome.output_type)
        return _ended(assignment, RunStatus.SUCCESS, detail)


def _expanded(attempt: Attempt) -> Attempt:
    return expand(attempt, no_secrets) if has_placeholders(attempt.task) else attempt


def _ended(assignment: Assignment, status: RunStatus, detail: Detail) -> Finished:
    run = assignment.run
    return Finished(assignment.key, run.run_id, run.token, status, False, detail)
