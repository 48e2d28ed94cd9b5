"""What a function tells: one structured line an event, and metrics that ride on such lines."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any, Protocol

NAMESPACE = "Punctual"
GRAVE = frozenset({"look_failed", "look_set_aside", "definition_missing"})


class Metric(StrEnum):
    """Every metric there is; alarms and the dashboard take their names from here."""

    TICKS = "Ticks"
    WATERMARK_LAG = "WatermarkLag"  # seconds
    DUE = "Due"
    DISPATCHED = "Dispatched"
    LATENESS = "Lateness"  # milliseconds, at pick-up
    STARTED = "Started"
    FINISHED = "Finished"
    FAILED = "Failed"
    RETRIED = "Retried"
    MISSED = "Missed"
    WEBHOOKS_GIVEN_UP = "WebhooksGivenUp"
    LIMITED = "Limited"  # runs that a tenant's limit held back, once for each time
    DEAD_LETTERS = "DeadLetters"
    RECONCILER_FINDS = "ReconcilerFinds"


_UNITS = {Metric.WATERMARK_LAG: "Seconds", Metric.LATENESS: "Milliseconds"}


class Telemetry(Protocol):
    def __call__(self, event: str, /, **fields: Any) -> None:
        """Something happened: a fixed name, and job_id, run_id, attempt, tenant where it has."""

    def problem(self, event: str, /, **fields: Any) -> None:
        """Something happened that a person should look at."""

    def measure(self, metric: Metric, value: float = 1) -> None: ...

    def told(self) -> Any:
        """A context for one invocation: what was measured in it is written at its end."""


def of_engine(tell: Telemetry) -> Callable[..., None]:
    """The engine tells all alike: here, what a person should look at is a problem."""

    def log(event: str, /, **facts: Any) -> None:
        (tell.problem if event in GRAVE else tell)(event, **facts)

    return log


class _StandardOutput(logging.StreamHandler[Any]):
    """A logger outlives who made it, by its name: it writes to what standard output is by then."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, _stream: Any) -> None: ...


@cache
def _output(_service: str) -> _StandardOutput:
    """One a logger: powertools looks for what it gave the logger of this name before."""
    return _StandardOutput()


class PowertoolsTelemetry:
    """Powertools' Logger and Metrics; `measured` is off where a stage does not pay for metrics."""

    def __init__(self, service: str, stage: str, measured: bool = True) -> None:
        from aws_lambda_powertools import Logger

        # Where in our code a line was written says nothing here, and lines cost by the byte.
        self._logger = Logger(
            service=service,
            location=None,
            log_uncaught_exceptions=False,
            logger_handler=_output(service),
        )
        self._logger.append_keys(stage=stage)
        self._metrics: Any = None
        if measured:
            # `Metrics` shares what it holds with all others of the process.
            from aws_lambda_powertools.metrics import EphemeralMetrics

            self._metrics = EphemeralMetrics(namespace=NAMESPACE, service=service)
            self._metrics.set_default_dimensions(stage=stage)

    def __call__(self, event: str, /, **fields: Any) -> None:
        self._logger.info(event, extra=fields)

    def problem(self, event: str, /, **fields: Any) -> None:
        self._logger.error(event, extra=fields)

    def measure(self, metric: Metric, value: float = 1) -> None:
        if self._metrics is not None:
            self._metrics.add_metric(
                name=metric.value, unit=_UNITS.get(metric, "Count"), value=value
            )

    @contextmanager
    def told(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._metrics is not None and self._metrics.metric_set:
                self._metrics.flush_metrics()
