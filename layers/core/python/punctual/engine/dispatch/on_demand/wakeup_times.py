"""Wake-ups: which places a poller is asked to look after, and from when on."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from punctual.engine.dispatch.on_demand.throughput import SLOWEST, begin_at
from punctual.engine.dispatch.timer_window import TimerPartition

FIRE = timedelta(seconds=0.8)  # before its time a run is fired, where a poller is there by then
SEND = timedelta(seconds=0.1)  # before its time a run is sent: what a warm queue takes
AHEAD = timedelta(seconds=1)  # what is due by then is fired with it: one batch
READY = timedelta(seconds=0.1)  # what a poller takes to look, take the lease and read heads
START = timedelta(seconds=1)  # what a queue takes, and a function that nobody has used yet
WARM = timedelta(seconds=0.15)  # the same, where a poller was at work within minutes
EARLY = timedelta(minutes=1)  # bursts are fired from then on
MANY = 200  # timers of one place, from which on it is more than one poller's side work


class WakeUp(NamedTuple):
    places: tuple[TimerPartition, ...]
    at: datetime


def wake_at(moments: Sequence[datetime], start: timedelta) -> datetime:
    """When a poller is to come for these timers: in time to fire them, and hardly earlier."""
    if len(moments) >= MANY:
        return min(moments) - EARLY
    return begin_at(moments, SLOWEST) - SEND - READY - start
