"""Operations on DynamoDB: lost answers, crashes of a creation, and running rows left behind."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.lists import operation_rows
from punctual.aws.dynamodb.lists.operations import MAX_CREATION_TIME, DynamoOperations
from punctual.domain.errors import Unreadable
from punctual.domain.operations.operation import ItemResults, Operation, cancelled, with_results
from punctual.engine.ports.lists.operations import OperationRequest, StalledOperation
from tests.integration.contract.lists.test_contract_operations import (
    an_operation,
    key_of,
    some_items,
)
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.aws.moto_faults import lost_answers
from tests.support.builders import NOON, ManualClock
from tests.support.simulation.port_faults import Crash

CREATION_CALLS = 3  # the running row, the content, the operation


class CrashingClient:
    """A client of DynamoDB that crashes before or after one of its calls."""

    def __init__(self, real: Any, call: int, takes_effect: bool) -> None:
        self._real = real
        self._left = call
        self._takes_effect = takes_effect

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._takes_effect:
                raise Crash(name)
            answer = getattr(self._real, name)(*args, **kwargs)
            if self._left == 0:
                raise Crash(name)
            return answer

        return call


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOON)


@pytest.fixture
def aws(clock: ManualClock) -> Iterator[Moto]:
    with moto(clock) as aws:
        yield aws


def create(aws: Moto, operation: Operation) -> Operation:
    items = some_items(operation.matched)
    assert aws.ports.operations.create(operation, OperationRequest(), items)
    return operation


def crash(
    aws: Moto, call: int, takes_effect: bool, work: Callable[[DynamoOperations], Any]
) -> None:
    """Do the work in a process that crashes at one of its calls."""
    operations = aws.ports.operations
    client = CrashingClient(operations._dynamo, call, takes_effect)
    names = iter(f"crashed-{number}" for number in range(9))
    process = DynamoOperations(
        client,  # type: ignore[arg-type]
        operations._table,
        operations._clock,
        lambda: next(names),
    )
    with pytest.raises(Crash):
        work(process)


def running_row_count(aws: Moto) -> int:
    partition = operation_rows.RUNNING_OPERATIONS_PARTITION
    return sum(row[keys.PK]["S"] == partition for row in aws.rows("jobs"))


def test_lost_answers_count_as_won(aws: Moto) -> None:
    operations, operation = aws.ports.operations, an_operation()
    with lost_answers(aws.clients.dynamodb, "PutItem", 2):
        create(aws, operation)
    changed = with_results(operation, ItemResults(1), NOON)
    with lost_answers(aws.clients.dynamodb, "UpdateItem", 2):
        assert operations.swap(changed)
    assert not operations.swap(changed)
    assert operations.load(key_of(operation)) == changed


@pytest.mark.parametrize("takes_effect", [False, True])
@pytest.mark.parametrize("call", range(1, CREATION_CALLS + 1))
def test_creation_that_crashed_may_be_repeated(aws: Moto, call: int, takes_effect: bool) -> None:
    """The repeated request finds other items. It begins the operation, or meets the first one."""
    operations = aws.ports.operations
    first, repeated = an_operation(matched=3), an_operation(matched=2)
    crash(aws, call, takes_effect, lambda o: o.create(first, OperationRequest(b"1"), some_items(3)))
    was_stored = call == CREATION_CALLS and takes_effect
    assert (operations.load(key_of(first)) == first) is was_stored
    is_created = operations.create(repeated, OperationRequest(b"2"), some_items(2, 40))
    assert is_created is not was_stored
    items = some_items(3) if was_stored else some_items(2, 40)
    assert list(operations.items(key_of(first), 0, 9)) == items
    assert operations.load_request(key_of(first)).actor == (b"1" if was_stored else b"2")
    assert list(operations.running(9)) == [key_of(first)]


def test_no_crash_of_a_creation_hides_a_running_operation(aws: Moto, clock: ManualClock) -> None:
    for call in range(1, CREATION_CALLS + 1):
        for takes_effect in (False, True):
            operation = an_operation(2 * call + takes_effect)
            create_it = partial(DynamoOperations.create, operation=operation)
            crash(aws, call, takes_effect, partial(create_it, request=OperationRequest(), items=()))
    clock.advance(MAX_CREATION_TIME + timedelta(minutes=1))
    stalled = aws.ports.operations.stalled(clock(), 9)
    last = an_operation(2 * CREATION_CALLS + 1)
    assert stalled == [StalledOperation(key_of(last), 1)]
    assert running_row_count(aws) == 1


def test_stalled_operations_have_not_moved_for_a_while(aws: Moto, clock: ManualClock) -> None:
    first, second, third = (
        create(aws, an_operation(number, tenant))
        for number, tenant in ((1, "b"), (2, "a"), (3, "c"))
    )
    clock.advance(timedelta(minutes=1))
    operations = aws.ports.operations
    moved = with_results(first, ItemResults(1), clock())
    assert operations.swap(moved)
    clock.advance(timedelta(minutes=1))
    assert operations.stalled(NOON, 9) == []
    old = [StalledOperation(key_of(second), 1), StalledOperation(key_of(third), 1)]
    assert operations.stalled(NOON + timedelta(seconds=1), 9) == old
    assert operations.stalled(NOON + timedelta(seconds=1), 1) == old[:1]
    assert operations.stalled(clock(), 9) == [*old, StalledOperation(key_of(first), 2)]


def test_running_row_of_an_ended_operation_is_removed(aws: Moto, clock: ManualClock) -> None:
    operation = create(aws, an_operation())
    crash(aws, 2, False, lambda o: o.swap(cancelled(operation, NOON)))
    assert running_row_count(aws) == 1
    clock.advance(timedelta(minutes=1))
    assert aws.ports.operations.stalled(clock(), 9) == []
    assert running_row_count(aws) == 0


def test_running_row_stays_while_a_creation_may_be_under_way(aws: Moto, clock: ManualClock) -> None:
    operation = an_operation()
    crash(aws, 2, False, lambda o: o.create(operation, OperationRequest(), []))
    clock.advance(MAX_CREATION_TIME)
    assert aws.ports.operations.stalled(clock(), 9) == []
    assert running_row_count(aws) == 1
    clock.advance(timedelta(seconds=1))
    assert aws.ports.operations.stalled(clock(), 9) == []
    assert running_row_count(aws) == 0


def test_walk_over_jobs_skips_operations(aws: Moto) -> None:
    create(aws, an_operation())
    page = aws.ports.job_states.walk(None, 100)
    assert (list(page.states), list(page.unreadable)) == ([], [])


def test_missing_rows_of_an_operation_are_an_error(aws: Moto) -> None:
    operations, operation = aws.ports.operations, create(aws, an_operation())
    rows = [
        keys.RowKey(row[keys.PK]["S"], row[keys.SK]["S"])
        for row in aws.rows("jobs")
        if "#operation#" in row[keys.PK]["S"]
    ]
    operations._dynamo.delete(operations._table, rows)
    with pytest.raises(Unreadable, match="rows of the operation are missing"):
        operations.load_request(key_of(operation))
    assert list(operations.items(key_of(operation), 0, 9)) == []


def test_operation_costs_few_calls(aws: Moto) -> None:
    operation, operations = an_operation(matched=2_000), aws.ports.operations
    assert aws.spend(lambda: create(aws, operation)) == {"BatchWriteItem": 2, "PutItem": 1}
    key = key_of(operation)

    def run_slice() -> None:
        assert operations.load(key) == operation
        assert len(operations.items(key, 100, 100)) == 100
        operations.load_request(key)
        assert operations.swap(with_results(operation, ItemResults(100), NOON))

    assert aws.spend(run_slice) == {"BatchGetItem": 3, "UpdateItem": 1}
