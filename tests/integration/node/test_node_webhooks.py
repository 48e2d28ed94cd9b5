"""Webhooks of the node: stored with the end of a run, sent by threads, kept over a restart."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.tenants.webhooks import MAX_WEBHOOK_ATTEMPTS
from punctual.engine.ports.notifications import Notification
from punctual.node.sqlite.store import Store
from punctual.node.webhooks import MAX_CONCURRENT_WEBHOOKS, Webhooks
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from tests.integration.contract.test_contract_notifications import a_notification
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, World, a_world

DOWN = Outcome.failed("The server answered 503")
HOOK = "https://hooks.example/a"
FAILS = {"type": "event", "detail_type": "{{payload.nothing}}"}


class Receiver:
    """An HTTP task that returns the planned answers while `open` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.calls: list[Attempt] = []
        self.answers: list[Outcome] = []

    def run(self, attempt: Attempt, stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        self.calls.append(attempt)
        while not self.open.is_set():
            if stop.wait(0.005):
                return Outcome.stopped(stop.reason())
        return self.answers.pop(0) if self.answers else Outcome("SUCCESS")


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def world(tmp_path: Path, receiver: Receiver) -> Iterator[World]:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        yield with_webhooks(world, receiver)


def with_webhooks(world: World, receiver: Receiver) -> World:
    node = world.node
    node.webhooks = Webhooks(
        transaction=world.store.transaction(),
        job_states=world.store.job_states,
        history=world.store.history,
        notifications=world.store.notifications,
        attempt_runner=AttemptRunner({"http": receiver}),
        secrets=lambda _: [b"secret"],
        log=lambda event, **_: world.events.append(event),
        wake=world.woken.set,
    )
    return world


def submit_failing(world: World, **fields: Any) -> str:
    notify = [{"on": ["SUCCESS"], "url": f"{HOOK}/no"}, {"on": ["FAILED"], "url": HOOK}]
    return world.submit(task=FAILS, notify=notify, **fields)


def webhook_events(world: World) -> list[str]:
    return [event for event in world.events if event.startswith("webhook_")]


def test_webhook_of_an_ended_run_is_sent_once(world: World, receiver: Receiver) -> None:
    submit_failing(world)
    world.node.step()
    world.settle()
    assert [attempt.task["url"] for attempt in receiver.calls] == [HOOK]
    assert webhook_events(world) == ["webhook_delivered"]
    world.until(3_600)
    assert len(receiver.calls) == 1


def test_node_without_webhooks_reads_no_notifications(world: World, tmp_path: Path) -> None:
    world.submit()
    world.node.step()
    statements: list[str] = []
    world.store._db.set_trace_callback(statements.append)
    world.submit()
    world.until(60)
    assert world.submit()
    world.store._db.set_trace_callback(None)
    assert statements
    assert [statement for statement in statements if "notices" in statement] == []


def test_webhook_to_an_unavailable_receiver_backs_off_and_is_abandoned(
    world: World, receiver: Receiver
) -> None:
    receiver.answers = [DOWN] * MAX_WEBHOOK_ATTEMPTS
    submit_failing(world)
    world.node.step()
    for tries in range(1, MAX_WEBHOOK_ATTEMPTS + 1):
        world.settle()
        assert len(receiver.calls) == tries
        at = world.store.notifications.next_at(())
        if at is not None:
            world.clock.set(at)
            world.node.step()
    assert (world.clock() - NOON).total_seconds() > 5 * 3_600
    assert webhook_events(world) == ["webhook_given_up"]
    assert world.store.notifications.due(world.clock() + timedelta(days=9), 9, ()) == []


def test_undelivered_webhook_is_sent_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    clock = ManualClock(NOON)
    receiver.answers = [DOWN]
    with a_world(tmp_path, clock) as world:
        submit_failing(with_webhooks(world, receiver))
        world.node.step()
        world.settle()
    clock.set(NOON + timedelta(seconds=11))
    with a_world(tmp_path, clock) as world:  # its first step has no key
        with_webhooks(world, receiver)
        world.clock.set(NOON + timedelta(seconds=72))
        world.node.step()
        world.settle()
        assert webhook_events(world) == ["webhook_not_begun", "webhook_delivered"]
    ids = [attempt.task["headers"]["webhook-id"] for attempt in receiver.calls]
    assert (len(ids), len(set(ids))) == (2, 1)


def test_stop_aborts_a_delivery_without_counting_an_attempt(
    world: World, receiver: Receiver
) -> None:
    receiver.open.clear()
    submit_failing(world)
    world.node.step()
    assert not world.node.is_idle
    world.node.close()
    world.settle()
    assert world.node.is_idle
    assert webhook_events(world) == []
    (notification,) = world.store.notifications.due(world.clock(), 9, ())
    assert notification.tries == 0


def test_webhook_deliveries_are_limited_in_number(world: World, receiver: Receiver) -> None:
    receiver.open.clear()
    for _ in range(MAX_CONCURRENT_WEBHOOKS + 3):
        submit_failing(world)
    world.node.step()
    for _ in range(200):
        if len(receiver.calls) == MAX_CONCURRENT_WEBHOOKS:
            break
        threading.Event().wait(0.01)
    world.node.step()
    assert len(receiver.calls) == MAX_CONCURRENT_WEBHOOKS
    at = world.node.next_step_steady()
    assert at > world.clock.monotonic(), "the loop does not spin"
    receiver.open.set()
    for _ in range(MAX_CONCURRENT_WEBHOOKS + 3):
        if len(webhook_events(world)) < MAX_CONCURRENT_WEBHOOKS + 3:
            world.settle()
    assert webhook_events(world) == ["webhook_delivered"] * (MAX_CONCURRENT_WEBHOOKS + 3)


def test_notification_is_rolled_back_with_its_transaction(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    notification: Notification = a_notification()
    assert store.notifications.next_at(()) is None

    def put_and_fail() -> None:
        with store.transaction():
            store.notifications.put([notification])
            assert store.notifications.next_at(()) == NOON
            raise RuntimeError

    with pytest.raises(RuntimeError):
        put_and_fail()
    assert store.notifications.next_at(()) is None
    assert store.notifications.due(NOON, 9, ()) == []
    store.notifications.put([notification])
    assert [row.notification for row in store.notifications.due(NOON, 9, ())] == [notification]
    store.close()


def test_webhook_without_a_key_stays_stored(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        submit_failing(world)
        world.until(59)
        assert webhook_events(world) == ["webhook_not_begun"], "one attempt in the first minute"
        world.until(61)
        assert webhook_events(world) == ["webhook_not_begun"] * 2
        (notification,) = world.store.notifications.due(NOON + timedelta(seconds=122), 9, ())
        assert notification.tries == 0
