"""Timers: a row that is all key, filed under its minute and shard."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from punctual.aws import keys
from punctual.aws.dynamo import Dynamo, Range, key_of
from punctual.engine.ports import Timer

PAGE = 1_000


class DynamoTimers:
    def __init__(self, dynamo: Dynamo, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def put(self, timers: Sequence[Timer]) -> None:
        self._dynamo.put(self._table, [keys.timer(*timer).item() for timer in timers])

    def delete(self, timers: Sequence[Timer]) -> None:
        self._dynamo.delete(self._table, [keys.timer(*timer) for timer in timers])

    def due(
        self, bucket: datetime, shard: int, until: datetime, after: Timer | None, limit: int
    ) -> Sequence[Timer]:
        low = None if after is None else keys.after_timer(keys.timer(*after).sk)
        high = keys.until_moment(until)
        if limit < 1 or (low is not None and low > high):  # DynamoDB refuses such a range
            return []
        where = Range(keys.bucket(bucket, shard), low, high)
        found = self._dynamo.query(self._table, where, min(limit, PAGE))
        return [Timer(*keys.parse_timer(key_of(row))) for row in islice(found, limit)]
