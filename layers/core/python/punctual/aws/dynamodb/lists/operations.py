"""Operations in DynamoDB. The row of an operation decides, and changes by compare and swap."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange
from punctual.aws.dynamodb.lists import operation_rows
from punctual.aws.dynamodb.lists.operation_rows import ITEM_SET_ATTR, OPERATION_ITEMS_PER_ROW
from punctual.aws.retries import ConditionFailed
from punctual.domain.errors import Unavailable, Unreadable
from punctual.domain.operations.operation import Operation, OperationItem
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.operations import (
    OperationKey,
    OperationRequest,
    StalledOperation,
)

MAX_RUNNING_ROWS_READ = 10_000  # of all tenants; a row takes about 150 bytes
MAX_COUNTED_RUNNING = 1_000  # operations of a tenant; commands allow 20
RUNNING_PAGE_SIZE = 1_000
# A running row without an operation: its request crashed, or is still under way.
MAX_CREATION_TIME = timedelta(minutes=15)
MAX_KNOWN_ITEM_SETS = 100  # names of item sets that one process remembers


class DynamoOperations:
    def __init__(
        self, dynamo: DynamoClient, table: str, clock: Clock, new_write_id: Callable[[], str]
    ) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock
        self._new_write_id = new_write_id
        self._item_sets: dict[OperationKey, str] = {}

    def create(
        self, operation: Operation, request: OperationRequest, items: Sequence[OperationItem]
    ) -> bool:
        """Write the operation last, so that it never stands without its items.

        The running row comes first. So each operation that runs is found, whatever crashes.
        """
        now, item_set = self._clock(), self._new_write_id()
        if operation.is_running:
            self._dynamo.put(self._table, [operation_rows.to_running_row(operation, item_set, now)])
        content = operation_rows.to_content_rows(operation, item_set, request, items)
        self._dynamo.put(self._table, list(content))
        row = operation_rows.to_row(operation, item_set, item_set, now)
        failure = self._dynamo.put_if(self._table, row, operation_rows.create_condition())
        return failure is None or failure.item.get(ITEM_SET_ATTR) == row[ITEM_SET_ATTR]

    def load(self, key: OperationKey) -> Operation | None:
        row = self._read_row(key)
        return None if row is None else operation_rows.from_row(row)

    def load_request(self, key: OperationKey) -> OperationRequest:
        row_key = operation_rows.request_key(key, self._item_set(key))
        return operation_rows.parse_request(self._read_content(row_key))

    def items(self, key: OperationKey, start: int, limit: int) -> Sequence[OperationItem]:
        item_set = self._item_set(key)
        first = start // OPERATION_ITEMS_PER_ROW
        last = (start + limit - 1) // OPERATION_ITEMS_PER_ROW
        row_keys = [
            operation_rows.items_key(key, item_set, number) for number in range(first, last + 1)
        ]
        rows = self._dynamo.read(self._table, row_keys)
        stored_keys = takewhile(rows.__contains__, row_keys)
        found = [
            item for row_key in stored_keys for item in operation_rows.parse_items(rows[row_key])
        ]
        offset = start - first * OPERATION_ITEMS_PER_ROW
        return found[offset : offset + limit]

    def swap(self, operation: Operation) -> bool:
        key = OperationKey(operation.tenant, operation.operation_id)
        write_id = self._new_write_id()
        answer = self._dynamo.update_if(
            self._table,
            operation_rows.operation_key(key),
            operation_rows.swap_condition(operation, write_id, self._clock()),
        )
        if isinstance(answer, ConditionFailed) and not operation_rows.has_write_id(
            answer.item, write_id
        ):
            return False
        if not operation.is_running:
            self._forget_running(key)
        return True

    def page(self, tenant: str, before: str | None, limit: int) -> Sequence[Operation]:
        """Return a page. All are kept for the same time, so the first expired one is the last."""
        key_range = KeyRange(
            operation_rows.operations_partition(tenant),
            high=before,
            excludes_high=True,
            newest_first=True,
        )
        now = self._clock()
        operations: list[Operation] = []
        for row in islice(self._dynamo.query(self._table, key_range, limit), limit):
            if operation_rows.is_expired(row, now):
                break
            operations.append(operation_rows.from_row(row))
        return operations

    def count_running(self, tenant: str) -> int:
        low, high = operation_rows.running_bounds(tenant)
        return len(self._read_running(MAX_COUNTED_RUNNING, low, high))

    def running(self, limit: int) -> Sequence[OperationKey]:
        rows = self._read_running(MAX_RUNNING_ROWS_READ)
        found = [operation_rows.parse_running_key(row) for row in rows]
        return sorted(found, key=lambda key: key.operation_id)[:limit]

    def stalled(self, before: datetime, limit: int) -> Sequence[StalledOperation]:
        """Return running operations that were last written before `before`, oldest write first.

        Running rows that a crash has left behind are deleted.
        """
        now = self._clock()
        found: list[tuple[datetime, StalledOperation]] = []
        rows = self._read_running(MAX_RUNNING_ROWS_READ)
        running_by_key = {operation_rows.parse_running_key(row): row for row in rows}
        row_keys = [operation_rows.operation_key(key) for key in running_by_key]
        rows_by_key = self._dynamo.read(self._table, row_keys) if row_keys else {}
        for key, running_row in running_by_key.items():
            row = rows_by_key.get(operation_rows.operation_key(key))
            if row is None or operation_rows.is_expired(row, now):
                if operation_rows.moved_at(running_row) < now - MAX_CREATION_TIME:
                    self._delete_running(key, running_row)
                continue
            operation = operation_rows.from_row(row)
            if not operation.is_running:
                self._delete_running(key, running_row)
            elif operation_rows.moved_at(row) < before:
                stalled = StalledOperation(key, operation.revision)
                found.append((operation_rows.moved_at(row), stalled))
        return [stalled for _, stalled in sorted(found)[:limit]]

    def _read_running(
        self, limit: int, low: str | None = None, high: str | None = None
    ) -> list[Mapping[str, Any]]:
        key_range = KeyRange(operation_rows.RUNNING_OPERATIONS_PARTITION, low, high)
        rows = islice(self._dynamo.query(self._table, key_range, RUNNING_PAGE_SIZE), limit)
        now = self._clock()
        return [row for row in rows if not operation_rows.is_expired(row, now)]

    def _read_row(self, key: OperationKey) -> Mapping[str, Any] | None:
        row_key = operation_rows.operation_key(key)
        row = self._dynamo.read(self._table, [row_key]).get(row_key)
        if row is None or operation_rows.is_expired(row, self._clock()):
            return None
        if len(self._item_sets) >= MAX_KNOWN_ITEM_SETS:
            self._item_sets.clear()
        self._item_sets[key] = row[ITEM_SET_ATTR]["S"]
        return row

    def _item_set(self, key: OperationKey) -> str:
        """Return the name of the item set, which never changes."""
        if key not in self._item_sets and self._read_row(key) is None:
            raise _missing_content()
        return self._item_sets[key]

    def _read_content(self, row_key: keys.RowKey) -> Mapping[str, Any]:
        row = self._dynamo.read(self._table, [row_key]).get(row_key)
        if row is None:
            raise _missing_content()
        return row

    def _forget_running(self, key: OperationKey) -> None:
        """Delete the running row. If the store fails, the planner deletes it later."""
        try:
            self._dynamo.delete(self._table, [operation_rows.running_key(key)])
        except Unavailable:
            return

    def _delete_running(self, key: OperationKey, row: Mapping[str, Any]) -> None:
        """Delete the running row, unless a repeated request has written it again."""
        item_set = row[ITEM_SET_ATTR]["S"]
        condition = Condition(
            "#items = :items",
            names={"#items": ITEM_SET_ATTR},
            values={":items": to_attribute(item_set)},
        )
        self._dynamo.delete_if(self._table, operation_rows.running_key(key), condition)


def _missing_content() -> Unreadable:
    return Unreadable("The rows of the operation are missing.")
