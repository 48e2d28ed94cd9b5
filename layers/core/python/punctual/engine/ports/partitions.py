"""The port for the control rows of dispatch: partition leases, watermark, shard count."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol


class TimerPartition(NamedTuple):
    """A bucket and a shard."""

    bucket: datetime
    shard: int


class BucketLease(NamedTuple):
    """A poller's right to one partition. `look` counts the signals that it has seen."""

    bucket: datetime
    shard: int
    owner: str
    token: int
    look: int
    until: datetime


class Buckets(Protocol):
    """Control rows of dispatch. A conditional write decides each race between pollers."""

    def watermark(self) -> datetime | None:
        """Return the first bucket that is not done. All earlier buckets are done."""

    def advance(self, old: datetime | None, new: datetime) -> bool: ...

    def reopen(self, current: datetime, since: datetime) -> bool:
        """Open all buckets from `since` on if `current` is closed. Return True if it was.

        A clock ran ahead and closed them. A timer in a closed bucket is never evaluated.
        """

    def shards(self) -> int:
        """Return the largest shard count in force."""

    def grow(self, shards: int) -> None:
        """Raise the shard count to `shards`. A lower number changes nothing."""

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, until: datetime
    ) -> BucketLease | None:
        """Lease a partition. Return None if it is done or another owner's lease is valid."""

    def renew(self, lease: BucketLease, until: datetime) -> BucketLease | None:
        """Renew a lease. Return None if another owner has it, or a signal came since `look`.

        After a signal the poller acquires the lease again and reads the partition anew.
        """

    def give_back(self, lease: BucketLease) -> bool:
        """Release a lease. Return False if a signal came since `lease.look`."""

    def done(self, lease: BucketLease) -> bool:
        """Mark a partition as done, because it was empty after its end.

        Return False if another owner has the lease, or a signal came since `lease.look`.
        """

    def is_done(self, bucket: datetime, shard: int) -> bool: ...

    def nudge(self, bucket: datetime, shard: int) -> BucketLease | None:
        """Signal new timers: raise `look` of a valid lease. Return None if there is no lease."""


class HeldPartition(Protocol):
    def held(self, places: Sequence[TimerPartition]) -> Mapping[TimerPartition, BucketLease]:
        """Return the valid leases of these partitions."""
