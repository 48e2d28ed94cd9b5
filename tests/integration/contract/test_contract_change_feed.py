"""The change feed of the node and of AWS show an operation in the same form."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed, FeedEntry
from punctual.domain.operations.operation import (
    OPERATION_RETENTION,
    Operation,
    OperationAction,
    OperationError,
    OperationItem,
    OperationStatus,
)
from punctual.domain.timestamps import format_time
from punctual.engine.ports.lists.change_feed import ChangeFeed, ChangeFilters, ChangeKind
from punctual.engine.ports.lists.operations import OperationRequest
from punctual.node.sqlite.store import Store
from punctual.web.views.change import change_json
from punctual.web.views.operation import operation_json
from tests.support.aws.feed_table import FeedTable
from tests.support.builders import JOB, NOON, ManualClock, an_id

OPERATION = Operation(
    tenant="acme",
    operation_id=an_id(7),
    action=OperationAction.PAUSE,
    filter={"tag": ["team:data"], "name_prefix": "tmp-é"},
    matched=3,
    created_at=NOON,
    expires_at=NOON + OPERATION_RETENTION,
    created_by="ann",
    until=NOON,
    note="maintenance",
    status=OperationStatus.DONE,
    next_item=3,
    done=2,
    failed=1,
    errors=(OperationError(JOB, "CONFLICT", "The job is cancelled."),),
    ended_at=NOON,
    revision=5,
)

WriteOperation = Callable[[Operation], object]


@pytest.fixture(params=["node", "aws"])
def feed(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[ChangeFeed, WriteOperation]]:
    clock = ManualClock(NOON)
    if request.param == "aws":
        table = cast(Any, FeedTable(clock, Random(1), slowest=0))
        aws_feed = DynamoChangeFeed(table, "feed", 1, clock)
        yield aws_feed, lambda operation: _append(aws_feed, operation)
        return
    store = Store.open(tmp_path / "data", clock)
    yield (
        store.changes,
        lambda operation: store.operations.create(
            operation, OperationRequest(), [OperationItem(JOB)]
        ),
    )
    store.close()


def _append(feed: DynamoChangeFeed, operation: Operation) -> None:
    entry = FeedEntry(
        *(ChangeKind.OPERATION.value, "", "", operation.revision, NOON),
        operation=operation.without_errors(),
    )
    feed.append(operation.tenant, "batch", [entry])


def test_operation_in_the_feed_is_shown_without_its_errors(
    feed: tuple[ChangeFeed, WriteOperation],
) -> None:
    changes, write = feed
    cursor = changes.now("acme", NOON)
    write(OPERATION)
    page = changes.read("acme", cursor, ChangeFilters(), NOON)
    assert page is not None
    (change,) = page.changes
    assert change_json(change, "/v1") == {
        "kind": "operation",
        "state_version": 5,
        "at": format_time(NOON),
        "operation": {**operation_json(OPERATION), "errors": []},
    }
    only_operations = ChangeFilters(kinds=frozenset({ChangeKind.OPERATION}))
    again = changes.read("acme", cursor, only_operations, NOON)
    assert again is not None
    assert again.changes == page.changes
    of_a_job = changes.read("acme", cursor, ChangeFilters(job_id=JOB), NOON)
    assert of_a_job is not None
    assert list(of_a_job.changes) == []
