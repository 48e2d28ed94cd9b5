"""Operations in SQLite: a row for the progress of each, and rows with a thousand items."""

from collections.abc import Sequence

import msgspec

from punctual.domain.operations.operation import Operation, OperationItem
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.operations import OperationKey, OperationRequest
from punctual.node.sqlite.lists.change_feed import SqliteChangeFeed
from punctual.node.sqlite.rows import Codec, to_micros
from punctual.node.sqlite.transaction import Transaction

OPERATION_ITEMS_PER_ROW = 1_000

_OPERATION_CODEC = Codec(Operation)
_REQUEST_CODEC = Codec(OperationRequest)
_encode_items = msgspec.msgpack.Encoder().encode
_decode_items = msgspec.msgpack.Decoder(list[OperationItem]).decode
_WHERE_KEY = "WHERE tenant = ? AND operation_id = ?"


class SqliteOperations:
    """Each change is written at once within the transaction."""

    def __init__(self, transaction: Transaction, clock: Clock, changes: SqliteChangeFeed) -> None:
        self._transaction = transaction
        self._clock = clock
        self._changes = changes

    def create(
        self, operation: Operation, request: OperationRequest, items: Sequence[OperationItem]
    ) -> bool:
        key = (operation.tenant, operation.operation_id)
        with self._transaction:
            if self.load(OperationKey(*key)) is not None:
                return False
            self._transaction.begin()
            self._transaction.db.execute(
                "INSERT INTO operations (tenant, operation_id, running, expires, operation, "
                "request) VALUES (?, ?, ?, ?, ?, ?)",
                (
                    *key,
                    operation.is_running,
                    to_micros(operation.expires_at),
                    _OPERATION_CODEC.encode(operation),
                    _REQUEST_CODEC.encode(request),
                ),
            )
            self._transaction.db.executemany(
                "INSERT INTO operation_items (tenant, operation_id, number, items) "
                "VALUES (?, ?, ?, ?)",
                [
                    (*key, number, _encode_items(items[start : start + OPERATION_ITEMS_PER_ROW]))
                    for number, start in enumerate(range(0, len(items), OPERATION_ITEMS_PER_ROW))
                ],
            )
            self._changes.add_operation(operation)
            return True

    def load(self, key: OperationKey) -> Operation | None:
        with self._transaction:
            row = self._transaction.db.execute(
                f"SELECT operation FROM operations {_WHERE_KEY} AND expires > ?",
                (*key, to_micros(self._clock())),
            ).fetchone()
        return None if row is None else _OPERATION_CODEC.decode(row[0])

    def load_request(self, key: OperationKey) -> OperationRequest:
        with self._transaction:
            (encoded,) = self._transaction.db.execute(
                f"SELECT request FROM operations {_WHERE_KEY}", key
            ).fetchone()
        return _REQUEST_CODEC.decode(encoded)

    def items(self, key: OperationKey, start: int, limit: int) -> Sequence[OperationItem]:
        first_row, last_row = (
            start // OPERATION_ITEMS_PER_ROW,
            (start + limit - 1) // OPERATION_ITEMS_PER_ROW,
        )
        with self._transaction:
            rows = self._transaction.db.execute(
                f"SELECT items FROM operation_items {_WHERE_KEY} AND number BETWEEN ? AND ? "
                "ORDER BY number",
                (*key, first_row, last_row),
            ).fetchall()
        items = [item for (encoded,) in rows for item in _decode_items(encoded)]
        offset = start - first_row * OPERATION_ITEMS_PER_ROW
        return items[offset : offset + limit]

    def swap(self, operation: Operation) -> bool:
        key = OperationKey(operation.tenant, operation.operation_id)
        with self._transaction:
            stored = self.load(key)
            if stored is None or stored.revision != operation.revision - 1:
                return False
            self._transaction.begin()
            self._transaction.db.execute(
                f"UPDATE operations SET running = ?, operation = ? {_WHERE_KEY}",
                (operation.is_running, _OPERATION_CODEC.encode(operation), *key),
            )
            self._changes.add_operation(operation)
            return True

    def page(self, tenant: str, before: str | None, limit: int) -> Sequence[Operation]:
        bound = "" if before is None else " AND operation_id < ?"
        values = () if before is None else (before,)
        with self._transaction:
            rows = self._transaction.db.execute(
                f"SELECT operation FROM operations WHERE tenant = ?{bound} AND expires > ? "
                "ORDER BY operation_id DESC LIMIT ?",
                (tenant, *values, to_micros(self._clock()), limit),
            ).fetchall()
        return [_OPERATION_CODEC.decode(encoded) for (encoded,) in rows]

    def count_running(self, tenant: str) -> int:
        with self._transaction:
            (count,) = self._transaction.db.execute(
                "SELECT count(*) FROM operations WHERE tenant = ? AND running = 1 AND expires > ?",
                (tenant, to_micros(self._clock())),
            ).fetchone()
        return int(count)

    def running(self, limit: int) -> Sequence[OperationKey]:
        with self._transaction:
            rows = self._transaction.db.execute(
                "SELECT tenant, operation_id FROM operations WHERE running = 1 AND expires > ? "
                "ORDER BY operation_id LIMIT ?",
                (to_micros(self._clock()), limit),
            ).fetchall()
        return [OperationKey(*row) for row in rows]
