"""A planner that reads a partition before it wakes a poller.

This planner serves pollers on demand. It reads each partition once ahead, and once 15 s after its
end. An empty partition then stays empty. So an empty minute costs two reads a shard, and only a
partition with timers starts a poller.

The planner keeps its findings in memory. A new planner starts from the stored watermark, which is
never past an open minute. The planner needs no lease, because two planners find the same.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import bucket_of
from punctual.engine.dispatch.on_demand.wakeup_times import MANY, START, WakeUp, wake_at
from punctual.engine.dispatch.planner import AHEAD, BUCKET, REOPENED
from punctual.engine.dispatch.poller import GRACE
from punctual.engine.ports.partitions import Buckets, HeldPartition, TimerPartition
from punctual.engine.ports.timers import Timers

KEPT = timedelta(minutes=5)  # longest time between writes of the watermark while nothing is due
LATE = timedelta(seconds=10)  # a timer this long overdue needs another wake-up
SHARE = 1_000  # timers for one poller
LOOKS = 2_000  # reads of past partitions in one tick
UNREAD = 5  # unreadable partitions that end a tick; the next tick reads the rest


class Seen(NamedTuple):
    """The result of a tick.

    `unread` counts partitions that the store did not answer for. `later` counts partitions with
    timers that only a later version of Punctual can read.
    """

    calls: Sequence[WakeUp]
    watermark: datetime
    behind: int
    unread: int
    later: int = 0


class _Found(NamedTuple):
    place: TimerPartition
    at: datetime
    moments: Sequence[datetime]

    @property
    def many(self) -> int:
        return len(self.moments)


class PeekingPlanner:
    def __init__(self, timers: Timers, buckets: Buckets, held: HeldPartition) -> None:
        self._timers = timers
        self._buckets = buckets
        self._held = held
        self.start_over()

    def start_over(self) -> None:
        """Forget all findings, because a wake-up may not have been sent."""
        self._mark: datetime | None = None
        self._written: datetime | None = None  # the watermark, as it was last read or written
        self._kept_at: datetime | None = None
        self._calm: set[TimerPartition] = set()  # read ahead, and empty
        self._called: dict[TimerPartition, datetime] = {}
        self._closed: set[TimerPartition] = set()  # found empty after their end
        self._later: set[TimerPartition] = set()  # empty except for timers of a later version
        self._unread = 0
        self._worked = False

    def tick(
        self, now: datetime, shards: int, pace: int, is_late: Callable[[], bool] = lambda: False
    ) -> Seen:
        """Read the near partitions, and past ones until `pace` minutes with timers are found.

        When `is_late` returns True, the next tick reads the rest. The wake-ups of this tick must
        be sent first.
        """
        self._unread = 0
        self._is_late = is_late
        stored = self._open_from(now)
        mark = max(stored, self._mark or stored)
        found = list(self._near(now, mark, shards)) + list(self._behind(now, mark, shards, pace))
        mark = self._advance(mark, shards)
        self._keep(now, stored, mark)
        waiting = max(0, (bucket_of(now) - mark) // BUCKET - 1)
        return Seen(_shared(found), mark, waiting, self._unread, len(self._later))

    def rest(self, now: datetime) -> datetime:
        """Hand out no partition. Return the watermark. The next tick reads everything anew."""
        stored = self._open_from(now)
        kept_at = self._kept_at
        self.start_over()
        self._kept_at = kept_at
        self._keep(now, stored, stored)
        return stored

    def _open_from(self, now: datetime) -> datetime:
        """Return the watermark, set back to before now if a clock ran ahead of this one."""
        stored, current = self._stored(now), bucket_of(now)
        if max(stored, self._mark or stored) <= current:
            return stored
        self.start_over()
        self._buckets.reopen(current, current - REOPENED)
        return self._stored(now)

    def _stored(self, now: datetime) -> datetime:
        """Return the watermark, read once. If another planner moves it, the next write fails."""
        if self._written is None:
            self._written = self._buckets.watermark()
        if self._written is not None:
            return self._written
        start = bucket_of(now) - BUCKET
        if self._buckets.advance(None, start):
            self._kept_at = now
            self._written = start
            return start
        return self._stored(now)

    def _near(self, now: datetime, mark: datetime, shards: int) -> Iterator[_Found]:
        """Yield findings in minutes that can still receive timers, up to two minutes ahead."""
        current = bucket_of(now)
        bucket = max(mark, current if _is_over(current - BUCKET, now) else current - BUCKET)
        while bucket <= current + AHEAD:
            for shard in range(shards):
                if self._unread >= UNREAD or self._is_late():
                    return
                yield from self._tried(self._ahead(TimerPartition(bucket, shard), now))
            bucket += BUCKET

    def _tried(self, work: Iterator[_Found]) -> Sequence[_Found]:
        """Return the findings, or none if the store does not answer for this partition."""
        try:
            return list(work)
        except Unavailable:
            self._unread += 1
            return ()

    def _ahead(self, place: TimerPartition, now: datetime) -> Iterator[_Found]:
        if place in self._calm:
            return
        called = self._called.get(place)
        if called is not None:
            if called < now - LATE:
                yield from self._overdue(place, now)
            return
        found = self._look(place, None, MANY)
        if found is not None:
            self._called[place] = max(now, wake_at(found.moments, START))
            yield found._replace(at=self._called[place])
        else:
            self._calm.add(place)

    def _overdue(self, place: TimerPartition, now: datetime) -> Iterator[_Found]:
        """Wake a poller again after a lost wake-up or a crash, once the old lease is over."""
        found = self._look(place, now - LATE, MANY)
        if found is not None:
            yield self._again(found, now)

    def _again(self, found: _Found, now: datetime) -> _Found:
        lease = self._held.held([found.place]).get(found.place)
        at = now if lease is None else max(now, lease.until)
        self._called[found.place] = at
        return found._replace(at=at)

    def _behind(self, now: datetime, mark: datetime, shards: int, pace: int) -> Iterator[_Found]:
        """Yield findings in past minutes, oldest first, until `pace` minutes are not done."""
        looks = standing = 0
        bucket = mark
        while _is_over(bucket, now) and standing < pace and looks < LOOKS:
            before = len(self._closed)
            places = [TimerPartition(bucket, shard) for shard in range(shards)]
            places = [place for place in places if place not in self._closed]
            for place in places:
                if self._unread >= UNREAD or self._is_late():
                    return
                looks += 1
                yield from self._tried(self._closing(place, now))
            standing += len(self._closed) - before < len(places)
            bucket += BUCKET

    def _closing(self, place: TimerPartition, now: datetime) -> Iterator[_Found]:
        called = self._called.get(place)
        self._later.discard(place)
        found = self._look(place, None, MANY)
        if found is None:
            self._closed.add(place)
            self._worked |= called is not None
        elif called is None or called < now - LATE:
            yield self._again(found, now)

    def _look(self, place: TimerPartition, until: datetime | None, limit: int) -> _Found | None:
        forever = datetime.max.replace(tzinfo=place.bucket.tzinfo)
        timers, _, later = self._timers.due(*place, until or forever, None, limit)
        if later:
            self._later.add(place)
        return _Found(place, timers[0].at, [one.at for one in timers]) if timers else None

    def _advance(self, mark: datetime, shards: int) -> datetime:
        """Move the watermark over minutes that are done, and no further. Return it."""
        done = self._closed - self._later
        while all(TimerPartition(mark, shard) in done for shard in range(shards)):
            mark += BUCKET
        self._mark = mark
        self._closed = {place for place in self._closed if place.bucket >= mark}
        self._later = {place for place in self._later if place.bucket >= mark}
        self._calm = {place for place in self._calm if place.bucket >= mark}
        self._called = {place: at for place, at in self._called.items() if place.bucket >= mark}
        return mark

    def _keep(self, now: datetime, stored: datetime, mark: datetime) -> None:
        """Write the watermark after a minute with work, else every five minutes."""
        old = self._kept_at is None or now - self._kept_at >= KEPT
        if old or (self._worked and mark > stored):
            written = self._buckets.advance(stored, mark)
            self._written = mark if written else None
            self._kept_at, self._worked = now, False
            self._closed -= self._later  # a later version may have handled them


def _is_over(bucket: datetime, now: datetime) -> bool:
    return bucket + BUCKET + GRACE <= now


def _shared(found: Sequence[_Found]) -> list[WakeUp]:
    """Return wake-ups by minute. A poller takes all shards, up to `SHARE` timers."""
    calls = []
    for _, some in groupby(sorted(found), key=lambda one: one.place.bucket):
        share: list[_Found] = []
        weight = 0
        for one in some:
            if share and weight + _weight(one) > SHARE:
                calls.append(_call(share))
                share, weight = [], 0
            share.append(one)
            weight += _weight(one)
        calls.append(_call(share))
    return calls


def _weight(found: _Found) -> int:
    """Return the number of timers, or a full share if there are too many to count."""
    return SHARE if found.many >= MANY else found.many


def _call(share: Sequence[_Found]) -> WakeUp:
    return WakeUp(tuple(one.place for one in share), min(one.at for one in share))
