"""A table in memory with the calls that lists make. Its pages are as small as a test wants."""

from collections.abc import Sequence
from typing import Any, cast

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import DynamoClient, KeyRange
from punctual.aws.thread_pool import ThreadPool

RowsOfPartition = dict[str, Item]


class ListTable:
    """Stands for `DynamoClient`. A page without a limit has `page_rows` rows, not 1 MB."""

    def __init__(self, page_rows: int = 1_000) -> None:
        self.pool = ThreadPool(1)
        self.partitions: dict[str, RowsOfPartition] = {}
        self.page_rows = page_rows
        self.pages_read: list[str] = []  # the partition of each page

    @property
    def client(self) -> DynamoClient:
        return cast(DynamoClient, self)

    def put(self, _table: str, items: Sequence[Item]) -> None:
        for item in items:
            rows = self.partitions.setdefault(item[keys.PK]["S"], {})
            rows[item[keys.SK]["S"]] = item

    def query_page(
        self, _table: str, key_range: KeyRange, limit: int | None
    ) -> tuple[list[Item], bool]:
        values: dict[str, Any] = key_range.arguments()["ExpressionAttributeValues"]
        assert key_range.newest_first
        assert key_range.high is None or key_range.excludes_high
        pk = values[":pk"]["S"]
        self.pages_read.append(pk)
        rows = self.partitions.get(pk, {})
        sort_keys = sorted(
            (sk for sk in rows if key_range.high is None or sk < key_range.high), reverse=True
        )
        count = min(self.page_rows, limit or self.page_rows)
        return [rows[sk] for sk in sort_keys[:count]], len(sort_keys) > count

    @property
    def row_count(self) -> int:
        return sum(map(len, self.partitions.values()))
