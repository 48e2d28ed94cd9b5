"""The log events and metrics of functions that a test calls directly."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from punctual.lambdas.telemetry import Metric


class RecordedTelemetry:
    """Keeps what functions log and measure, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.problems: list[tuple[str, dict[str, Any]]] = []
        self.measurements: list[tuple[Metric, float]] = []
        self.metrics: Counter[Metric] = Counter()
        self.latest: dict[Metric, float] = {}

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))

    def error(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))
        self.problems.append((event, fields))

    def metric(self, metric: Metric, value: float = 1) -> None:
        self.measurements.append((metric, value))
        self.metrics[metric] += int(value)
        self.latest[metric] = value

    @contextmanager
    def invocation(self) -> Iterator[None]:
        yield

    @property
    def infos(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the log events that report no problem."""
        return [event for event in self.events if event not in self.problems]

    @property
    def problem_names(self) -> list[str]:
        """Return the names of the problems."""
        return [event for event, _ in self.problems]

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]

    def count(self, metric: Metric) -> int:
        return sum(1 for recorded, _ in self.measurements if recorded is metric)
