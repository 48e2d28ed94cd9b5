"""The placement of timers in partitions, and puts that finish before a minute closes."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from punctual.domain.errors import Unavailable
from punctual.domain.identifiers import BUCKET_LENGTH, bucket_of, shard_of
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.utc import EPOCH
from punctual.engine.changes.change import Change
from punctual.engine.clock import ClockReading, Clocks
from punctual.engine.ports.job_states import StoredState
from punctual.engine.ports.partitions import Partitions
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer, Timers

MIN_TIMER_LEAD = timedelta(seconds=1)
SLOW_PUT_DURATION = timedelta(seconds=10)
LEASE_TIMER_GRID_SECONDS = 20  # renewals of one lease mostly fall on one timer
MAX_TIMER_PUTS = 3


class TimerPlacement:
    """Chooses the bucket and the shard of a timer for a decision made at `now`."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._shard_count = 0

    def timer(self, key: JobKey, at: datetime, version: int, now: datetime) -> Timer:
        """Return the timer, filed under the minute of `at` or of `now` + 1 s.

        The later of the two counts, because no poller has finished that minute.
        """
        if not self._shard_count:
            self._shard_count = self._read_shard_count(now)
        bucket = bucket_of(max(at, now + MIN_TIMER_LEAD))
        shard = shard_of(key.job_id, self._shard_count) if self._shard_count > 1 else 0
        return Timer(bucket, shard, at, key.tenant, key.job_id, version)

    def _read_shard_count(self, now: datetime) -> int:
        """Return the number of shards. Set the watermark before `now` if there is none.

        Otherwise a planner that starts much later never hands out the minute of the first timer.
        """
        if self._partitions.watermark() is None:
            self._partitions.advance_watermark(None, bucket_of(now) - BUCKET_LENGTH)
        return self._partitions.shard_count()

    def lease_timers(
        self, change: Change, stored: StoredState, state: JobState, now: datetime
    ) -> list[Timer]:
        """Return the next timers of held leases that triggered this evaluation."""
        versions = {timer.version for timer in change.trigger_timers}
        lease_timers = []
        for run in state.runs:
            lease = stored.leases.get(run.run_id)
            if run.is_held and lease is not None and run.token in versions:
                lease_timers.append(self.lease_timer(change.key, run.token, lease.until, now))
        return lease_timers

    def lease_timer(self, key: JobKey, token: int, lease_end_at: datetime, now: datetime) -> Timer:
        """Return the timer for the end of a lease. Ends close together share a timer."""
        end_second = -(-(lease_end_at - EPOCH) // timedelta(seconds=1))
        at = EPOCH + timedelta(
            seconds=-(-end_second // LEASE_TIMER_GRID_SECONDS) * LEASE_TIMER_GRID_SECONDS
        )
        return self.timer(key, at, token, now)


class TimerWriter:
    """Puts timers and measures each put, because a bucket may close in the meantime."""

    def __init__(self, timers: Timers, timer_placement: TimerPlacement, clocks: Clocks) -> None:
        self._timers = timers
        self._timer_placement = timer_placement
        self._clocks = clocks

    def put(self, timers: Sequence[Timer], reading: ClockReading) -> Sequence[Timer]:
        """Put the timers, again if the put was slow. Return them as they are stored.

        `reading` is the clock reading that chose their buckets.
        """
        for _ in range(MAX_TIMER_PUTS):
            if not timers:
                return timers
            self._timers.put(timers)
            if self._clocks.elapsed_since(reading) <= SLOW_PUT_DURATION:
                return timers
            reading = self._clocks.read()
            timers = [
                self._timer_placement.timer(timer.key, timer.at, timer.version, reading.wall)
                for timer in timers
            ]
        raise Unavailable("The store is too slow to keep time: its writes take over ten seconds.")


def blank_state(key: JobKey, version: int, write_id: str, now: datetime) -> JobState:
    """Return a blank state that holds the place of a job. Its writer was slower than its timer."""
    return JobState(
        tenant=key.tenant,
        job_id=key.job_id,
        version=version,
        edition=0,
        definition=0,
        status=JobStatus.COMPLETED,
        kind=ScheduleKind.IMMEDIATE,
        created_at=now,
        updated_at=now,
        schedule=None,
        rules={},
        write_ids=(write_id,),
        ended_at=now,
        is_blank=True,
    )
