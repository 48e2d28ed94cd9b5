"""A client for DynamoDB: batches, range queries and conditional writes of single rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.keys import FORMAT, LAYOUT, PK, SK, RowKey
from punctual.aws.retries import (
    Client,
    ConditionFailed,
    RetryPolicy,
    UnknownOutcome,
    answer,
    conditional,
    lost,
    once,
)
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import LaterVersion, Unavailable

T = TypeVar("T")

MOST_WRITTEN = 25  # rows in one BatchWriteItem
MOST_READ = 100  # keys in one BatchGetItem


class Condition(NamedTuple):
    """A condition expression with its names and values.

    `change` is the update expression. It is empty for a put of a whole row.
    """

    holds: str
    change: str = ""
    names: Mapping[str, str] = {}
    values: Mapping[str, Any] = {}

    def arguments(self) -> dict[str, Any]:
        """Return the request parameters. Empty maps are left out because DynamoDB rejects them."""
        found: dict[str, Any] = {"ConditionExpression": self.holds}
        if self.change:
            found["UpdateExpression"] = self.change
        if self.names:
            found["ExpressionAttributeNames"] = self.names
        if self.values:
            found["ExpressionAttributeValues"] = self.values
        return found


class Range(NamedTuple):
    """The sort keys from `low` to `high`, both included. With `below`, `high` is excluded."""

    pk: str
    low: str | None = None
    high: str | None = None
    below: bool = False
    newest_first: bool = False

    def arguments(self) -> dict[str, Any]:
        holds = "#pk = :pk"
        names, values = {"#pk": PK}, {":pk": {"S": self.pk}}
        if self.low is not None or self.high is not None:
            names["#sk"] = SK
        if self.low is not None:
            values[":low"] = {"S": self.low}
        if self.high is not None:
            values[":high"] = {"S": self.high}
        if self.low is not None and self.high is not None:
            holds += " AND #sk BETWEEN :low AND :high"
        elif self.high is not None:
            holds += f" AND #sk {'<' if self.below else '<='} :high"
        elif self.low is not None:
            holds += " AND #sk >= :low"
        return {
            "KeyConditionExpression": holds,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not self.newest_first,
        }


class DynamoClient:
    def __init__(self, client: Client, crew: ThreadPool, patience: RetryPolicy) -> None:
        self._client = client
        self._patience = patience
        self.crew = crew

    def put(self, table: str, items: Sequence[Item]) -> None:
        rows = {key_of(item): {"PutRequest": {"Item": item}} for item in items}
        self._write(table, list(rows.values()))

    def delete(self, table: str, keys: Sequence[RowKey]) -> None:
        distinct = dict.fromkeys(keys)
        self._write(table, [{"DeleteRequest": {"Key": key.item()}} for key in distinct])

    def read(self, table: str, keys: Sequence[RowKey]) -> dict[RowKey, Item]:
        """Return the rows that exist, by strongly consistent reads in parallel batches."""
        chunks = list(chunked(list(dict.fromkeys(keys)), MOST_READ))
        found: dict[RowKey, Item] = {}
        for rows in self.crew.map(lambda chunk: self._read_chunk(table, chunk), chunks):
            found.update((key_of(row), row) for row in rows)
        return found

    def query(
        self, table: str, where: Range, page: int, filtered: Mapping[str, Any] | None = None
    ) -> Iterator[Item]:
        """Yield the rows of a range, read consistently. A page is read when it is needed."""
        return (row for rows, _ in self.pages(table, where, page, filtered) for row in rows)

    def pages(
        self, table: str, where: Range, page: int, filtered: Mapping[str, Any] | None = None
    ) -> Iterator[tuple[Sequence[Item], bool]]:
        """Yield pages as (rows, has_more). A filter may empty a page but never drops one."""
        arguments = {**where.arguments(), "TableName": table, "ConsistentRead": True}
        for name, value in (filtered or {}).items():
            arguments[name] = {**arguments[name], **value} if name in arguments else value
        arguments["Limit"] = page
        while True:
            response = self._answer(f"reading {table}", "query", arguments)
            more = "LastEvaluatedKey" in response
            yield response["Items"], more
            if not more:
                return
            arguments["ExclusiveStartKey"] = response["LastEvaluatedKey"]

    def indexed(self, table: str, index: str, pk: str, limit: int) -> list[RowKey]:
        """Return the keys of a partition's rows in an index. The index is eventually consistent."""
        arguments = {**Range(pk).arguments(), "TableName": table, "IndexName": index}
        found: list[RowKey] = []
        while True:
            arguments["Limit"] = limit - len(found)
            response = self._answer(f"reading {table}", "query", arguments)
            found += [key_of(item) for item in response["Items"]]
            if "LastEvaluatedKey" not in response or len(found) >= limit:
                return found
            arguments["ExclusiveStartKey"] = response["LastEvaluatedKey"]

    def some(self, table: str, where: Range, limit: int) -> tuple[list[Item], bool]:
        """Return the first rows of a range, read consistently, and whether more rows exist."""
        arguments = {**where.arguments(), "TableName": table, "ConsistentRead": True}
        arguments["Limit"] = limit
        response = self._answer(f"reading {table}", "query", arguments)
        return response["Items"], "LastEvaluatedKey" in response

    def scan(
        self, table: str, after: RowKey | None, limit: int, filtered: Mapping[str, Any]
    ) -> tuple[list[Item], RowKey | None]:
        """Return one page of the whole table, and the key to continue after."""
        arguments = {**filtered, "TableName": table, "ConsistentRead": True, "Limit": limit}
        if after is not None:
            arguments["ExclusiveStartKey"] = after.item()
        response = self._answer(f"walking over {table}", "scan", arguments)
        last = response.get("LastEvaluatedKey")
        return response["Items"], None if last is None else key_of(last)

    def put_if(self, table: str, item: Item, condition: Condition) -> ConditionFailed | None:
        response = conditional(
            f"writing {table}",
            lambda: self._client().put_item(
                TableName=table,
                Item=item,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **condition.arguments(),
            ),
            self._patience,
        )
        return response if isinstance(response, ConditionFailed) else None

    def update_if(
        self, table: str, key: RowKey, condition: Condition, answers: bool = False
    ) -> Item | ConditionFailed:
        """Update a row. Return the new row if `answers` is set, else an empty item."""
        response = conditional(
            f"writing {table}",
            lambda: self._client().update_item(
                TableName=table,
                Key=key.item(),
                ReturnValues="ALL_NEW" if answers else "NONE",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **condition.arguments(),
            ),
            self._patience,
        )
        return (
            response
            if isinstance(response, ConditionFailed)
            else dict(response.get("Attributes", {}))
        )

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        """Write all rows or none. Return whether the transaction committed.

        False means a failed condition, a conflicting transaction, or no answer.
        """
        doing = "writing together"

        def guarded() -> bool:
            return not lost(lambda: self._client().transact_write_items(TransactItems=writes))

        try:
            return once(doing, guarded)
        except UnknownOutcome:
            return False

    def wait(self, attempt: int, what: str) -> None:
        """Sleep after the failed try number `attempt`, counted from 0."""
        self._patience.wait(attempt, what)

    def _answer(self, doing: str, operation: str, arguments: Mapping[str, Any]) -> Any:
        return answer(doing, lambda: getattr(self._client(), operation)(**arguments))

    def _write(self, table: str, requests: Sequence[dict[str, Any]]) -> None:
        chunks = list(chunked(requests, MOST_WRITTEN))
        self.crew.map(lambda chunk: self._write_chunk(table, chunk), chunks)

    def _write_chunk(self, table: str, requests: Sequence[Any]) -> None:
        def some(left: Sequence[Any]) -> tuple[list[None], Sequence[Any]]:
            response = self._client().batch_write_item(RequestItems={table: left})
            return [], response.get("UnprocessedItems", {}).get(table, [])

        self._all_of(f"writing {table}", some, requests)

    def _read_chunk(self, table: str, keys: Sequence[RowKey]) -> list[Item]:
        def some(left: Sequence[Any]) -> tuple[list[Item], Sequence[Any]]:
            response = self._client().batch_get_item(
                RequestItems={table: {"Keys": left, "ConsistentRead": True}}
            )
            unread = response.get("UnprocessedKeys", {}).get(table, {"Keys": []})
            return response["Responses"].get(table, []), unread["Keys"]

        return self._all_of(f"reading {table}", some, [key.item() for key in keys])

    def _all_of(
        self,
        doing: str,
        some: Callable[[Sequence[Any]], tuple[list[T], Sequence[Any]]],
        wanted: Sequence[Any],
    ) -> list[T]:
        """Repeat the call for unprocessed rows.

        Raise `Unavailable` after `tries` calls in a row without progress.
        """
        found: list[T] = []
        idle = 0
        while wanted:
            try:
                part, left = once(doing, partial(some, wanted))
                found += part
            except UnknownOutcome:
                left = wanted
            idle = 0 if len(left) < len(wanted) else idle + 1
            if idle == self._patience.tries:
                raise Unavailable(f"AWS left {len(left)} rows unprocessed while {doing}.")
            if left:
                self._patience.wait(idle, doing)
            wanted = left
        return found


def key_of(item: Mapping[str, Any]) -> RowKey:
    return RowKey(item[PK]["S"], item[SK]["S"])


def known(row: Mapping[str, Any], newest: int = LAYOUT) -> Mapping[str, Any]:
    """Return the row. Raise `LaterVersion` if its layout is newer than `newest`."""
    layout = int(row[FORMAT]["N"])
    if layout > newest:
        raise LaterVersion(f"A row was written by a later version of Punctual (layout {layout}).")
    return row


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` items.

    >>> list(chunked([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    rest = iter(items)
    while chunk := list(islice(rest, size)):
        yield chunk


def fitting(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Yield lists of at most `most` total size. A larger item is a list of its own.

    >>> list(fitting(["ab", "c", "defg", "h"], len, 3))
    [['ab', 'c'], ['defg'], ['h']]
    """
    part: list[T] = []
    weight = 0
    for item in items:
        one = size(item)
        if part and weight + one > most:
            yield part
            part, weight = [], 0
        part.append(item)
        weight += one
    if part:
        yield part
