"""Wake-ups: the partitions that a poller is to take, and when it must run."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.dispatch.on_demand.throughput import SLOWEST_THROUGHPUT, begin_at
from punctual.engine.ports.partitions import TimerPartition

FIRE_LEAD = timedelta(seconds=0.8)  # a running poller fires a run this long before its time
SEND_LEAD = timedelta(
    seconds=0.1
)  # a run is sent this long before its time; a warm queue takes as long
FIRE_BATCH_SPAN = timedelta(seconds=1)  # timers due within this time are fired in the same batch
POLLER_SETUP_DURATION = timedelta(
    seconds=0.1
)  # time for a poller to read, take its leases and load states
COLD_START_DURATION = timedelta(seconds=1)  # delay of the queue and of a cold start
WARM_START_DURATION = timedelta(seconds=0.15)  # the same after a poller has run in the last minutes
MAX_FIRE_AHEAD = timedelta(minutes=1)  # bursts are fired up to this long ahead
BURST_TIMERS = 200  # a partition with this many timers is a burst


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
