"""The sweep of timers before the watermark. None should exist, and no poller reads them."""

from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.identifiers import BUCKET_LENGTH
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.partitions import Partitions
from punctual.engine.ports.timers import Timer, Timers

LATE_TIMER_SPAN = timedelta(days=2)  # a late put lands shortly before the watermark
MAX_SWEPT_PARTITIONS = 500  # partitions read by one step
LATE_TIMER_PAGE_SIZE = 500


class SweepResult(NamedTuple):
    timer_count: int
    cursor: datetime | None


class LateTimerSweeper:
    """Evaluates timers that no poller reads any more."""

    def __init__(self, timers: Timers, partitions: Partitions, evaluator: Evaluator) -> None:
        self._timers = timers
        self._partitions = partitions
        self._evaluator = evaluator

    def step(self, cursor: datetime | None = None) -> SweepResult:
        """Evaluate, and so delete, the timers of some minutes before the watermark."""
        watermark = self._partitions.watermark()
        if watermark is None:
            return SweepResult(0, None)
        bucket = cursor or watermark - LATE_TIMER_SPAN
        late_timers: list[Timer] = []
        shards = max(1, self._partitions.shard_count())
        for _ in range(max(1, MAX_SWEPT_PARTITIONS // shards)):
            if bucket >= watermark:
                break
            late_timers.extend(self._read_bucket(bucket, shards))
            bucket += BUCKET_LENGTH
        if late_timers:
            self._evaluator.evaluate_timers(late_timers)
        return SweepResult(len(late_timers), bucket if bucket < watermark else None)

    def _read_bucket(self, bucket: datetime, shards: int) -> list[Timer]:
        forever = datetime.max.replace(tzinfo=bucket.tzinfo)
        return [
            timer
            for shard in range(shards)
            for timer in self._timers.due(bucket, shard, forever, None, LATE_TIMER_PAGE_SIZE).timers
        ]
