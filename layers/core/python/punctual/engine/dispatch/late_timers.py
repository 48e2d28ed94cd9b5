"""The sweep of timers behind the watermark. None should exist, and no poller reads them."""

from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.partitions import Buckets
from punctual.engine.ports.timers import Timer, Timers

BACK = timedelta(days=2)  # a late put lands shortly before the watermark
BUCKET = timedelta(minutes=1)
PLACES = 500  # partitions read by one step
PAGE = 500


class Swept(NamedTuple):
    found: int
    cursor: datetime | None


class Sweeper:
    def __init__(self, timers: Timers, buckets: Buckets, looker: Evaluator) -> None:
        self._timers = timers
        self._buckets = buckets
        self._looker = looker

    def step(self, cursor: datetime | None = None) -> Swept:
        """Evaluate, and so delete, the timers of some minutes before the watermark."""
        watermark = self._buckets.watermark()
        if watermark is None:
            return Swept(0, None)
        minute = cursor or watermark - BACK
        found: list[Timer] = []
        shards = max(1, self._buckets.shards())
        for _ in range(max(1, PLACES // shards)):
            if minute >= watermark:
                break
            found.extend(self._in(minute, shards))
            minute += BUCKET
        if found:
            self._looker.look(found)
        return Swept(len(found), minute if minute < watermark else None)

    def _in(self, minute: datetime, shards: int) -> list[Timer]:
        forever = datetime.max.replace(tzinfo=minute.tzinfo)
        return [
            timer
            for shard in range(shards)
            for timer in self._timers.due(minute, shard, forever, None, PAGE).timers
        ]
