"""The tables in memory, for a client of DynamoDB. They count units by partition key and second.

Calls take virtual time. A transaction fails if it meets another one on a row.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from bench.cost.sizes import READ_BYTES, WRITE_BYTES, item_bytes
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import key_of
from punctual.aws.retries import CONDITION_FAILED_CODE
from tests.support.load.expressions import Row, passes, updated
from tests.support.load.timeline import Timeline

PAGE_BYTES = 1 << 20  # of a query
TRANSACTION_FACTOR = 2  # of the units of a write
CALL_SECONDS = 0.005  # from the request to the answer
TRANSACTION_SECONDS = 0.015


class PartitionKey(NamedTuple):
    table: str
    pk: str


class Write(NamedTuple):
    """One changed row of a table with a stream."""

    seconds: float
    key: keys.RowKey
    before: Row | None
    after: Row | None


class _Partition:
    def __init__(self) -> None:
        self.rows: dict[str, tuple[Row, int]] = {}  # with their bytes, by sort key
        self.order: list[str] = []

    def put(self, sk: str, row: Row, size: int) -> None:
        if sk not in self.rows:
            insort(self.order, sk)
        self.rows[sk] = row, size

    def remove(self, sk: str) -> None:
        if self.rows.pop(sk, None) is not None:
            del self.order[bisect_left(self.order, sk)]


class Tables:
    """Answers the calls of one process after another. `on_write` learns of each changed row."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._partitions: defaultdict[PartitionKey, _Partition] = defaultdict(_Partition)
        self._locked_until: dict[tuple[PartitionKey, str], float] = {}
        self.is_metered = False
        self.writes: defaultdict[tuple[PartitionKey, int], float] = defaultdict(float)
        self.reads: defaultdict[tuple[PartitionKey, int], float] = defaultdict(float)
        self.conflicts = 0
        self.on_write: Callable[[str, Write], None] = lambda _table, _write: None
        # By the function that calls, and its operation.
        self.fails: Callable[[str, str], Exception | None] = lambda _role, _operation: None

    def rows(self, table: str) -> Iterator[Row]:
        for place, partition in self._partitions.items():
            if place.table == table:
                yield from (row for row, _ in partition.rows.values())

    def client(self, processor_seconds: float = 0.0, role: str = "") -> "TableClient":
        """Return a client of a process. Each call takes so much of its processor."""
        return TableClient(self, processor_seconds, role)

    def spend(self, processor: float, waiting: float) -> None:
        self._timeline.spend(processor, waiting)

    # Rows

    def find(self, table: str, pk: str, sk: str) -> tuple[Row | None, int]:
        row, size = self._partitions[PartitionKey(table, pk)].rows.get(sk, (None, 0))
        return row, size

    def put(self, table: str, key: keys.RowKey, after: Row | None, factor: int = 1) -> None:
        place = PartitionKey(table, key.pk)
        partition = self._partitions[place]
        before, size_before = partition.rows.get(key.sk, (None, 0))
        size_after = 0 if after is None else item_bytes(after)
        self.count_write(place, max(size_before, size_after), factor)
        if after is None:
            partition.remove(key.sk)
        else:
            partition.put(key.sk, after, size_after)
        if before != after:
            self.on_write(table, Write(self._timeline.seconds, key, before, after))

    def count_write(self, place: PartitionKey, size: int, factor: int = 1) -> None:
        if self.is_metered:
            units = factor * max(1, -(-size // WRITE_BYTES))
            self.writes[place, int(self._timeline.seconds)] += units

    def count_read(self, place: PartitionKey, size: int, consistent: bool) -> None:
        if self.is_metered:
            units = max(1, -(-size // READ_BYTES)) * (1 if consistent else 0.5)
            self.reads[place, int(self._timeline.seconds)] += units

    def range(self, place: PartitionKey, low: str, high: str | None, open_high: bool) -> list[str]:
        order = self._partitions[place].order
        first = bisect_left(order, low)
        if high is None:
            return order[first:]
        return order[first : (bisect_left if open_high else bisect_right)(order, high)]

    def lock(self, places: Sequence[tuple[PartitionKey, str]]) -> bool:
        """Hold rows for a transaction that ends later. Return whether they were free."""
        if not self._timeline.is_in_process:
            return True
        now = self._timeline.seconds
        if any(self._locked_until.get(place, 0.0) > now for place in places):
            self.conflicts += 1
            return False
        self._locked_until.update(dict.fromkeys(places, now + TRANSACTION_SECONDS))
        return True


class TableClient:
    """The calls of boto3 that the adapters make."""

    def __init__(self, tables: Tables, processor_seconds: float, role: str) -> None:
        self._tables = tables
        self._processor = processor_seconds
        self._role = role

    def _call(self, operation: str, waiting: float = CALL_SECONDS) -> None:
        failure = self._tables.fails(self._role, operation)
        self._tables.spend(self._processor, waiting)
        if failure is not None:
            raise failure

    def put_item(self, **asked: Any) -> Any:
        self._call("put_item")
        key = key_of(asked["Item"])
        self._check(asked["TableName"], key, asked, "PutItem")
        self._tables.put(asked["TableName"], key, dict(asked["Item"]))
        return {}

    def update_item(self, **asked: Any) -> Any:
        self._call("update_item")
        key = key_of(asked["Key"])
        self._check(asked["TableName"], key, asked, "UpdateItem")
        after = self._updated(asked, key)
        self._tables.put(asked["TableName"], key, after)
        return {"Attributes": after} if asked.get("ReturnValues") == "ALL_NEW" else {}

    def delete_item(self, **asked: Any) -> Any:
        self._call("delete_item")
        key = key_of(asked["Key"])
        self._check(asked["TableName"], key, asked, "DeleteItem")
        self._tables.put(asked["TableName"], key, None)
        return {}

    def transact_write_items(self, TransactItems: Sequence[Mapping[str, Any]]) -> Any:
        actions = [(kind, asked) for item in TransactItems for kind, asked in item.items()]
        row_keys = [
            key_of(asked["Item"] if "Item" in asked else asked["Key"]) for _, asked in actions
        ]
        places = [
            (PartitionKey(asked["TableName"], key.pk), key.sk)
            for (_, asked), key in zip(actions, row_keys, strict=True)
        ]
        failure = self._tables.fails(self._role, "transact_write_items")
        is_free = self._tables.lock(places)
        self._tables.spend(self._processor, TRANSACTION_SECONDS)
        if failure is not None:
            raise failure
        meets = [
            self._meets(asked["TableName"], key, asked)
            for (_, asked), key in zip(actions, row_keys, strict=True)
        ]
        if not is_free or not all(meets):
            for place, sk in places:
                _, size = self._tables.find(*place, sk)
                self._tables.count_write(place, size, TRANSACTION_FACTOR)
            raise _cancelled(is_free, meets)
        for (kind, asked), key in zip(actions, row_keys, strict=True):
            after = dict(asked["Item"]) if kind == "Put" else self._updated(asked, key)
            self._tables.put(asked["TableName"], key, after, TRANSACTION_FACTOR)
        return {}

    def batch_write_item(self, RequestItems: Mapping[str, Sequence[Any]]) -> Any:
        self._call("batch_write_item")
        ((table, requests),) = RequestItems.items()
        for request in requests:
            if "PutRequest" in request:
                item = request["PutRequest"]["Item"]
                self._tables.put(table, key_of(item), dict(item))
            else:
                self._tables.put(table, key_of(request["DeleteRequest"]["Key"]), None)
        return {"UnprocessedItems": {}}

    def batch_get_item(self, RequestItems: Mapping[str, Any]) -> Any:
        self._call("batch_get_item")
        ((table, asked),) = RequestItems.items()
        found = []
        for key in map(key_of, asked["Keys"]):
            row, size = self._tables.find(table, *key)
            self._tables.count_read(PartitionKey(table, key.pk), size, asked["ConsistentRead"])
            found += [] if row is None else [row]
        return {"Responses": {table: found}, "UnprocessedKeys": {}}

    def query(self, **asked: Any) -> Any:
        self._call("query")
        assert "FilterExpression" not in asked, "no function filters a range on this path"
        values = {name: value["S"] for name, value in asked["ExpressionAttributeValues"].items()}
        place = PartitionKey(asked["TableName"], values[":pk"])
        is_open = " < :high" in asked["KeyConditionExpression"]
        order = self._tables.range(place, values.get(":low", ""), values.get(":high"), is_open)
        if not asked["ScanIndexForward"]:
            order = order[::-1]
        if "ExclusiveStartKey" in asked:
            after = key_of(asked["ExclusiveStartKey"]).sk
            order = order[order.index(after) + 1 :]
        items: list[Row] = []
        size = 0
        for sk in order[: asked.get("Limit")]:
            row, row_size = self._tables.find(*place, sk)
            assert row is not None
            items.append(row)
            size += row_size
            if size >= PAGE_BYTES:
                break
        self._tables.count_read(place, size, asked["ConsistentRead"])
        more = len(order) > len(items)
        return {"Items": items, **({"LastEvaluatedKey": key_of(items[-1]).item()} if more else {})}

    def _meets(self, table: str, key: keys.RowKey, asked: Mapping[str, Any]) -> bool:
        if "ConditionExpression" not in asked:
            return True
        row, _ = self._tables.find(table, *key)
        names = asked.get("ExpressionAttributeNames", {})
        values = asked.get("ExpressionAttributeValues", {})
        return passes(row or {}, asked["ConditionExpression"], names, values)

    def _check(
        self, table: str, key: keys.RowKey, asked: Mapping[str, Any], operation: str
    ) -> None:
        """Raise the error of a failed condition. It costs the units of the present row."""
        if self._meets(table, key, asked):
            return
        row, size = self._tables.find(table, *key)
        self._tables.count_write(PartitionKey(table, key.pk), size)
        response: Any = {"Error": {"Code": CONDITION_FAILED_CODE}, "Item": row or {}}
        raise ClientError(response, operation)

    def _updated(self, asked: Mapping[str, Any], key: keys.RowKey) -> Row:
        row, _ = self._tables.find(asked["TableName"], *key)
        names = asked.get("ExpressionAttributeNames", {})
        values = asked.get("ExpressionAttributeValues", {})
        return updated(row or key.item(), asked["UpdateExpression"], names, values)


def _cancelled(is_free: bool, meets: Sequence[bool]) -> ClientError:
    failed = "ConditionalCheckFailed" if is_free else "TransactionConflict"
    reasons = [{"Code": "None" if met and is_free else failed} for met in meets]
    response: Any = {
        "Error": {"Code": "TransactionCanceledException"},
        "CancellationReasons": reasons,
    }
    return ClientError(response, "TransactWriteItems")
