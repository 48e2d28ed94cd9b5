"""Durations in a deployed world: deliveries, calls, cold starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle

from bench.cost.accounts import call_seconds
from bench.cost.prices import prices

# Delays of queues and warm functions, used in turn. Most are short.
DELIVERIES = (0.03, 0.05, 0.04, 0.12, 0.02, 0.06, 0.08)


@dataclass
class Latency:
    """Delays of a world. Calls of the functions in `slow` take their billed time."""

    deliveries: Sequence[float] = DELIVERIES
    slow: Sequence[str] = ()
    first: Mapping[str, float] = field(default_factory=dict)  # startup seconds of a new environment

    def __post_init__(self) -> None:
        self._deliveries = cycle(self.deliveries)

    def delivery(self) -> timedelta:
        return timedelta(seconds=next(self._deliveries))

    def start(self, name: str) -> timedelta:
        """Return the startup time of a new environment of this function."""
        startup_seconds = [seconds for short, seconds in self.first.items() if name.endswith(short)]
        return timedelta(seconds=sum(startup_seconds))

    def call(self, name: str, memory: int) -> float:
        """Return the seconds of a call by this function."""
        return call_seconds(memory, prices()) if name.endswith(tuple(self.slow)) else 0


NONE = Latency(deliveries=(0,))
