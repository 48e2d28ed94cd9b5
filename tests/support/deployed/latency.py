"""How long things take in a world where they take time: deliveries, calls, first starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import cycle

from bench.accounts import call_seconds
from bench.prices import prices

# Of queues and warm functions, one after another: most are quick, some are not.
DELIVERIES = (0.03, 0.05, 0.04, 0.12, 0.02, 0.06, 0.08)


@dataclass
class Latency:
    """`slow`: functions, by their short names, whose calls take the time that they are billed."""

    deliveries: Sequence[float] = DELIVERIES
    slow: Sequence[str] = ()
    first: Mapping[str, float] = field(default_factory=dict)  # seconds of a new environment

    def __post_init__(self) -> None:
        self._deliveries = cycle(self.deliveries)

    def delivery(self) -> timedelta:
        return timedelta(seconds=next(self._deliveries))

    def start(self, name: str) -> timedelta:
        """Until a new environment of this function sees its event."""
        found = [seconds for short, seconds in self.first.items() if name.endswith(short)]
        return timedelta(seconds=sum(found))

    def call(self, name: str, memory: int) -> float:
        """Seconds that a call of this function's takes."""
        return call_seconds(memory, prices()) if name.endswith(tuple(self.slow)) else 0


NONE = Latency(deliveries=(0,))
