"""Operations in the stream enter the change feed, and nothing else."""

import itertools
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.lists import operation_rows
from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed
from punctual.domain.errors import LaterVersion
from punctual.domain.operations.operation import (
    ItemResults,
    Operation,
    OperationError,
    with_results,
)
from punctual.engine.ports.lists.change_feed import Change, ChangeFilters, ChangeKind
from tests.integration.contract.lists.test_contract_operations import an_operation
from tests.support.aws.status_world import World, place
from tests.support.builders import NOON, a_job_state, an_id

ERRORS = (OperationError(an_id(5), "CONFLICT", "The job is CANCELLED."),)


def a_row(operation: Operation) -> dict[str, Any]:
    return operation_rows.to_row(operation, "set", "write", NOON)


def changes(world: World, tenant: str = "acme") -> list[Change]:
    settings = world.store.settings
    feed = DynamoChangeFeed(
        world.store.ports.operations._dynamo, settings.lists_table, settings.feed_slots, world.clock
    )
    now = world.clock()
    page = feed.read(tenant, feed.now(tenant, now - timedelta(minutes=5)), ChangeFilters(), now)
    assert page is not None
    return list(page.changes)


def test_batch_has_one_entry_for_the_last_revision(world: World) -> None:
    first = an_operation()
    second = with_results(first, ItemResults(1), NOON)
    third = with_results(second, ItemResults(0, ERRORS), NOON)
    other = an_operation(2, "bcme")
    rows = [None, a_row(first), a_row(second), a_row(third)]
    records = [world.stream.record(old, new) for old, new in itertools.pairwise(rows)]
    assert world.follow(*records, world.stream.record(None, a_row(other))) == []
    (change,) = changes(world)
    assert (change.kind, change.version, change.at) == (ChangeKind.OPERATION, 3, NOON)
    assert change.operation == third.without_errors()
    assert third.errors
    (change,) = changes(world, "bcme")
    assert change.operation == other


def test_jobs_and_operations_of_a_batch_share_a_row_of_the_feed(world: World) -> None:
    before = len(world.store.rows("lists"))
    job = world.stream.of(None, a_job_state(version=1))
    assert world.follow(job, world.stream.record(None, a_row(an_operation()))) == []
    assert {change.kind for change in changes(world)} == {ChangeKind.JOB, ChangeKind.OPERATION}
    feed_rows = [row for row in world.store.rows("lists") if "feed" in row[keys.PK]["S"]]
    assert (before, len(feed_rows)) == (0, 1)


def test_expired_operation_adds_nothing(world: World) -> None:
    assert world.follow(world.stream.record(a_row(an_operation()), None)) == []
    assert changes(world) == []


def test_operation_of_a_later_version_stops_only_what_follows(world: World) -> None:
    later = a_row(an_operation(2))
    later[keys.LAYOUT_ATTR] = {"N": str(keys.ROW_LAYOUT + 1)}
    records = [
        world.stream.record(None, a_row(an_operation())),
        world.stream.record(None, later),
        world.stream.record(None, a_row(an_operation(3))),
    ]
    assert world.follow(*records) == [place(records[1])]
    assert [change.operation for change in changes(world)] == [an_operation()]
    with pytest.raises(LaterVersion):
        world.follow(*records[1:])


def test_row_of_an_operation_carries_the_attribute_of_the_stream_filter() -> None:
    (_, name), *_ = [
        (image, next(iter(pattern["dynamodb"][image])))
        for pattern in keys.JOB_STATE_STREAM_FILTERS
        for image in pattern["dynamodb"]
    ]
    assert "S" in a_row(an_operation())[name]
    running = operation_rows.to_running_row(replace(an_operation()), "set", NOON)
    assert name not in running
