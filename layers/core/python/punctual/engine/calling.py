"""Wake-ups: which places a poller is asked to look after, and from when on."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from punctual.engine.window import Place

FIRE = timedelta(seconds=0.5)  # before its time a run is fired and sent: an executor waits
AHEAD = timedelta(seconds=1)  # what is due by then is fired with it: one batch
START = timedelta(seconds=1)  # what a queue and a function take until a poller steps
EARLY = timedelta(minutes=1)  # bursts are fired from then on
MANY = 200  # timers of one place, from which on it is more than one poller's side work


class Call(NamedTuple):
    places: tuple[Place, ...]
    at: datetime


class Caller(Protocol):
    def call(self, places: Sequence[Place], at: datetime) -> None:
        """Wake a poller for these, at `at` or a little before."""


def wake_at(soonest: datetime, count: int) -> datetime:
    """When a poller is to come for `count` timers: in time to fire them, and hardly earlier."""
    return soonest - (EARLY if count >= MANY else FIRE + START)
