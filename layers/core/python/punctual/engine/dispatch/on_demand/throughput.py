"""The speed of pollers, by their share of a processor."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

_ONE_SECOND = timedelta(seconds=1)


class Throughput(NamedTuple):
    """Recurring jobs fired and messages sent in a second."""

    fired_per_second: float
    sent_per_second: float

    def scaled(self, core_share: float) -> "Throughput":
        """Return the pace with this share of a processor.

        >>> Throughput(800, 6_400).scaled(0.125)
        Pace(fired=100.0, sent=800.0)
        """
        return Throughput(self.fired_per_second * core_share, self.sent_per_second * core_share)


# `make bench-poller`: 1.2 ms of a processor for each job, mostly for one swap. Threads add nothing.
CORE_THROUGHPUT = Throughput(833, 6_900)
SLOWEST_THROUGHPUT = CORE_THROUGHPUT.scaled(
    0.145
)  # for callers of unknown pollers: 256 MB of the 1,769 MB of a core


def begin_at(due_times: Sequence[datetime], throughput: Throughput) -> datetime:
    """Return when to begin, so that each second's runs are fired and sent before its first one."""
    times_by_second: dict[datetime, list[datetime]] = {}
    for at in due_times:
        times_by_second.setdefault(at.replace(microsecond=0), []).append(at)
    begin_time, run_count = min(due_times), 0
    time_per_run = _ONE_SECOND * (1 / throughput.fired_per_second + 1 / throughput.sent_per_second)
    for _, times in sorted(times_by_second.items()):
        run_count += len(times)
        begin_time = min(begin_time, min(times) - time_per_run * run_count)
    return begin_time
