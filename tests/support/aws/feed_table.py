"""A table for the change feed. Its writes take time, and become visible some time later."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from punctual.aws.dynamodb.client import KeyRange
from punctual.domain.errors import Unavailable
from tests.support.builders import ManualClock


class _Pool:
    def map(self, call: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
        return [call(value) for value in values]


class FeedTable:
    """Stands in for `DynamoClient`. The clock moves while a row is written."""

    def __init__(self, clock: ManualClock, chance: random.Random, slowest: float) -> None:
        self._clock = clock
        self._chance = chance
        self._slowest = slowest
        self._rows: list[tuple[datetime, dict[str, Any]]] = []  # with the time of its visibility
        self.pool = _Pool()
        self.fails_next = ""  # the next write fails "before" or "after" it took effect

    def put(self, _table: str, items: Sequence[dict[str, Any]]) -> None:
        fails, self.fails_next = self.fails_next, ""
        if fails == "before":
            raise Unavailable("The write failed.")
        seconds = self._chance.uniform(0, self._slowest)
        visible_at = self._clock.now + timedelta(seconds=seconds)
        self._clock.now += timedelta(seconds=self._chance.choice((0, seconds)))
        self._rows += [(visible_at, item) for item in items]
        if fails:
            raise Unavailable("The write took effect, and its answer was lost.")

    def pages(
        self, _table: str, key_range: KeyRange, page_size: int
    ) -> Iterator[tuple[list[dict[str, Any]], bool]]:
        rows = sorted(
            (
                item
                for visible_at, item in self._rows
                if visible_at <= self._clock.now
                and item["pk"]["S"] == key_range.pk
                and item["sk"]["S"] >= (key_range.low or "")
            ),
            key=lambda item: item["sk"]["S"],
        )
        page_size = min(page_size, 5)
        for start in range(0, max(1, len(rows)), page_size):
            yield rows[start : start + page_size], start + page_size < len(rows)
