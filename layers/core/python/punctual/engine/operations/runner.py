"""Carries out operations in slices. Each slice is recorded before the next one begins.

A slice may be repeated after a crash. Each item then gets the same change, which acts once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.errors import Unavailable, Unreadable
from punctual.domain.operations.operation import (
    MAX_SLICE_ITEMS,
    ItemResults,
    Operation,
    OperationAction,
    OperationError,
    OperationItem,
    with_results,
)
from punctual.engine.operations.actions import OperationActions
from punctual.engine.operations.slice_tries import NextSlice, next_slice
from punctual.engine.ports.lists.operations import OperationKey, Operations

MAX_RECORD_TRIES = 8  # only a cancel, or another runner, writes at the same time
_REMEMBERED_ACTIONS = frozenset({OperationAction.PAUSE, OperationAction.RESUME})
_FAILED_TEXT = "The store could not act on it in several tries."
_TOO_OLD_TEXT = (
    "The operation stood still for hours here. It may have acted on the job: look at it."
)


class SliceResult(NamedTuple):
    """The operation after a slice. The next slice may begin after `wait_seconds`."""

    operation: Operation | None
    wait_seconds: float = 0.0
    item_count: int = 0
    was_lost: bool = False  # another runner has recorded these items

    @property
    def has_more(self) -> bool:
        return self.operation is not None and self.operation.is_running


class OperationRunner:
    """Runs slices. Where a slice may be repeated, it has an age at which its items are given up.

    The jobs forget later that an operation paused or resumed them.
    """

    def __init__(
        self,
        operations: Operations,
        actions: OperationActions,
        max_slice_age: timedelta | None = None,
    ) -> None:
        self._operations = operations
        self._actions = actions
        self._max_slice_age = max_slice_age

    def run_next(
        self, key: OperationKey, limit: int, failed_tries: int, now: datetime
    ) -> SliceResult:
        """Act on the next items, at most `limit`. After failures act on one item, or give it up."""
        match next_slice(failed_tries):
            case NextSlice.GIVE_UP:
                return self._give_up_item(key, now)
            case NextSlice.ONE_ITEM:
                return self.run_slice(key, 1, now)
            case NextSlice.FULL:
                return self.run_slice(key, limit, now)

    def run_slice(self, key: OperationKey, limit: int, now: datetime) -> SliceResult:
        """Act on up to `limit` items of an operation, and record what became of them."""
        operation = self._operations.load(key)
        if operation is None or not operation.is_running:
            return SliceResult(operation)
        if self._is_too_old(operation, now):
            items = self._next_items(key, operation, MAX_SLICE_ITEMS)
            return self._record(key, operation, _failed(items, _TOO_OLD_TEXT), now)
        items = self._next_items(key, operation, min(limit, MAX_SLICE_ITEMS))
        request = self._operations.load_request(key)
        results, wait_seconds = self._actions.act(operation, request, items)
        if not results.item_count:
            return SliceResult(operation, wait_seconds)
        return self._record(key, operation, results, now)._replace(wait_seconds=wait_seconds)

    def record_wait(self, key: OperationKey, operation: Operation, now: datetime) -> SliceResult:
        """Raise the revision of an operation that waits, so it does not look stalled."""
        return self._record(key, operation, ItemResults(0), now)

    def _give_up_item(self, key: OperationKey, now: datetime) -> SliceResult:
        """Record the next item as failed, after several tries to act on it."""
        operation = self._operations.load(key)
        if operation is None or not operation.is_running:
            return SliceResult(operation)
        try:
            items = self._next_items(key, operation, 1)
        except Unreadable:  # the rows of the items are damaged
            items = [OperationItem("")]
        return self._record(key, operation, _failed(items, _FAILED_TEXT), now)

    def _next_items(
        self, key: OperationKey, operation: Operation, limit: int
    ) -> Sequence[OperationItem]:
        """Return the next items, at least one."""
        items = self._operations.items(key, operation.next_item, limit)
        if not items:
            raise Unreadable("The items of the operation are missing.")
        return items

    def _is_too_old(self, operation: Operation, now: datetime) -> bool:
        """Return whether an earlier try of this slice may be forgotten by its jobs."""
        if self._max_slice_age is None or operation.action not in _REMEMBERED_ACTIONS:
            return False
        moved_at = operation.moved_at or operation.created_at
        return now - moved_at > self._max_slice_age

    def _record(
        self, key: OperationKey, operation: Operation, results: ItemResults, now: datetime
    ) -> SliceResult:
        """Record the results, unless another runner has recorded these items."""
        current: Operation | None = operation
        for _ in range(MAX_RECORD_TRIES):
            if current is None or current.next_item != operation.next_item:
                return SliceResult(current, was_lost=True)
            changed = with_results(current, results, now)
            if self._operations.swap(changed):
                return SliceResult(changed, item_count=results.item_count)
            current = self._operations.load(key)
        raise Unavailable("The operation changes too often: its progress was not recorded.")


def _failed(items: Sequence[OperationItem], text: str) -> ItemResults:
    return ItemResults(
        0,
        tuple(OperationError(item.job_id, Unavailable.code, text, item.run_id) for item in items),
    )
