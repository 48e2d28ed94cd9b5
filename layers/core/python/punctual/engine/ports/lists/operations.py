"""The port for operations: their progress, and the items that they act on."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from punctual.domain.operations.operation import Operation, OperationItem


class OperationKey(NamedTuple):
    tenant: str
    operation_id: str


class StalledOperation(NamedTuple):
    """A running operation that has not changed for a while."""

    key: OperationKey
    revision: int


class OperationRequest(NamedTuple):
    """The rest of a request: the audit's actor as JSON, and the payload of each run."""

    actor: bytes = b""
    payload: Any = None
    has_payload: bool = False


class Operations(Protocol):
    """Rows of operations. Reads are strongly consistent. Expired rows are never returned."""

    def create(
        self, operation: Operation, request: OperationRequest, items: Sequence[OperationItem]
    ) -> bool:
        """Write a new operation. Its items and its request never change.

        Return False, and change nothing, if the operation exists already.
        """

    def load(self, key: OperationKey) -> Operation | None: ...

    def load_request(self, key: OperationKey) -> OperationRequest: ...

    def items(self, key: OperationKey, start: int, limit: int) -> Sequence[OperationItem]:
        """Return up to `limit` items from number `start` on, in order."""

    def swap(self, operation: Operation) -> bool:
        """Write the operation if its stored revision is one lower. Return whether it was."""

    def page(self, tenant: str, before: str | None, limit: int) -> Sequence[Operation]:
        """Return operations of a tenant with lower ids than `before`, newest first."""

    def count_running(self, tenant: str) -> int: ...

    def running(self, limit: int) -> Sequence[OperationKey]:
        """Return up to `limit` operations that are RUNNING, of all tenants, the oldest first."""
