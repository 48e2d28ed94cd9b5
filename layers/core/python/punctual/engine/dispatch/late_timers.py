"""Timers behind the watermark: none should be there, and none would be looked at any more."""

from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.bundle import Ports
from punctual.engine.ports.timers import Timer

BACK = timedelta(days=2)  # a put that came too late lands close behind the watermark
BUCKET = timedelta(minutes=1)
PLACES = 500  # read by one step
PAGE = 500


class Swept(NamedTuple):
    found: int
    cursor: datetime | None


class Sweeper:
    def __init__(self, ports: Ports, looker: Evaluator) -> None:
        self._ports = ports
        self._looker = looker

    def step(self, cursor: datetime | None = None) -> Swept:
        """Look at what some of the minutes behind still hold; the look deletes it."""
        watermark = self._ports.buckets.watermark()
        if watermark is None:
            return Swept(0, None)
        minute = cursor or watermark - BACK
        found: list[Timer] = []
        shards = max(1, self._ports.buckets.shards())
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
            for timer in self._ports.timers.due(minute, shard, forever, None, PAGE).timers
        ]
