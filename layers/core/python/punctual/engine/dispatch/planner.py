"""The planner: it hands out partitions up to two minutes ahead and moves the watermark.

This planner serves one process that holds its partitions all the time, where a lease costs nothing.
With pollers on demand, `on_demand/planner.py` reads a partition before it hands it out.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.identifiers import BUCKET_LENGTH, bucket_of
from punctual.domain.leases import POLLER_LEASE
from punctual.engine.ports.partitions import PartitionLease, Partitions, TimerPartition

PLANNING_HORIZON = timedelta(minutes=2)
REOPENED_SPAN = timedelta(minutes=10)  # before now; timers may have been put into these meanwhile
MAX_PAST_BUCKETS = 1_440  # past minutes in one tick; current minutes come first


class PlanResult(NamedTuple):
    leases: Sequence[PartitionLease]
    watermark: datetime
    has_backlog: bool  # more past minutes remain than one tick hands out


class Planner:
    """Hands out partitions to the one poller of a process."""

    def __init__(self, partitions: Partitions, owner: str) -> None:
        self._partitions = partitions
        self._owner = owner

    def reopen(self, now: datetime) -> bool:
        """Open the minutes that were closed while the clock ran ahead. Return True if any were.

        A timer in a closed minute is never evaluated.
        """
        current_bucket = bucket_of(now)
        return self._partitions.reopen(current_bucket, current_bucket - REOPENED_SPAN)

    def tick(self, now: datetime, held_partitions: Sequence[TimerPartition] = ()) -> PlanResult:
        """Lease the free partitions from the watermark to two minutes ahead."""
        self.reopen(now)
        shards = max(1, self._partitions.shard_count())
        watermark = self._advance_watermark(now, shards)
        buckets = _buckets_to_lease(watermark, now)
        held_set = set(held_partitions)
        leases = []
        for bucket in buckets:
            for shard in range(shards):
                if TimerPartition(bucket, shard) in held_set:
                    continue
                lease = self._partitions.acquire(
                    bucket, shard, self._owner, now, now + POLLER_LEASE
                )
                if lease is not None:
                    leases.append(lease)
        return PlanResult(leases, watermark, len(buckets) > MAX_PAST_BUCKETS)

    def _advance_watermark(self, now: datetime, shards: int) -> datetime:
        """Move the watermark over minutes that are done, and no further. Return it."""
        stored = self._partitions.watermark()
        if stored is None:
            start = bucket_of(now) - BUCKET_LENGTH
            return (
                start
                if self._partitions.advance_watermark(None, start)
                else self._advance_watermark(now, shards)
            )
        watermark = stored
        while watermark <= now and all(
            self._partitions.is_done(watermark, shard) for shard in range(shards)
        ):
            watermark += BUCKET_LENGTH
        if watermark != stored and not self._partitions.advance_watermark(stored, watermark):
            return stored
        return watermark


def _buckets_to_lease(watermark: datetime, now: datetime) -> list[datetime]:
    """Return the minutes from now on, then at most a day of past ones, oldest first."""
    current_bucket = bucket_of(now)
    future_buckets = [
        current_bucket + BUCKET_LENGTH * step
        for step in range(int(PLANNING_HORIZON / BUCKET_LENGTH) + 1)
    ]
    past_buckets: list[datetime] = []
    bucket = watermark
    while bucket < current_bucket and len(past_buckets) < MAX_PAST_BUCKETS:
        past_buckets.append(bucket)
        bucket += BUCKET_LENGTH
    return future_buckets + past_buckets
