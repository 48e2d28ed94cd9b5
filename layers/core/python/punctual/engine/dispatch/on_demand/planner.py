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
from punctual.domain.identifiers import BUCKET_LENGTH, bucket_of
from punctual.engine.dispatch.on_demand.wakeup_times import (
    BURST_TIMERS,
    COLD_START_DURATION,
    WakeUp,
    wake_up_time,
)
from punctual.engine.dispatch.planner import PLANNING_HORIZON, REOPENED_SPAN
from punctual.engine.dispatch.poller import BUCKET_CLOSE_DELAY
from punctual.engine.ports.partitions import PartitionLeases, Partitions, TimerPartition
from punctual.engine.ports.timers import Timers

# Each tick writes the watermark, which is the heartbeat of the planner. A repeated one does not.
WATERMARK_WRITE_INTERVAL = timedelta(seconds=45)
LOST_WAKEUP_DELAY = timedelta(seconds=10)  # a timer this long overdue needs another wake-up
MAX_TIMERS_PER_WAKEUP = 1_000  # timers for one poller
MAX_PAST_PARTITION_READS = 2_000  # reads of past partitions in one tick
MAX_UNREAD_PARTITIONS = 5  # unreadable partitions that end a tick; the next tick goes on


class PeekResult(NamedTuple):
    """The result of a tick.

    `unread_count` counts partitions that the store did not answer for. `newer_format_count` counts
    partitions with timers that only a later version of Punctual can read.
    """

    wakeups: Sequence[WakeUp]
    watermark: datetime
    waiting_minutes: int
    unread_count: int
    newer_format_count: int = 0


class _Finding(NamedTuple):
    partition: TimerPartition
    poll_at: datetime
    timer_times: Sequence[datetime]

    @property
    def timer_count(self) -> int:
        return len(self.timer_times)


class PeekingPlanner:
    """Hands out the partitions that have timers."""

    def __init__(
        self, timers: Timers, partitions: Partitions, partition_leases: PartitionLeases
    ) -> None:
        self._timers = timers
        self._partitions = partitions
        self._partition_leases = partition_leases
        self.forget_findings()

    def forget_findings(self) -> None:
        """Forget all findings, because a wake-up may not have been sent."""
        self._watermark: datetime | None = None
        # The watermark, as it was last read or written.
        self._stored_watermark: datetime | None = None
        self._watermark_written_at: datetime | None = None
        self._empty_ahead: set[TimerPartition] = set()  # read ahead, and empty
        self._wakeup_times: dict[TimerPartition, datetime] = {}
        self._empty_after_end: set[TimerPartition] = set()  # found empty after their end
        # Empty except for timers of a later version.
        self._newer_format: set[TimerPartition] = set()
        self._unread_count = 0
        self._has_worked = False

    def tick(
        self,
        now: datetime,
        shards: int,
        max_busy_minutes: int,
        is_late: Callable[[], bool] = lambda: False,
    ) -> PeekResult:
        """Read the near partitions, and past ones until `max_busy_minutes` of them have timers.

        When `is_late` returns True, the next tick reads the others. The wake-ups of this tick must
        be sent first.
        """
        self._unread_count = 0
        self._is_late = is_late
        stored = self._open_watermark(now)
        watermark = max(stored, self._watermark or stored)
        findings = list(self._find_near(now, watermark, shards)) + list(
            self._find_past(now, watermark, shards, max_busy_minutes)
        )
        watermark = self._advance_watermark(watermark, shards)
        self._write_watermark(now, stored, watermark)
        waiting_minutes = max(0, (bucket_of(now) - watermark) // BUCKET_LENGTH - 1)
        return PeekResult(
            _group_wakeups(findings),
            watermark,
            waiting_minutes,
            self._unread_count,
            len(self._newer_format),
        )

    def skip_tick(self, now: datetime) -> datetime:
        """Hand out no partition. Return the watermark. The next tick reads everything anew."""
        stored = self._open_watermark(now)
        watermark_written_at = self._watermark_written_at
        self.forget_findings()
        self._watermark_written_at = watermark_written_at
        self._write_watermark(now, stored, stored)
        return stored

    def _open_watermark(self, now: datetime) -> datetime:
        """Return the watermark, set back to before now if a clock ran ahead of this one."""
        stored, current_bucket = self._load_watermark(now), bucket_of(now)
        if max(stored, self._watermark or stored) <= current_bucket:
            return stored
        self.forget_findings()
        self._partitions.reopen(current_bucket, current_bucket - REOPENED_SPAN)
        return self._load_watermark(now)

    def _load_watermark(self, now: datetime) -> datetime:
        """Return the watermark, read once. If another planner moves it, the next write fails."""
        if self._stored_watermark is None:
            self._stored_watermark = self._partitions.watermark()
        if self._stored_watermark is not None:
            return self._stored_watermark
        start = bucket_of(now) - BUCKET_LENGTH
        if self._partitions.advance_watermark(None, start):
            self._watermark_written_at = now
            self._stored_watermark = start
            return start
        return self._load_watermark(now)

    def _find_near(self, now: datetime, watermark: datetime, shards: int) -> Iterator[_Finding]:
        """Yield findings in minutes that can still receive timers, up to two minutes ahead."""
        current_bucket = bucket_of(now)
        bucket = max(
            watermark,
            current_bucket
            if _is_closed(current_bucket - BUCKET_LENGTH, now)
            else current_bucket - BUCKET_LENGTH,
        )
        while bucket <= current_bucket + PLANNING_HORIZON:
            for shard in range(shards):
                if self._unread_count >= MAX_UNREAD_PARTITIONS or self._is_late():
                    return
                yield from self._findings_or_none(
                    self._find_ahead(TimerPartition(bucket, shard), now)
                )
            bucket += BUCKET_LENGTH

    def _findings_or_none(self, findings: Iterator[_Finding]) -> Sequence[_Finding]:
        """Return the findings, or none if the store does not answer for this partition."""
        try:
            return list(findings)
        except Unavailable:
            self._unread_count += 1
            return ()

    def _find_ahead(self, partition: TimerPartition, now: datetime) -> Iterator[_Finding]:
        if partition in self._empty_ahead:
            return
        wakeup_at = self._wakeup_times.get(partition)
        if wakeup_at is not None:
            if wakeup_at < now - LOST_WAKEUP_DELAY:
                yield from self._find_overdue(partition, now)
            return
        finding = self._peek(partition, None, BURST_TIMERS)
        if finding is not None:
            self._wakeup_times[partition] = max(
                now, wake_up_time(finding.timer_times, COLD_START_DURATION)
            )
            yield finding._replace(poll_at=self._wakeup_times[partition])
        else:
            self._empty_ahead.add(partition)

    def _find_overdue(self, partition: TimerPartition, now: datetime) -> Iterator[_Finding]:
        """Wake a poller again after a lost wake-up or a crash, once the old lease is over."""
        finding = self._peek(partition, now - LOST_WAKEUP_DELAY, BURST_TIMERS)
        if finding is not None:
            yield self._wake_again(finding, now)

    def _wake_again(self, finding: _Finding, now: datetime) -> _Finding:
        lease = self._partition_leases.valid_leases([finding.partition]).get(finding.partition)
        poll_at = now if lease is None else max(now, lease.expires_at)
        self._wakeup_times[finding.partition] = poll_at
        return finding._replace(poll_at=poll_at)

    def _find_past(
        self, now: datetime, watermark: datetime, shards: int, max_busy_minutes: int
    ) -> Iterator[_Finding]:
        """Yield findings in past minutes, oldest first, until `max_busy_minutes` are not done."""
        read_count = busy_minutes = 0
        bucket = watermark
        while (
            _is_closed(bucket, now)
            and busy_minutes < max_busy_minutes
            and read_count < MAX_PAST_PARTITION_READS
        ):
            done_before = len(self._empty_after_end)
            partitions = [TimerPartition(bucket, shard) for shard in range(shards)]
            partitions = [
                partition for partition in partitions if partition not in self._empty_after_end
            ]
            for partition in partitions:
                if self._unread_count >= MAX_UNREAD_PARTITIONS or self._is_late():
                    return
                read_count += 1
                yield from self._findings_or_none(self._find_after_end(partition, now))
            busy_minutes += len(self._empty_after_end) - done_before < len(partitions)
            bucket += BUCKET_LENGTH

    def _find_after_end(self, partition: TimerPartition, now: datetime) -> Iterator[_Finding]:
        wakeup_at = self._wakeup_times.get(partition)
        self._newer_format.discard(partition)
        finding = self._peek(partition, None, BURST_TIMERS)
        if finding is None:
            self._empty_after_end.add(partition)
            self._has_worked |= wakeup_at is not None
        elif wakeup_at is None or wakeup_at < now - LOST_WAKEUP_DELAY:
            yield self._wake_again(finding, now)

    def _peek(
        self, partition: TimerPartition, until: datetime | None, limit: int
    ) -> _Finding | None:
        forever = datetime.max.replace(tzinfo=partition.bucket.tzinfo)
        timers, _, newer_format_rows = self._timers.due(*partition, until or forever, None, limit)
        if newer_format_rows:
            self._newer_format.add(partition)
        return _Finding(partition, timers[0].at, [timer.at for timer in timers]) if timers else None

    def _advance_watermark(self, watermark: datetime, shards: int) -> datetime:
        """Move the watermark over minutes that are done, and no further. Return it."""
        done = self._empty_after_end - self._newer_format
        while all(TimerPartition(watermark, shard) in done for shard in range(shards)):
            watermark += BUCKET_LENGTH
        self._watermark = watermark
        self._empty_after_end = {
            partition for partition in self._empty_after_end if partition.bucket >= watermark
        }
        self._newer_format = {
            partition for partition in self._newer_format if partition.bucket >= watermark
        }
        self._empty_ahead = {
            partition for partition in self._empty_ahead if partition.bucket >= watermark
        }
        self._wakeup_times = {
            partition: wakeup_at
            for partition, wakeup_at in self._wakeup_times.items()
            if partition.bucket >= watermark
        }
        return watermark

    def _write_watermark(self, now: datetime, stored: datetime, watermark: datetime) -> None:
        """Write the watermark after a minute with work, else once a tick."""
        is_outdated = (
            self._watermark_written_at is None
            or now - self._watermark_written_at >= WATERMARK_WRITE_INTERVAL
        )
        if is_outdated or (self._has_worked and watermark > stored):
            is_written = self._partitions.advance_watermark(stored, watermark)
            self._stored_watermark = watermark if is_written else None
            self._watermark_written_at, self._has_worked = now, False
            self._empty_after_end -= self._newer_format  # a later version may have handled them


def _is_closed(bucket: datetime, now: datetime) -> bool:
    return bucket + BUCKET_LENGTH + BUCKET_CLOSE_DELAY <= now


def _group_wakeups(findings: Sequence[_Finding]) -> list[WakeUp]:
    """Return wake-ups by minute. A poller takes all shards, up to `MAX_TIMERS_PER_WAKEUP`."""
    wakeups = []
    for _, bucket_findings in groupby(
        sorted(findings), key=lambda finding: finding.partition.bucket
    ):
        share: list[_Finding] = []
        weight = 0
        for finding in bucket_findings:
            if share and weight + _timer_weight(finding) > MAX_TIMERS_PER_WAKEUP:
                wakeups.append(_wakeup(share))
                share, weight = [], 0
            share.append(finding)
            weight += _timer_weight(finding)
        wakeups.append(_wakeup(share))
    return wakeups


def _timer_weight(finding: _Finding) -> int:
    """Return the number of timers, or a full share if there are too many to count."""
    return MAX_TIMERS_PER_WAKEUP if finding.timer_count >= BURST_TIMERS else finding.timer_count


def _wakeup(share: Sequence[_Finding]) -> WakeUp:
    return WakeUp(
        tuple(finding.partition for finding in share), min(finding.poll_at for finding in share)
    )
