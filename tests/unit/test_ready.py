"""What is queued on the node is taken by priority, then by time, and never early."""

from datetime import UTC, datetime, timedelta

from punctual.domain.job_state import Lane, Priority
from punctual.engine.ports.run_queue import Message
from punctual.node.run_queue.queue import RunQueue
from tests.unit.queued_jobs import QueuedJobs

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def a_message(run_id: str, priority: Priority = Priority.NORMAL, seconds: float = 0) -> Message:
    due_at = NOON + timedelta(seconds=seconds)
    return Message("acme", "job", run_id, due_at, priority, Lane.QUICK, 1, "script")


def ready_with(*messages: Message) -> RunQueue:
    ready = RunQueue(QueuedJobs(), frozenset())
    ready.send(messages)
    return ready


def taken(ready: RunQueue, seconds: float = 0, most: int = 10) -> list[str]:
    now = NOON + timedelta(seconds=seconds)
    return [message.run_id for message in ready.take(Lane.QUICK, now, most)]


def test_what_is_due_is_taken_by_priority_and_then_by_time() -> None:
    ready = ready_with(
        a_message("low", Priority.LOW, -9),
        a_message("later", Priority.NORMAL, -1),
        a_message("sooner", Priority.NORMAL, -2),
        a_message("high", Priority.HIGH),
    )
    assert taken(ready, most=1) == ["high"]
    assert taken(ready) == ["sooner", "later", "low"]
    assert taken(ready) == []


def test_what_is_due_together_is_taken_as_it_was_sent() -> None:
    """Timers come by job, and rows stand by job: runs side by side touch few pages."""
    ready = ready_with(*(a_message(run_id) for run_id in "cab"))
    assert taken(ready, most=2) == ["c", "a"]
    assert taken(ready) == ["b"]


def test_an_urgent_run_is_not_taken_before_its_time() -> None:
    ready = ready_with(a_message("high", Priority.HIGH, 1), a_message("low", Priority.LOW))
    assert taken(ready) == ["low"]
    assert ready.next_at() == NOON + timedelta(seconds=1)
    assert taken(ready, seconds=1) == ["high"]


def test_a_more_urgent_run_that_comes_later_goes_first() -> None:
    ready = ready_with(a_message("normal-1"), a_message("normal-2"))
    assert taken(ready, most=1) == ["normal-1"]
    ready.send([a_message("high", Priority.HIGH)])
    assert taken(ready) == ["high", "normal-2"]
