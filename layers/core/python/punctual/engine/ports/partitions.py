"""Who looks after which minute, as the store keeps it."""

from datetime import datetime
from typing import NamedTuple, Protocol


class BucketLease(NamedTuple):
    """One poller's right to one (bucket, shard); `look` counts the nudges it must have seen."""

    bucket: datetime
    shard: int
    owner: str
    token: int
    look: int
    until: datetime


class Buckets(Protocol):
    """Who looks after which minute. Control rows; conditions make each step a race to win."""

    def watermark(self) -> datetime | None:
        """All buckets before this are done (last_pull_time)."""

    def advance(self, old: datetime | None, new: datetime) -> bool: ...

    def reopen(self, current: datetime, since: datetime) -> bool:
        """Open all minutes from `since` on, if `current` or a later one is closed.

        True if so: a clock ran ahead, and a timer in a closed minute is never looked at.
        """

    def shards(self) -> int:
        """The largest shard count in force."""

    def grow(self, shards: int) -> None:
        """Never lowers it."""

    def acquire(
        self, bucket: datetime, shard: int, owner: str, now: datetime, until: datetime
    ) -> BucketLease | None:
        """None while another's lease lives, or when it is done."""

    def renew(self, lease: BucketLease, until: datetime) -> BucketLease | None:
        """None if the lease is another's, or a nudge came: read again, then renew with its look."""

    def give_back(self, lease: BucketLease) -> bool:
        """False if a nudge came since `lease.look`: there is more to read."""

    def done(self, lease: BucketLease) -> bool:
        """The bucket was found empty after its time: nobody need look again."""

    def is_done(self, bucket: datetime, shard: int) -> bool: ...

    def nudge(self, bucket: datetime, shard: int) -> BucketLease | None:
        """Raise the look number of a live lease; None where nobody holds one."""
