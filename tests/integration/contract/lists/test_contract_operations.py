"""Rows of operations: one creation, swaps by revision, items, pages, and their expiry."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.operations.operation import (
    MAX_OPERATION_ERRORS,
    OPERATION_RETENTION,
    ItemResults,
    Operation,
    OperationAction,
    OperationError,
    OperationItem,
    OperationStatus,
    cancelled,
    with_results,
)
from punctual.engine.ports.lists.operations import OperationKey, OperationRequest
from tests.support.aws.adapters import World
from tests.support.builders import NOON, an_id
from tests.support.ports import Ports

REQUEST = OperationRequest(b'{"name":"ada"}', {"n": 2**80, "ü": [1.5, None]}, True)


def an_operation(number: int = 1, tenant: str = "acme", matched: int = 3, **more: Any) -> Operation:
    return Operation(
        tenant,
        an_id(number),
        OperationAction.PAUSE,
        {"tag": ["team:data"]},
        matched,
        NOON,
        NOON + OPERATION_RETENTION,
        **more,
    )


def key_of(operation: Operation) -> OperationKey:
    return OperationKey(operation.tenant, operation.operation_id)


def some_items(count: int, first: int = 0) -> list[OperationItem]:
    return [OperationItem(an_id(number)) for number in range(first, first + count)]


def create(ports: Ports, operation: Operation) -> Operation:
    assert ports.operations.create(operation, REQUEST, some_items(operation.matched))
    return operation


def test_created_operation_is_read_back(ports: Ports) -> None:
    operation = create(ports, an_operation(note="a move", until=NOON + timedelta(hours=1)))
    assert ports.operations.load(key_of(operation)) == operation
    assert ports.operations.load_request(key_of(operation)) == REQUEST
    assert ports.operations.load(OperationKey("bcme", operation.operation_id)) is None
    assert ports.operations.load(OperationKey("acme", an_id(9))) is None


def test_second_creation_changes_nothing(ports: Ports) -> None:
    """Two requests with one idempotency key may find other items."""
    operation = create(ports, an_operation())
    twin = replace(operation, matched=2, note="twin")
    assert not ports.operations.create(twin, OperationRequest(b"twin"), some_items(2, 50))
    assert ports.operations.load(key_of(operation)) == operation
    assert ports.operations.load_request(key_of(operation)) == REQUEST
    assert list(ports.operations.items(key_of(operation), 0, 10)) == some_items(3)


@pytest.mark.parametrize(
    ("start", "limit", "count"),
    [(0, 100, 100), (950, 100, 100), (999, 1, 1), (1_000, 1, 1), (2_450, 100, 50), (2_500, 9, 0)],
)
def test_items_are_read_in_order(ports: Ports, start: int, limit: int, count: int) -> None:
    operation = create(ports, an_operation(matched=2_500))
    items = list(ports.operations.items(key_of(operation), start, limit))
    assert items == some_items(count, start)


def test_items_of_runs_keep_their_runs(ports: Ports) -> None:
    items = [OperationItem(an_id(1), an_id(number)) for number in range(3)]
    operation = an_operation()
    assert ports.operations.create(operation, OperationRequest(), items)
    assert list(ports.operations.items(key_of(operation), 1, 2)) == items[1:]
    assert ports.operations.load_request(key_of(operation)) == OperationRequest()


def test_swap_needs_the_revision_before(ports: Ports) -> None:
    operation = create(ports, an_operation())
    error = OperationError(an_id(1), "CONFLICT", "The job is CANCELLED.", an_id(2))
    changed = with_results(operation, ItemResults(1, (error,)), NOON)
    assert ports.operations.swap(changed)
    assert ports.operations.load(key_of(operation)) == changed
    assert not ports.operations.swap(cancelled(operation, NOON))
    assert not ports.operations.swap(replace(changed, revision=9))
    assert not ports.operations.swap(replace(changed, operation_id=an_id(9)))
    assert ports.operations.load(key_of(operation)) == changed
    stopped = cancelled(changed, NOON)
    assert ports.operations.swap(stopped)
    assert ports.operations.load(key_of(operation)) == stopped


def test_operation_holds_all_its_errors(ports: Ports) -> None:
    operation = create(ports, an_operation(matched=300))
    errors = tuple(OperationError(an_id(n), "INVALID", "x" * 500) for n in range(300))
    changed = with_results(operation, ItemResults(0, errors), NOON)
    assert len(changed.errors) == MAX_OPERATION_ERRORS
    assert ports.operations.swap(changed)
    assert ports.operations.load(key_of(operation)) == changed


def test_page_is_newest_first_and_of_one_tenant(ports: Ports) -> None:
    operations = [create(ports, an_operation(number)) for number in range(5)]
    create(ports, an_operation(7, "acme#operations"))
    create(ports, an_operation(8, "bcme"))
    assert list(ports.operations.page("acme", None, 9)) == operations[::-1]
    assert list(ports.operations.page("acme", None, 2)) == [operations[4], operations[3]]
    assert list(ports.operations.page("acme", operations[3].operation_id, 2)) == [
        operations[2],
        operations[1],
    ]
    assert list(ports.operations.page("acme", operations[0].operation_id, 2)) == []
    assert list(ports.operations.page("ccme", None, 2)) == []


def test_running_operations_are_found_until_they_end(ports: Ports) -> None:
    first, second, third = (
        create(ports, an_operation(number, tenant))
        for number, tenant in ((3, "bcme"), (1, "ccme"), (2, "acme"))
    )
    create(ports, an_operation(4, matched=0, status=OperationStatus.DONE))
    assert list(ports.operations.running(9)) == [key_of(second), key_of(third), key_of(first)]
    assert list(ports.operations.running(1)) == [key_of(second)]
    assert ports.operations.count_running("acme") == 1
    assert ports.operations.swap(with_results(second, ItemResults(1), NOON))
    assert ports.operations.swap(cancelled(third, NOON))
    assert ports.operations.swap(with_results(first, ItemResults(3), NOON))
    assert list(ports.operations.running(9)) == [key_of(second)]
    assert [ports.operations.count_running(t) for t in ("acme", "bcme", "ccme")] == [0, 0, 1]


def test_similar_tenants_stay_apart(ports: Ports) -> None:
    for tenant in ("a", "a#", "a#b", "ab"):
        create(ports, an_operation(tenant=tenant))
    for tenant in ("a", "a#", "a#b", "ab"):
        assert ports.operations.count_running(tenant) == 1
        (operation,) = ports.operations.page(tenant, None, 9)
        assert operation.tenant == tenant


def test_expired_operation_is_gone(world: World) -> None:
    operations = world.ports.operations
    old = create(world.ports, an_operation(1))
    world.clock.advance(timedelta(hours=1))
    later = replace(an_operation(2), expires_at=NOON + OPERATION_RETENTION + timedelta(hours=1))
    create(world.ports, later)
    world.clock.set(NOON + OPERATION_RETENTION)
    assert operations.load(key_of(old)) is None
    assert not operations.swap(cancelled(old, NOON))
    assert list(operations.page("acme", None, 9)) == [later]
    assert list(operations.running(9)) == [key_of(later)]
    assert operations.count_running("acme") == 1
