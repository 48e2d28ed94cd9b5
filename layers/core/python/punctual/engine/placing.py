"""Putting timers: which bucket and shard, and again if the put was so slow that it may be late."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.errors import Unavailable
from punctual.domain.head import Head, Kind, State
from punctual.domain.placement import EPOCH, bucket_of, shard_of
from punctual.engine.change import Change
from punctual.engine.ports import Clock, Key, Ports, Stored, Timer

MINUTE = timedelta(minutes=1)
AHEAD = timedelta(seconds=1)
SLOW = timedelta(seconds=10)
WATCH_GRID = 20  # seconds: the watches of one lease fall on one timer
PUTS = 3


class Begun(NamedTuple):
    """A moment by both clocks."""

    wall: datetime
    steady: float


class Placing:
    def __init__(self, ports: Ports, clock: Clock, monotonic: Callable[[], float]) -> None:
        self._ports = ports
        self._clock = clock
        self._monotonic = monotonic
        self._shards = 0

    def timer(self, key: Key, at: datetime, version: int, now: datetime) -> Timer:
        """A timer goes where a poller has surely not finished: the minute of now + 1 s or later."""
        if not self._shards:
            self._shards = self._learn(now)
        bucket = bucket_of(max(at, now + AHEAD))
        shard = shard_of(key.job_id, self._shards) if self._shards > 1 else 0
        return Timer(bucket, shard, at, key.tenant, key.job_id, version)

    def _learn(self, now: datetime) -> int:
        """How many shards; and the watermark begins no later than the first timer, whose minute
        a planner that ticks much later would otherwise never hand out."""
        buckets = self._ports.buckets
        if buckets.watermark() is None:
            buckets.advance(None, bucket_of(now) - MINUTE)
        return buckets.shards()

    def begin(self) -> Begun:
        """To be taken before the buckets of the timers that are then put are chosen."""
        return Begun(self._clock(), self._monotonic())

    def put(self, timers: Sequence[Timer], begun: Begun) -> None:
        """A bucket may close between its choice and a slow put's answer: it is put again then."""
        for _ in range(PUTS):
            if not timers:
                return
            self._ports.timers.put(timers)
            now = self._clock()
            steady = timedelta(seconds=self._monotonic() - begun.steady)
            if max(now - begun.wall, steady) <= SLOW:
                return
            begun = self.begin()
            timers = [self.timer(timer.key, timer.at, timer.version, now) for timer in timers]
        raise Unavailable("The store is too slow to keep time: its writes take over ten seconds.")

    def watches(self, change: Change, stored: Stored, head: Head, now: datetime) -> list[Timer]:
        """Keep watching the leases whose watch brought this look."""
        versions = {timer.version for timer in change.brought}
        found = []
        for run in head.runs:
            lease = stored.leases.get(run.run_id)
            if run.held and lease is not None and run.token in versions:
                found.append(self.watch(change.key, run.token, lease.until, now))
        return found

    def watch(self, key: Key, token: int, until: datetime, now: datetime) -> Timer:
        """Look when this lease should be over; the same timer for leases that end close by."""
        seconds = -(-(until - EPOCH) // timedelta(seconds=1))
        at = EPOCH + timedelta(seconds=-(-seconds // WATCH_GRID) * WATCH_GRID)
        return self.timer(key, at, token, now)


def blank_head(key: Key, version: int, writer: str, now: datetime) -> Head:
    """Holds the place of a job whose creation was slower than its timer."""
    return Head(
        tenant=key.tenant,
        job_id=key.job_id,
        version=version,
        edition=0,
        definition=0,
        state=State.COMPLETED,
        kind=Kind.IMMEDIATE,
        created_at=now,
        updated_at=now,
        schedule=None,
        rules={},
        writers=(writer,),
        ended_at=now,
        blank=True,
    )
