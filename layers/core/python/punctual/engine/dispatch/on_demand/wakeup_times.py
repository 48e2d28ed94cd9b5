"""Wake-ups: the partitions that a poller is to take, and when it must run."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.dispatch.on_demand.throughput import SLOWEST, begin_at
from punctual.engine.ports.partitions import TimerPartition

FIRE = timedelta(seconds=0.8)  # a running poller fires a run this long before its time
SEND = timedelta(seconds=0.1)  # a run is sent this long before its time; a warm queue takes as long
AHEAD = timedelta(seconds=1)  # timers due within this time are fired in the same batch
READY = timedelta(seconds=0.1)  # time for a poller to read, take its leases and load states
START = timedelta(seconds=1)  # delay of the queue and of a cold start
WARM = timedelta(seconds=0.15)  # the same after a poller has run in the last minutes
EARLY = timedelta(minutes=1)  # bursts are fired up to this long ahead
MANY = 200  # a partition with this many timers is a burst


class WakeUp(NamedTuple):
    places: tuple[TimerPartition, ...]
    at: datetime


def wake_at(moments: Sequence[datetime], start: timedelta) -> datetime:
    """Return when a poller must run to fire these timers in time, and hardly earlier."""
    if len(moments) >= MANY:
        return min(moments) - EARLY
    return begin_at(moments, SLOWEST) - SEND - READY - start
