"""Reads operations."""

from collections.abc import Sequence

from punctual.domain.errors import NotFound
from punctual.domain.operations.operation import Operation
from punctual.engine.ports.lists.operations import OperationKey, Operations


class OperationQueries:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def load(self, tenant: str, operation_id: str) -> Operation:
        operation = self._operations.load(OperationKey(tenant, operation_id))
        if operation is None:
            raise no_operation()
        return operation

    def page(
        self, tenant: str, limit: int, after: tuple[str, ...] | None
    ) -> tuple[Sequence[Operation], tuple[str, ...] | None]:
        """Return operations, newest first, and the cursor of the next page."""
        operations = self._operations.page(tenant, after[0] if after else None, limit + 1)
        shown = operations[:limit]
        return shown, (shown[-1].operation_id,) if len(operations) > limit else None


def no_operation() -> NotFound:
    return NotFound("There is no such operation. Operations are kept for 7 days.")
