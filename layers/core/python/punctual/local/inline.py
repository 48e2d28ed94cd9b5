"""The `event` task on the node: published in the commit that ends its run."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from punctual.domain.run import Status
from punctual.engine.executor import Assignment, Executor, Finished, Performed
from punctual.engine.ports import Detail, Feed, Message
from punctual.local.holding import attempt_of
from punctual.tasks.contract import Attempt, BadTask
from punctual.tasks.event import build_event, published
from punctual.tasks.placeholders import expand, has_placeholders, no_secrets


class EventsInline:
    """Each run is claimed and ended by one swap; its event goes into the same transaction."""

    def __init__(self, executor: Executor, feed: Feed, new_id: Callable[[], str]) -> None:
        self._executor = executor
        self._feed = feed
        self._new_id = new_id

    def run(self, messages: Sequence[Message]) -> Performed:
        events: dict[str, Mapping[str, Any]] = {}

        def work(assignment: Assignment) -> Finished:
            """A placeholder that names nothing fails the run for good."""
            try:
                event = build_event(_expanded(attempt_of(assignment)))
            except BadTask as error:
                return _ended(assignment, Status.FAILED, Detail(error=str(error)))
            event_id = self._new_id()
            events[assignment.run.run_id] = {"id": event_id, **event}
            outcome = published(event_id)
            detail = Detail(output=outcome.output, output_type=outcome.output_type)
            return _ended(assignment, Status.SUCCESS, detail)

        performed = self._executor.perform(messages, work)
        self._feed.publish(
            [events[done.run_id] for done, _ in performed.done if done.run_id in events]
        )
        return performed


def _expanded(attempt: Attempt) -> Attempt:
    return expand(attempt, no_secrets) if has_placeholders(attempt.task) else attempt


def _ended(assignment: Assignment, status: Status, detail: Detail) -> Finished:
    run = assignment.run
    return Finished(assignment.key, run.run_id, run.token, status, False, detail)
