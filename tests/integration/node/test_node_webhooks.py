"""Webhooks of the node: written with the end of their run, told by threads, kept over a restart."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from punctual.domain.tenants.webhooks import MAX_WEBHOOK_ATTEMPTS
from punctual.engine.ports.notifications import Notification
from punctual.node.clock import ManualClock
from punctual.node.sqlite.store import Store
from punctual.node.webhooks import MAX_CONCURRENT_WEBHOOKS, Webhooks
from punctual.tasks.contract import Attempt, Outcome, Recorder, StopRequest
from punctual.tasks.registry import Registry
from tests.integration.contract.test_contract_notices import a_notice
from tests.support.node.node_world import NOON, World, a_world

DOWN = Outcome.failed("The server answered 503")
HOOK = "https://hooks.example/a"
FAILS = {"type": "event", "detail_type": "{{payload.nothing}}"}


class Receiver:
    """Answers as it is told, when it is let."""

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
    with a_world(tmp_path, ManualClock(NOON)) as made:
        yield receiving(made, receiver)


def receiving(world: World, receiver: Receiver) -> World:
    node = world.node
    node.webhooks = Webhooks(
        transaction=world.store.transaction(),
        job_states=world.store.job_states,
        history=world.store.history,
        notifications=world.store.notifications,
        registry=Registry({"http": receiver}),
        secrets=lambda _: [b"secret"],
        log=lambda event, **_: world.events.append(event),
        wake=world.woken.set,
    )
    return world


def fails(world: World, **fields: Any) -> str:
    notify = [{"on": ["SUCCESS"], "url": f"{HOOK}/no"}, {"on": ["FAILED"], "url": HOOK}]
    return world.submit(task=FAILS, notify=notify, **fields)


def told(world: World) -> list[str]:
    return [event for event in world.events if event.startswith("webhook_")]


def test_the_end_of_a_run_is_told_once(world: World, receiver: Receiver) -> None:
    fails(world)
    world.node.step()
    world.settle()
    assert [attempt.task["url"] for attempt in receiver.calls] == [HOOK]
    assert told(world) == ["webhook_delivered"]
    world.until(3_600)
    assert len(receiver.calls) == 1


def test_a_node_without_webhooks_asks_its_store_for_none(world: World, tmp_path: Path) -> None:
    world.submit()
    world.node.step()
    asked: list[str] = []
    world.store._db.set_trace_callback(asked.append)
    world.submit()
    world.until(60)
    assert world.submit()
    world.store._db.set_trace_callback(None)
    assert asked
    assert [one for one in asked if "notices" in one] == []


def test_a_receiver_that_is_down_is_asked_each_time_later_and_given_up(
    world: World, receiver: Receiver
) -> None:
    receiver.answers = [DOWN] * MAX_WEBHOOK_ATTEMPTS
    fails(world)
    world.node.step()
    for tries in range(1, MAX_WEBHOOK_ATTEMPTS + 1):
        world.settle()
        assert len(receiver.calls) == tries
        at = world.store.notifications.next_at(())
        if at is not None:
            world.clock.set(at)
            world.node.step()
    assert (world.clock() - NOON).total_seconds() > 5 * 3_600
    assert told(world) == ["webhook_given_up"]
    assert world.store.notifications.due(world.clock() + timedelta(days=9), 9, ()) == []


def test_what_was_not_told_yet_is_told_after_a_restart(tmp_path: Path, receiver: Receiver) -> None:
    clock = ManualClock(NOON)
    receiver.answers = [DOWN]
    with a_world(tmp_path, clock) as world:
        fails(receiving(world, receiver))
        world.node.step()
        world.settle()
    clock.set(NOON + timedelta(seconds=11))
    with a_world(tmp_path, clock) as world:  # which has no key at its first step
        receiving(world, receiver)
        world.clock.set(NOON + timedelta(seconds=72))
        world.node.step()
        world.settle()
        assert told(world) == ["webhook_not_begun", "webhook_delivered"]
    ids = [attempt.task["headers"]["webhook-id"] for attempt in receiver.calls]
    assert (len(ids), len(set(ids))) == (2, 1)


def test_a_stop_breaks_off_what_is_being_told_and_counts_it_for_nothing(
    world: World, receiver: Receiver
) -> None:
    receiver.open.clear()
    fails(world)
    world.node.step()
    assert not world.node.is_idle
    world.node.close()
    world.settle()
    assert world.node.is_idle
    assert told(world) == []
    (left,) = world.store.notifications.due(world.clock(), 9, ())
    assert left.tries == 0


def test_only_a_few_are_told_at_a_time(world: World, receiver: Receiver) -> None:
    receiver.open.clear()
    for _ in range(MAX_CONCURRENT_WEBHOOKS + 3):
        fails(world)
    world.node.step()
    for _ in range(200):
        if len(receiver.calls) == MAX_CONCURRENT_WEBHOOKS:
            break
        threading.Event().wait(0.01)
    world.node.step()
    assert len(receiver.calls) == MAX_CONCURRENT_WEBHOOKS
    at = world.node.next_at()
    assert at > world.clock.monotonic(), "nobody waits for them in a circle"
    receiver.open.set()
    for _ in range(MAX_CONCURRENT_WEBHOOKS + 3):
        if len(told(world)) < MAX_CONCURRENT_WEBHOOKS + 3:
            world.settle()
    assert told(world) == ["webhook_delivered"] * (MAX_CONCURRENT_WEBHOOKS + 3)


def test_a_notice_goes_with_the_transaction_that_made_it(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "data", ManualClock(NOON))
    notice: Notification = a_notice()
    assert store.notifications.next_at(()) is None

    def undone() -> None:
        with store.transaction():
            store.notifications.put([notice])
            assert store.notifications.next_at(()) == NOON
            raise RuntimeError

    with pytest.raises(RuntimeError):
        undone()
    assert store.notifications.next_at(()) is None
    assert store.notifications.due(NOON, 9, ()) == []
    store.notifications.put([notice])
    assert [one.notification for one in store.notifications.due(NOON, 9, ())] == [notice]
    store.close()


def test_without_a_key_the_end_of_a_run_is_kept_to_be_told(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        fails(world)
        world.until(59)
        assert told(world) == ["webhook_not_begun"], "and nothing else is held up"
        world.until(61)
        assert told(world) == ["webhook_not_begun"] * 2
        (left,) = world.store.notifications.due(NOON + timedelta(seconds=122), 9, ())
        assert left.tries == 0
