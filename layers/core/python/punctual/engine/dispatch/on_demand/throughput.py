"""The speed of pollers, by their share of a processor."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

_SECOND = timedelta(seconds=1)


class Pace(NamedTuple):
    """Recurring jobs fired and messages sent in a second."""

    fired: float
    sent: float

    def on(self, share: float) -> "Pace":
        """Return the pace with this share of a processor.

        >>> Pace(800, 6_400).on(0.125)
        Pace(fired=100.0, sent=800.0)
        """
        return Pace(self.fired * share, self.sent * share)


# `make bench-poller`: 1.2 ms of a processor for each job, mostly for one swap. Threads add nothing.
A_CORE = Pace(833, 6_900)
SLOWEST = A_CORE.on(0.145)  # for callers of unknown pollers: 256 MB of the 1,769 MB of a core


def begin_at(moments: Sequence[datetime], pace: Pace) -> datetime:
    """Return when to begin, so that each second's runs are fired and sent before its first one."""
    by_second: dict[datetime, list[datetime]] = {}
    for at in moments:
        by_second.setdefault(at.replace(microsecond=0), []).append(at)
    begin, work = min(moments), 0
    each = _SECOND * (1 / pace.fired + 1 / pace.sent)
    for _, some in sorted(by_second.items()):
        work += len(some)
        begin = min(begin, min(some) - each * work)
    return begin
