"""The planner: it hands out partitions up to two minutes ahead and moves the watermark.

This planner serves one process that holds its partitions all the time, where a lease costs nothing.
With pollers on demand, `on_demand/planner.py` reads a partition before it hands it out.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.identifiers import bucket_of
from punctual.engine.ports.partitions import BucketLease, Buckets, TimerPartition

AHEAD = timedelta(minutes=2)
BUCKET = timedelta(minutes=1)
LEASE = timedelta(seconds=60)
REOPENED = timedelta(minutes=10)  # before now; timers may have been put into these meanwhile
OLD_BUCKETS = 1_440  # past minutes in one tick; current minutes come first


class Planned(NamedTuple):
    leases: Sequence[BucketLease]
    watermark: datetime
    behind: bool


class Planner:
    def __init__(self, buckets: Buckets, owner: str) -> None:
        self._buckets = buckets
        self._owner = owner

    def reopen(self, now: datetime) -> bool:
        """Open the minutes that were closed while the clock ran ahead. Return True if any were.

        A timer in a closed minute is never evaluated.
        """
        current = bucket_of(now)
        return self._buckets.reopen(current, current - REOPENED)

    def tick(self, now: datetime, held: Sequence[TimerPartition] = ()) -> Planned:
        """Lease the free partitions from the watermark to two minutes ahead."""
        self.reopen(now)
        shards = max(1, self._buckets.shards())
        watermark = self._advance(now, shards)
        wanted = _minutes(watermark, now)
        have = set(held)
        leases = []
        for bucket in wanted:
            for shard in range(shards):
                if TimerPartition(bucket, shard) in have:
                    continue
                lease = self._buckets.acquire(bucket, shard, self._owner, now, now + LEASE)
                if lease is not None:
                    leases.append(lease)
        return Planned(leases, watermark, len(wanted) > OLD_BUCKETS)

    def _advance(self, now: datetime, shards: int) -> datetime:
        """Move the watermark over minutes that are done, and no further. Return it."""
        stored = self._buckets.watermark()
        if stored is None:
            start = bucket_of(now) - BUCKET
            return start if self._buckets.advance(None, start) else self._advance(now, shards)
        mark = stored
        while mark <= now and all(self._buckets.is_done(mark, shard) for shard in range(shards)):
            mark += BUCKET
        if mark != stored and not self._buckets.advance(stored, mark):
            return stored
        return mark


def _minutes(watermark: datetime, now: datetime) -> list[datetime]:
    """Return the minutes from now on, then at most a day of past ones, oldest first."""
    current = bucket_of(now)
    ahead = [current + BUCKET * step for step in range(int(AHEAD / BUCKET) + 1)]
    behind: list[datetime] = []
    bucket = watermark
    while bucket < current and len(behind) < OLD_BUCKETS:
        behind.append(bucket)
        bucket += BUCKET
    return ahead + behind
