"""Operations over dicts, for the contract suite and simulations."""

from collections.abc import Sequence
from typing import NamedTuple

from punctual.domain.operations.operation import Operation, OperationItem
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.operations import OperationKey, OperationRequest


class _Stored(NamedTuple):
    operation: Operation
    request: OperationRequest
    items: tuple[OperationItem, ...]


class MemoryOperations:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rows: dict[OperationKey, _Stored] = {}

    def create(
        self, operation: Operation, request: OperationRequest, items: Sequence[OperationItem]
    ) -> bool:
        key = OperationKey(operation.tenant, operation.operation_id)
        if self.load(key) is not None:
            return False
        self._rows[key] = _Stored(operation, request, tuple(items))
        return True

    def load(self, key: OperationKey) -> Operation | None:
        stored = self._rows.get(key)
        if stored is None or stored.operation.expires_at <= self._clock():
            return None
        return stored.operation

    def load_request(self, key: OperationKey) -> OperationRequest:
        return self._rows[key].request

    def items(self, key: OperationKey, start: int, limit: int) -> Sequence[OperationItem]:
        return self._rows[key].items[start : start + limit]

    def swap(self, operation: Operation) -> bool:
        key = OperationKey(operation.tenant, operation.operation_id)
        stored = self.load(key)
        if stored is None or stored.revision != operation.revision - 1:
            return False
        self._rows[key] = self._rows[key]._replace(operation=operation)
        return True

    def page(self, tenant: str, before: str | None, limit: int) -> Sequence[Operation]:
        newest_first = sorted(
            (operation for operation in self._alive() if operation.tenant == tenant),
            key=lambda operation: operation.operation_id,
            reverse=True,
        )
        return [o for o in newest_first if before is None or o.operation_id < before][:limit]

    def count_running(self, tenant: str) -> int:
        return sum(o.is_running and o.tenant == tenant for o in self._alive())

    def running(self, limit: int) -> Sequence[OperationKey]:
        found = [OperationKey(o.tenant, o.operation_id) for o in self._alive() if o.is_running]
        return sorted(found, key=lambda key: key.operation_id)[:limit]

    def _alive(self) -> list[Operation]:
        return [operation for key in self._rows if (operation := self.load(key)) is not None]
