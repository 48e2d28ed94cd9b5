"""Wake-ups for pollers in a standard queue. A FIFO queue has no delay for single messages."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from punctual.aws.dynamodb.keys import parse_time_key, time_key
from punctual.aws.sqs.sender import MAX_SQS_DELAY_SECONDS, SqsBatchSender
from punctual.domain.errors import Invalid, Unavailable
from punctual.domain.identifiers import bucket_of
from punctual.engine.dispatch.on_demand.wakeup_times import (
    BURST_TIMERS,
    COLD_START_DURATION,
    WARM_START_DURATION,
    WakeUp,
    wake_up_time,
)
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer

WAKE_UP_LAYOUT = 1
# Two minutes that the planner works ahead, and one for clock differences.
PLANNED_AHEAD = timedelta(minutes=3)
MAX_PARTITIONS_PER_WAKE_UP = 1_000  # timer partitions in one message
# Numbers of timers in a partition above which the poller must start earlier.
WAKE_UP_SIZE_STEPS = (25, 100, BURST_TIMERS)
_MAX_EARLY_DELIVERY = timedelta(seconds=2)  # SQS may deliver a message this much early


class _PendingWakeUp(NamedTuple):
    """A wake-up under way. Its poller reads all timers put before it starts."""

    wake_up_at: datetime
    timer_count: int  # timers put for the partition so far


class SqsWakeUps:
    """A sender of wake-ups that remembers those under way.

    A new timer needs no wake-up while an earlier one is under way.
    """

    def __init__(
        self,
        sender: SqsBatchSender,
        url: str,
        clock: Clock,
        start_delay: timedelta = COLD_START_DURATION,
    ) -> None:
        self._sender = sender
        self._url = url
        self._clock = clock
        self._start_delay = start_delay
        self._pending: dict[TimerPartition, _PendingWakeUp] = {}

    def for_poller(self) -> "SqsWakeUps":
        """Return a sender for a poller. Its wake-ups within minutes meet warm functions."""
        return SqsWakeUps(self._sender, self._url, self._clock, WARM_START_DURATION)

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        """Send wake-ups for timers in minutes that the planner has handed out already.

        Each wake-up arrives when its timers need a poller. If the number of timers in a partition
        grows past a step of `WAKE_UP_SIZE_STEPS`, an earlier wake-up follows.
        """
        now = self._clock()
        last_bucket = bucket_of(now) + PLANNED_AHEAD
        pending = {
            partition: pending_wake_up
            for partition, pending_wake_up in self._pending.items()
            if pending_wake_up.wake_up_at - _MAX_EARLY_DELIVERY > now
        }
        times_by_partition: dict[TimerPartition, list[datetime]] = {}
        for timer in timers:
            if timer.bucket <= last_bucket:
                times_by_partition.setdefault(TimerPartition(timer.bucket, timer.shard), []).append(
                    timer.at
                )
        wake_up_times: dict[TimerPartition, datetime] = {}
        # Partitions without an earlier wake-up under way.
        new_partitions: set[TimerPartition] = set()
        for partition, times in times_by_partition.items():
            earlier = pending.get(partition)
            timer_count = len(times) + (earlier.timer_count if earlier else 0)
            if (
                earlier is None
                or max(now, wake_up_time([min(times)], self._start_delay)) < earlier.wake_up_at
            ):
                wake_up_times[partition] = max(now, wake_up_time(times, self._start_delay))
                pending[partition] = _PendingWakeUp(wake_up_times[partition], timer_count)
                new_partitions.add(partition)
            else:
                pending[partition] = earlier._replace(timer_count=timer_count)
            if earlier is not None and _size_step(earlier.timer_count) < _size_step(timer_count):
                wake_up_times[partition] = max(
                    now, wake_up_time([min(times)] * timer_count, self._start_delay)
                )
        wake_ups = _group_by_minute(wake_up_times)
        for wake_up in wake_ups:  # sent for the earliest of its partitions
            for partition in new_partitions.intersection(wake_up.partitions):
                pending[partition] = pending[partition]._replace(wake_up_at=wake_up.at)
        self.send_wake_ups(wake_ups)
        self._pending = pending

    def send_wake_up(self, partitions: Sequence[TimerPartition], wake_up_at: datetime) -> None:
        """Wake a poller of these partitions at `wake_up_at`, but at most 15 minutes from now."""
        self.send_wake_ups([WakeUp(tuple(partitions), wake_up_at)])

    def send_wake_ups(self, wake_ups: Sequence[WakeUp]) -> None:
        now = self._clock()
        entries = [
            {
                "MessageBody": _to_body(
                    wake_up.partitions[start : start + MAX_PARTITIONS_PER_WAKE_UP]
                ),
                "DelaySeconds": max(
                    0, min(MAX_SQS_DELAY_SECONDS, int((wake_up.at - now).total_seconds()))
                ),
            }
            for wake_up in wake_ups
            for start in range(0, len(wake_up.partitions), MAX_PARTITIONS_PER_WAKE_UP)
        ]
        if not all(self._sender.send(self._url, entries)):
            raise Unavailable("A wake-up could not be sent.")

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        """Send nothing. Executors read cancel requests with each heartbeat, every four seconds."""


def _size_step(timer_count: int) -> int:
    return sum(timer_count >= threshold for threshold in WAKE_UP_SIZE_STEPS)


def _group_by_minute(wake_up_times: Mapping[TimerPartition, datetime]) -> list[WakeUp]:
    """Return one wake-up for each minute, at the earliest time of its partitions."""
    return [
        WakeUp(tuple(partitions), min(wake_up_times[partition] for partition in partitions))
        for _, group in groupby(sorted(wake_up_times), key=lambda partition: partition.bucket)
        for partitions in [list(group)]
    ]


def parse_wake_up(body: str) -> list[TimerPartition]:
    try:
        values = json.loads(body)
        if values["f"] > WAKE_UP_LAYOUT:
            raise ValueError(values["f"])
        return [TimerPartition(parse_time_key(bucket), shard) for bucket, shard in values["places"]]
    except (ValueError, KeyError, TypeError) as error:
        raise Invalid("This is not a wake-up of Punctual, or a later version wrote it.") from error


def _to_body(partitions: Sequence[TimerPartition]) -> str:
    pairs = [(time_key(partition.bucket), partition.shard) for partition in partitions]
    return json.dumps({"f": WAKE_UP_LAYOUT, "places": pairs}, separators=(",", ":"))
