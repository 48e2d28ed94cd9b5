"""The port for the control rows of dispatch: partition leases, watermark, shard count."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol


class TimerPartition(NamedTuple):
    """A bucket and a shard."""

    bucket: datetime
    shard: int


class PartitionLease(NamedTuple):
    """A poller's right to one partition. `signal_count` counts the signals that it has seen."""

    bucket: datetime
    shard: int
    owner: str
    token: int
    signal_count: int
    expires_at: datetime


class Partitions(Protocol):
    """Control rows of dispatch. A conditional write decides each race between pollers."""

    def watermark(self) -> datetime | None:
        """Return the first bucket that is not done. All earlier buckets are done."""

    def advance_watermark(self, old: datetime | None, new: datetime) -> bool: ...

    def reopen(self, current: datetime, since: datetime) -> bool:
        """Open all buckets from `since` on if `current` is closed. Return True if it was.

        A clock ran ahead and closed them. A timer in a closed bucket is never evaluated.
        """

    def shard_count(self) -> int:
        """Return the largest shard count in force."""

    def raise_shard_count(self, shards: int) -> None:
        """Raise the shard count to `shards`. A lower number changes nothing."""

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, expires_at: datetime
    ) -> PartitionLease | None:
        """Lease a partition. Return None if it is done or another owner's lease is valid."""

    def renew(self, lease: PartitionLease, expires_at: datetime) -> PartitionLease | None:
        """Renew a lease. Return None if another owner has it, or a signal came since.

        After a signal the poller acquires the lease again and reads the partition anew.
        """

    def release(self, lease: PartitionLease) -> bool:
        """Release a lease. Return False if a signal came since `lease.signal_count`."""

    def mark_done(self, lease: PartitionLease) -> bool:
        """Mark a partition as done, because it was empty after its end.

        Return False if another owner has the lease, or a signal came since `lease.signal_count`.
        """

    def is_done(self, bucket: datetime, shard: int) -> bool: ...

    def signal_new_timers(self, bucket: datetime, shard: int) -> PartitionLease | None:
        """Raise `signal_count` of a valid lease. Return None if there is no lease."""


class PartitionLeases(Protocol):
    def valid_leases(
        self, partitions: Sequence[TimerPartition]
    ) -> Mapping[TimerPartition, PartitionLease]:
        """Return the valid leases of these partitions."""
