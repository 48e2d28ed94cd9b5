"""Carries out operations in slices. Each slice is recorded before the next one begins.

A slice may be repeated after a crash. Each item then gets the same change, which acts once.
"""

from datetime import datetime
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.operations import ItemResults, Operation, with_results
from punctual.engine.operations.actions import OperationActions
from punctual.engine.ports.lists.operations import OperationKey, Operations

MAX_RECORD_TRIES = 8  # only a cancel, or another runner, writes at the same time


class SliceResult(NamedTuple):
    """The operation after a slice. The next slice may begin after `wait_seconds`."""

    operation: Operation | None
    wait_seconds: float = 0.0

    @property
    def has_more(self) -> bool:
        return self.operation is not None and self.operation.is_running


class OperationRunner:
    def __init__(self, operations: Operations, actions: OperationActions) -> None:
        self._operations = operations
        self._actions = actions

    def run_slice(self, key: OperationKey, limit: int, now: datetime) -> SliceResult:
        """Act on up to `limit` items of an operation, and record what became of them."""
        operation = self._operations.load(key)
        if operation is None or not operation.is_running:
            return SliceResult(operation)
        items = self._operations.items(key, operation.next_item, limit)
        request = self._operations.load_request(key)
        results, wait_seconds = self._actions.act(operation, request, items)
        if not results.item_count and items:
            return SliceResult(operation, wait_seconds)
        return SliceResult(self._record(key, operation, results, now), wait_seconds)

    def give_up_item(self, key: OperationKey, now: datetime) -> SliceResult:
        """Record the next item as failed, after several tries to act on it."""
        operation = self._operations.load(key)
        if operation is None or not operation.is_running:
            return SliceResult(operation)
        items = self._operations.items(key, operation.next_item, 1)
        if not items:
            return SliceResult(operation)
        results = self._actions.give_up_item(items[0])
        return SliceResult(self._record(key, operation, results, now))

    def _record(
        self, key: OperationKey, operation: Operation, results: ItemResults, now: datetime
    ) -> Operation | None:
        """Record the results, unless another runner has recorded these items."""
        current: Operation | None = operation
        for _ in range(MAX_RECORD_TRIES):
            if current is None or current.next_item != operation.next_item:
                return current
            changed = with_results(current, results, now)
            if self._operations.swap(changed):
                return changed
            current = self._operations.load(key)
        raise Unavailable("The operation changes too often: its progress was not recorded.")
