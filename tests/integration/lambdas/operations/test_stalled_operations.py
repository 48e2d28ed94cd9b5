"""The planner's tick sends another message for an operation that has not moved for minutes."""

from collections.abc import Iterator
from datetime import timedelta
from unittest import mock

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.lists.operations import DynamoOperations
from punctual.aws.sqs.operation_queue import (
    OperationMessage,
    OperationQueue,
    parse_operation_message,
)
from punctual.domain.errors import Unavailable
from punctual.domain.operations.operation import Operation, cancelled
from punctual.engine.ports.lists.operations import OperationRequest
from punctual.lambdas.planner import stalled_operations
from tests.integration.contract.lists.test_contract_operations import (
    an_operation,
    key_of,
    some_items,
)
from tests.support.aws.moto_faults import failed_entries, unreached
from tests.support.builders import NOON, after
from tests.support.deployed.drivers.dispatch import Dispatch, dispatch
from tests.support.deployed.sqs import Queue
from tests.support.deployed.world import MINUTE


@pytest.fixture
def deployed() -> Iterator[Dispatch]:
    with dispatch() as deployed:
        yield deployed


def queue_of(deployed: Dispatch) -> Queue:
    return deployed.world.queue("operations")


def create(deployed: Dispatch, number: int = 0) -> Operation:
    """Store an operation without a message, as a request does that crashes before it sends one."""
    operation = an_operation(number)
    assert deployed.aws.ports.operations.create(
        operation, OperationRequest(), some_items(operation.matched)
    )
    return operation


def message_of(operation: Operation) -> OperationMessage:
    return OperationMessage(key_of(operation), operation.revision)


def tick(deployed: Dispatch, seconds: float) -> list[OperationMessage]:
    """Tick at a time. Return the messages that were sent, and remove them."""
    deployed.clock.set(after(seconds))
    deployed.planner.tick()
    queue = queue_of(deployed)
    sent = [parse_operation_message(message.body) for message in queue.messages]
    queue.messages.clear()
    return sent


def test_operation_without_message_is_sent_after_two_minutes(deployed: Dispatch) -> None:
    operation = create(deployed)
    sent = {seconds: tick(deployed, seconds) for seconds in (0, 60, 119, 121)}
    assert sent == {0: [], 60: [], 119: [], 121: [message_of(operation)]}


def test_message_that_is_lost_again_is_sent_by_each_later_tick(deployed: Dispatch) -> None:
    operation = create(deployed)
    for minute in range(3, 8):
        assert tick(deployed, minute * 60) == [message_of(operation)]


def test_operation_that_moves_gets_no_message(deployed: Dispatch) -> None:
    operation = create(deployed)
    for minute in range(1, 10):
        assert tick(deployed, minute * 60) == []
        operation = replace(operation, revision=operation.revision + 1)
        assert deployed.aws.ports.operations.swap(operation)
    assert tick(deployed, 720) == [message_of(operation)]


def test_ended_operation_gets_no_message(deployed: Dispatch) -> None:
    operation = create(deployed)
    assert deployed.aws.ports.operations.swap(cancelled(operation, NOON))
    assert tick(deployed, 600) == []


def test_new_planner_sends_as_the_old_one(deployed: Dispatch) -> None:
    """A planner keeps nothing in memory that an operation waits for."""
    operation = create(deployed)
    deployed.planner.tick()
    for minute in range(3, 6):
        deployed.planner = deployed.new_planner()
        assert tick(deployed, minute * 60) == [message_of(operation)]


def test_tick_sends_a_bounded_number_of_messages(
    deployed: Dispatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operations that moved first come first, and each tick sends others once they move."""
    monkeypatch.setattr(stalled_operations, "MAX_RESENT_OPERATIONS", 2)
    waiting = []
    for number in range(5):
        deployed.clock.set(after(number))
        waiting.append(create(deployed, number))
    reached: list[str] = []
    for minute in range(3, 6):
        sent = tick(deployed, minute * 60)
        assert len(sent) == min(2, len(waiting) - len(reached))
        for message in sent:
            (operation,) = [o for o in waiting if o.operation_id == message.key.operation_id]
            reached.append(operation.operation_id)
            moved = replace(operation, revision=operation.revision + 1)
            assert deployed.aws.ports.operations.swap(moved)
    assert reached == [operation.operation_id for operation in waiting]


@pytest.mark.parametrize(
    ("part", "call"), [(DynamoOperations, "stalled"), (OperationQueue, "send")]
)
def test_failure_is_left_to_the_next_tick_and_delays_no_due_run(
    deployed: Dispatch, part: type, call: str
) -> None:
    operation = create(deployed)
    deployed.submit(schedule_type="FUTURE", schedule_time=after(600).isoformat())
    with mock.patch.object(part, call, side_effect=Unavailable("planted")):
        assert tick(deployed, 510) == []
    assert len(deployed.wake_ups()) == 1
    assert tick(deployed, 570) == [message_of(operation)]


def test_message_that_sqs_fails_is_sent_by_the_next_tick(deployed: Dispatch) -> None:
    operation = create(deployed)
    with failed_entries(deployed.aws.clients.sqs, "SendMessageBatch", 2, {0}):
        tick(deployed, 180)
    with unreached(deployed.aws.clients.sqs, "SendMessageBatch", 9):
        assert tick(deployed, 240) == []
    assert tick(deployed, 300) == [message_of(operation)]


def test_operations_are_sent_while_dispatch_is_off(deployed: Dispatch) -> None:
    deployed.put_settings(dispatch="off")
    operation = create(deployed)
    assert tick(deployed, 180) == [message_of(operation)]


def test_tick_without_operations_reads_one_row_more(deployed: Dispatch) -> None:
    for minute in range(4):
        deployed.clock.set(NOON + minute * MINUTE)
        deployed.planner.tick()
    deployed.clock.advance(timedelta(minutes=1))
    with_query = deployed.spend(deployed.planner.tick)
    reads = {"Query": 3, "BatchGetItem": 1}  # two of timers, one of operations
    assert with_query == {**reads, "PutItem": 1}, "the watermark is written in each tick"
