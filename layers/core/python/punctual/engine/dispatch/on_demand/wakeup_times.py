"""Wake-ups: the partitions that a poller is to take, when it must run, and how fast it works."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.domain.utc import SECOND
from punctual.engine.ports.partitions import TimerPartition

FIRE_LEAD = timedelta(seconds=0.8)  # a running poller fires a run this long before its time
# A run is sent this long before its time; a warm queue takes as long.
SEND_LEAD = timedelta(seconds=0.1)
FIRE_BATCH_SPAN = timedelta(seconds=1)  # timers due within this time are fired in the same batch
# Time for a poller to read, take its leases and load states.
POLLER_SETUP_DURATION = timedelta(seconds=0.1)
COLD_START_DURATION = timedelta(seconds=1)  # delay of the queue and of a cold start
WARM_START_DURATION = timedelta(seconds=0.15)  # the same after a poller has run in the last minutes
MAX_FIRE_AHEAD = timedelta(minutes=1)  # bursts are fired up to this long ahead
BURST_TIMERS = 200  # a partition with this many timers is a burst


class Throughput(NamedTuple):
    """Recurring jobs fired and messages sent in a second."""

    fired_per_second: float
    sent_per_second: float

    def scaled(self, core_share: float) -> "Throughput":
        """Return the throughput with this share of a processor.

        >>> Throughput(800, 6_400).scaled(0.125)
        Throughput(fired_per_second=100.0, sent_per_second=800.0)
        """
        return Throughput(self.fired_per_second * core_share, self.sent_per_second * core_share)


# `make bench-poller`: 1.2 ms of a processor for each job, mostly for one swap. Threads add nothing.
CORE_THROUGHPUT = Throughput(833, 6_900)
# For callers of unknown pollers: 256 MB of the 1,769 MB of a core.
SLOWEST_THROUGHPUT = CORE_THROUGHPUT.scaled(0.145)


def begin_at(due_times: Sequence[datetime], throughput: Throughput) -> datetime:
    """Return when to begin, so that each second's runs are fired and sent before its first one."""
    times_by_second: dict[datetime, list[datetime]] = {}
    for at in due_times:
        times_by_second.setdefault(at.replace(microsecond=0), []).append(at)
    begin_time, run_count = min(due_times), 0
    time_per_run = SECOND * (1 / throughput.fired_per_second + 1 / throughput.sent_per_second)
    for _, times in sorted(times_by_second.items()):
        run_count += len(times)
        begin_time = min(begin_time, min(times) - time_per_run * run_count)
    return begin_time


class WakeUp(NamedTuple):
    partitions: tuple[TimerPartition, ...]
    at: datetime


def wake_up_time(timer_times: Sequence[datetime], start_duration: timedelta) -> datetime:
    """Return when a poller must run to fire these timers in time, and hardly earlier."""
    if len(timer_times) >= BURST_TIMERS:
        return min(timer_times) - MAX_FIRE_AHEAD
    return (
        begin_at(timer_times, SLOWEST_THROUGHPUT)
        - SEND_LEAD
        - POLLER_SETUP_DURATION
        - start_duration
    )
