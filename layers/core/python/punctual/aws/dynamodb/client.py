"""A client for DynamoDB: batches, range queries and conditional writes of single rows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.keys import LAYOUT_ATTR, PK, ROW_LAYOUT, SK, RowKey
from punctual.aws.retries import (
    Client,
    ConditionFailed,
    RetryPolicy,
    UnknownOutcome,
    call_aws,
    call_once,
    conditional_write,
    was_cancelled,
)
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import LaterVersion, Unavailable, Unreadable

T = TypeVar("T")

MAX_BATCH_WRITE_ROWS = 25  # rows in one BatchWriteItem
MAX_BATCH_GET_KEYS = 100  # keys in one BatchGetItem


class Condition(NamedTuple):
    """A condition expression with its names and values.

    `update` is the update expression. It is empty for a put of a whole row.
    """

    expression: str
    update: str = ""
    names: Mapping[str, str] = {}
    values: Mapping[str, Any] = {}

    def arguments(self) -> dict[str, Any]:
        """Return the request parameters. Empty maps are left out because DynamoDB rejects them."""
        parameters: dict[str, Any] = {"ConditionExpression": self.expression}
        if self.update:
            parameters["UpdateExpression"] = self.update
        if self.names:
            parameters["ExpressionAttributeNames"] = self.names
        if self.values:
            parameters["ExpressionAttributeValues"] = self.values
        return parameters


class KeyRange(NamedTuple):
    """The sort keys from `low` to `high`, both included unless `excludes_high`."""

    pk: str
    low: str | None = None
    high: str | None = None
    excludes_high: bool = False
    newest_first: bool = False

    def arguments(self) -> dict[str, Any]:
        expression = "#pk = :pk"
        names, values = {"#pk": PK}, {":pk": {"S": self.pk}}
        if self.low is not None or self.high is not None:
            names["#sk"] = SK
        if self.low is not None:
            values[":low"] = {"S": self.low}
        if self.high is not None:
            values[":high"] = {"S": self.high}
        if self.low is not None and self.high is not None:
            expression += " AND #sk BETWEEN :low AND :high"
        elif self.high is not None:
            expression += f" AND #sk {'<' if self.excludes_high else '<='} :high"
        elif self.low is not None:
            expression += " AND #sk >= :low"
        return {
            "KeyConditionExpression": expression,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
            "ScanIndexForward": not self.newest_first,
        }


class DynamoClient:
    def __init__(self, client: Client, pool: ThreadPool, retry_policy: RetryPolicy) -> None:
        self._client = client
        self._retry_policy = retry_policy
        self.pool = pool

    def put(self, table: str, items: Sequence[Item]) -> None:
        rows = {key_of(item): {"PutRequest": {"Item": item}} for item in items}
        self._write_batches(table, list(rows.values()))

    def delete(self, table: str, keys: Sequence[RowKey]) -> None:
        distinct = dict.fromkeys(keys)
        self._write_batches(table, [{"DeleteRequest": {"Key": key.item()}} for key in distinct])

    def read(self, table: str, keys: Sequence[RowKey]) -> dict[RowKey, Item]:
        """Return the rows that exist, by strongly consistent reads in parallel batches."""
        chunks = list(chunked(list(dict.fromkeys(keys)), MAX_BATCH_GET_KEYS))
        rows_by_key: dict[RowKey, Item] = {}
        for rows in self.pool.map(lambda chunk: self._read_chunk(table, chunk), chunks):
            rows_by_key.update((key_of(row), row) for row in rows)
        return rows_by_key

    def query(
        self,
        table: str,
        key_range: KeyRange,
        page_size: int,
        filter_arguments: Mapping[str, Any] | None = None,
    ) -> Iterator[Item]:
        """Yield the rows of a range, read consistently. A page is read when it is needed."""
        return (
            row
            for rows, _ in self.pages(table, key_range, page_size, filter_arguments)
            for row in rows
        )

    def pages(
        self,
        table: str,
        key_range: KeyRange,
        page_size: int,
        filter_arguments: Mapping[str, Any] | None = None,
        is_consistent: bool = True,
    ) -> Iterator[tuple[Sequence[Item], bool]]:
        """Yield pages as (rows, has_more). A filter may empty a page but never drops one."""
        arguments = {**key_range.arguments(), "TableName": table, "ConsistentRead": is_consistent}
        for name, value in (filter_arguments or {}).items():
            arguments[name] = {**arguments[name], **value} if name in arguments else value
        arguments["Limit"] = page_size
        while True:
            response = self._call(f"reading {table}", "query", arguments)
            has_more = "LastEvaluatedKey" in response
            yield response["Items"], has_more
            if not has_more:
                return
            arguments["ExclusiveStartKey"] = response["LastEvaluatedKey"]

    def query_page(
        self, table: str, key_range: KeyRange, limit: int | None
    ) -> tuple[list[Item], bool]:
        """Return the first rows of a range, read consistently, and whether more rows exist.

        Without a limit these are as many rows as AWS returns at once: 1 MB.
        """
        arguments = {**key_range.arguments(), "TableName": table, "ConsistentRead": True}
        if limit is not None:
            arguments["Limit"] = limit
        response = self._call(f"reading {table}", "query", arguments)
        return response["Items"], "LastEvaluatedKey" in response

    def scan(
        self,
        table: str,
        after: RowKey | None,
        limit: int,
        filter_arguments: Mapping[str, Any],
        segment: tuple[int, int] = (0, 1),
    ) -> tuple[list[Item], RowKey | None]:
        """Return one page of a table, or of a segment of so many, and the key to continue after."""
        arguments = {**filter_arguments, "TableName": table, "ConsistentRead": True, "Limit": limit}
        arguments["Segment"], arguments["TotalSegments"] = segment
        if after is not None:
            arguments["ExclusiveStartKey"] = after.item()
        response = self._call(f"walking over {table}", "scan", arguments)
        last_key = response.get("LastEvaluatedKey")
        return response["Items"], None if last_key is None else key_of(last_key)

    def put_if(self, table: str, item: Item, condition: Condition) -> ConditionFailed | None:
        response = conditional_write(
            f"writing {table}",
            lambda: self._client().put_item(
                TableName=table,
                Item=item,
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **condition.arguments(),
            ),
            self._retry_policy,
        )
        return response if isinstance(response, ConditionFailed) else None

    def update_if(
        self, table: str, key: RowKey, condition: Condition, returns_row: bool = False
    ) -> Item | ConditionFailed:
        """Update a row. Return the new row if `returns_row` is set, else an empty item."""
        response = conditional_write(
            f"writing {table}",
            lambda: self._client().update_item(
                TableName=table,
                Key=key.item(),
                ReturnValues="ALL_NEW" if returns_row else "NONE",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **condition.arguments(),
            ),
            self._retry_policy,
        )
        return (
            response
            if isinstance(response, ConditionFailed)
            else dict(response.get("Attributes", {}))
        )

    def delete_if(self, table: str, key: RowKey, condition: Condition) -> ConditionFailed | None:
        response = conditional_write(
            f"writing {table}",
            lambda: self._client().delete_item(
                TableName=table, Key=key.item(), **condition.arguments()
            ),
            self._retry_policy,
        )
        return response if isinstance(response, ConditionFailed) else None

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        """Write all rows or none. Return whether the transaction committed.

        False means a failed condition, a conflicting transaction, or no answer.
        """
        activity = "writing a transaction"

        def transact_once() -> bool:
            return not was_cancelled(
                lambda: self._client().transact_write_items(TransactItems=writes)
            )

        try:
            return call_once(activity, transact_once)
        except UnknownOutcome:
            return False

    def wait(self, attempt: int, jitter_key: str) -> None:
        """Sleep after the failed try number `attempt`, counted from 0."""
        self._retry_policy.wait(attempt, jitter_key)

    def _call(self, activity: str, operation: str, arguments: Mapping[str, Any]) -> Any:
        return call_aws(activity, lambda: getattr(self._client(), operation)(**arguments))

    def _write_batches(self, table: str, requests: Sequence[dict[str, Any]]) -> None:
        chunks = list(chunked(requests, MAX_BATCH_WRITE_ROWS))
        self.pool.map(lambda chunk: self._write_chunk(table, chunk), chunks)

    def _write_chunk(self, table: str, requests: Sequence[Any]) -> None:
        def write_batch(pending: Sequence[Any]) -> tuple[list[None], Sequence[Any]]:
            response = self._client().batch_write_item(RequestItems={table: pending})
            return [], response.get("UnprocessedItems", {}).get(table, [])

        self._repeat_until_processed(f"writing {table}", write_batch, requests)

    def _read_chunk(self, table: str, keys: Sequence[RowKey]) -> list[Item]:
        def read_batch(pending: Sequence[Any]) -> tuple[list[Item], Sequence[Any]]:
            response = self._client().batch_get_item(
                RequestItems={table: {"Keys": pending, "ConsistentRead": True}}
            )
            unprocessed = response.get("UnprocessedKeys", {}).get(table, {"Keys": []})
            return response["Responses"].get(table, []), unprocessed["Keys"]

        return self._repeat_until_processed(
            f"reading {table}", read_batch, [key.item() for key in keys]
        )

    def _repeat_until_processed(
        self,
        activity: str,
        call_batch: Callable[[Sequence[Any]], tuple[list[T], Sequence[Any]]],
        pending: Sequence[Any],
    ) -> list[T]:
        """Repeat the call for unprocessed rows.

        Raise `Unavailable` after as many calls without progress as the policy has tries.
        """
        results: list[T] = []
        calls_without_progress = 0
        while pending:
            try:
                batch_results, unprocessed = call_once(activity, partial(call_batch, pending))
                results += batch_results
            except UnknownOutcome:
                unprocessed = pending
            calls_without_progress = (
                0 if len(unprocessed) < len(pending) else calls_without_progress + 1
            )
            if calls_without_progress == self._retry_policy.tries:
                raise Unavailable(f"AWS left {len(unprocessed)} rows unprocessed while {activity}.")
            if unprocessed:
                self._retry_policy.wait(calls_without_progress, activity)
            pending = unprocessed
        return results


def key_of(item: Mapping[str, Any]) -> RowKey:
    return RowKey(item[PK]["S"], item[SK]["S"])


def check_layout(row: Mapping[str, Any], read_layout: int = ROW_LAYOUT) -> Mapping[str, Any]:
    """Return the row if it has the layout `read_layout`.

    Raise `LaterVersion` if its layout is newer, and `Unreadable` if it is older.
    """
    layout = int(row[LAYOUT_ATTR]["N"])
    if layout > read_layout:
        raise LaterVersion(f"A row was written by a later version of Punctual (layout {layout}).")
    if layout < read_layout:
        raise Unreadable(
            f"A row has the format {layout}; this version of Punctual reads only the format "
            f"{read_layout}. Start the stage again with new tables (docs/deploying.md)."
        )
    return row


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """Read the first page now, so that several ranges are read in parallel."""
    first = list(islice(items, 1))
    return chain(first, items)


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` items.

    >>> list(chunked([1, 2, 3], 2))
    [[1, 2], [3]]
    """
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def split_by_size(items: Iterable[T], size: Callable[[T], int], max_size: int) -> Iterator[list[T]]:
    """Yield lists of at most `max_size` total size. A larger item is a list of its own.

    >>> list(split_by_size(["ab", "c", "defg", "h"], len, 3))
    [['ab', 'c'], ['defg'], ['h']]
    """
    part: list[T] = []
    part_size = 0
    for item in items:
        item_size = size(item)
        if part and part_size + item_size > max_size:
            yield part
            part, part_size = [], 0
        part.append(item)
        part_size += item_size
    if part:
        yield part
