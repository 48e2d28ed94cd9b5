"""How fast pollers work, by the share of a processor that they have."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

_SECOND = timedelta(seconds=1)


class Pace(NamedTuple):
    """A second: recurring jobs that are fired, messages that are sent."""

    fired: float
    sent: float

    def on(self, share: float) -> "Pace":
        """
        >>> Pace(800, 6_400).on(0.125)
        Pace(fired=100.0, sent=800.0)
        """
        return Pace(self.fired * share, self.sent * share)


# `make bench-poller`: 1.2 ms of a processor a job, most of it one swap; threads add nothing.
A_CORE = Pace(833, 6_900)
SLOWEST = A_CORE.on(0.145)  # for who cannot know a poller's: what 256 MB have of 1,769


def begin_at(moments: Sequence[datetime], pace: Pace) -> datetime:
    """When to begin so that whatever is due in a second is fired and sent before its first."""
    by_second: dict[datetime, list[datetime]] = {}
    for at in moments:
        by_second.setdefault(at.replace(microsecond=0), []).append(at)
    begin, work = min(moments), 0
    each = _SECOND * (1 / pace.fired + 1 / pace.sent)
    for _, some in sorted(by_second.items()):
        work += len(some)
        begin = min(begin, min(some) - each * work)
    return begin
