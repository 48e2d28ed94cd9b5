"""The placement of timers in partitions, and puts that finish before a minute closes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import EPOCH, bucket_of, shard_of
from punctual.domain.job_state import JobState, JobStatus, Kind
from punctual.engine.changes.change import Change
from punctual.engine.clock import ClockReading, Clocks
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.partitions import Buckets
from punctual.engine.ports.rows import Key
from punctual.engine.ports.timers import Timer, Timers

MINUTE = timedelta(minutes=1)
AHEAD = timedelta(seconds=1)
SLOW = timedelta(seconds=10)
WATCH_GRID = 20  # seconds; renewals of one lease mostly fall on one timer
PUTS = 3


class TimerPlacement:
    """Chooses the bucket and the shard of a timer for a decision made at `now`."""

    def __init__(self, buckets: Buckets) -> None:
        self._buckets = buckets
        self._shards = 0

    def timer(self, key: Key, at: datetime, version: int, now: datetime) -> Timer:
        """Return the timer, filed under the minute of `at` or of `now` + 1 s.

        The later of the two counts, because no poller has finished that minute.
        """
        if not self._shards:
            self._shards = self._learn(now)
        bucket = bucket_of(max(at, now + AHEAD))
        shard = shard_of(key.job_id, self._shards) if self._shards > 1 else 0
        return Timer(bucket, shard, at, key.tenant, key.job_id, version)

    def _learn(self, now: datetime) -> int:
        """Return the number of shards. Set the watermark before `now` if there is none.

        Otherwise a planner that starts much later never hands out the minute of the first timer.
        """
        if self._buckets.watermark() is None:
            self._buckets.advance(None, bucket_of(now) - MINUTE)
        return self._buckets.shards()

    def watches(
        self, change: Change, stored: StoredState, head: JobState, now: datetime
    ) -> list[Timer]:
        """Return the next timers of held leases that triggered this evaluation."""
        versions = {timer.version for timer in change.brought}
        found = []
        for run in head.runs:
            lease = stored.leases.get(run.run_id)
            if run.held and lease is not None and run.token in versions:
                found.append(self.watch(change.key, run.token, lease.until, now))
        return found

    def watch(self, key: Key, token: int, until: datetime, now: datetime) -> Timer:
        """Return the timer for the end of a lease. Ends close together share a timer."""
        seconds = -(-(until - EPOCH) // timedelta(seconds=1))
        at = EPOCH + timedelta(seconds=-(-seconds // WATCH_GRID) * WATCH_GRID)
        return self.timer(key, at, token, now)


class TimerPuts:
    """Puts timers and measures each put, because a bucket may close in the meantime."""

    def __init__(self, timers: Timers, placing: TimerPlacement, clocks: Clocks) -> None:
        self._timers = timers
        self._placing = placing
        self._clocks = clocks

    def put(self, timers: Sequence[Timer], begun: ClockReading) -> Sequence[Timer]:
        """Put the timers, again if the put was slow. Return them as they are stored.

        `begun` is the clock reading that chose their buckets.
        """
        for _ in range(PUTS):
            if not timers:
                return timers
            self._timers.put(timers)
            if self._clocks.passed(begun) <= SLOW:
                return timers
            begun = self._clocks.read()
            timers = [
                self._placing.timer(timer.key, timer.at, timer.version, begun.wall)
                for timer in timers
            ]
        raise Unavailable("The store is too slow to keep time: its writes take over ten seconds.")


def blank_head(key: Key, version: int, writer: str, now: datetime) -> JobState:
    """Return a blank state that holds the place of a job. Its writer was slower than its timer."""
    return JobState(
        tenant=key.tenant,
        job_id=key.job_id,
        version=version,
        edition=0,
        definition=0,
        state=JobStatus.COMPLETED,
        kind=Kind.IMMEDIATE,
        created_at=now,
        updated_at=now,
        schedule=None,
        rules={},
        writers=(writer,),
        ended_at=now,
        blank=True,
    )
