"""Telemetry of a function: a structured log line for each event, and metrics in such lines."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from typing import Any, Protocol

METRIC_NAMESPACE = "Punctual"
ERROR_EVENTS = frozenset({"look_failed", "look_set_aside", "definition_missing"})


class Metric(StrEnum):
    """All metrics. Alarms and the dashboard take their names from here."""

    TICKS = "Ticks"
    WATERMARK_LAG = "WatermarkLag"
    DUE = "Due"
    DISPATCHED = "Dispatched"
    LATENESS = "Lateness"  # milliseconds from the due time to the claim
    STARTED = "Started"
    FINISHED = "Finished"
    FAILED = "Failed"
    RETRIED = "Retried"
    MISSED = "Missed"
    WEBHOOKS_GIVEN_UP = "WebhooksGivenUp"
    LIMITED = "Limited"  # runs delayed by a tenant's limit, counted each time
    DEAD_LETTERS = "DeadLetters"
    RECONCILER_FINDS = "ReconcilerFinds"
    LIST_LAG = "ListLag"  # milliseconds from a change of a job to its row in the list
    LIST_ROWS_REPAIRED = "ListRowsRepaired"


_METRIC_UNITS = {
    Metric.WATERMARK_LAG: "Seconds",
    Metric.LATENESS: "Milliseconds",
    Metric.LIST_LAG: "Milliseconds",
}


class Telemetry(Protocol):
    def __call__(self, event: str, /, **fields: Any) -> None:
        """Log an event with a fixed name, and job_id, run_id, attempt and tenant if known."""

    def error(self, event: str, /, **fields: Any) -> None:
        """Log an event that needs action."""

    def metric(self, metric: Metric, value: float = 1) -> None: ...

    def invocation(self) -> Any:
        """Return a context for one invocation. It writes the metrics at its end."""


def engine_log(telemetry: Telemetry) -> Callable[..., None]:
    """Return a log function for the engine. It logs grave events as errors."""

    def log(event: str, /, **fields: Any) -> None:
        (telemetry.error if event in ERROR_EVENTS else telemetry)(event, **fields)

    return log


class _StandardOutput(logging.StreamHandler[Any]):
    """Writes to the present standard output.

    Powertools keeps a logger by name longer than its creator, so standard output may change.
    """

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    @property
    def stream(self) -> Any:
        return sys.stdout

    @stream.setter
    def stream(self, _stream: Any) -> None: ...


@cache
def _output_handler(_service: str) -> _StandardOutput:
    """Return one handler for each logger. Powertools looks up the handler of an earlier logger."""
    return _StandardOutput()


class PowertoolsTelemetry:
    """Logs and counts with Powertools. `has_metrics` is false on a stage without metrics."""

    def __init__(self, service: str, stage: str, has_metrics: bool = True) -> None:
        from aws_lambda_powertools import Logger

        # Omit the source location, since log lines cost by the byte.
        self._logger = Logger(
            service=service,
            location=None,
            log_uncaught_exceptions=False,
            logger_handler=_output_handler(service),
        )
        self._logger.append_keys(stage=stage)
        self._metrics: Any = None
        if has_metrics:
            # `Metrics` shares its state across the process, `EphemeralMetrics` does not.
            from aws_lambda_powertools.metrics import EphemeralMetrics

            self._metrics = EphemeralMetrics(namespace=METRIC_NAMESPACE, service=service)
            self._metrics.set_default_dimensions(stage=stage)

    def __call__(self, event: str, /, **fields: Any) -> None:
        self._logger.info(event, extra=fields)

    def error(self, event: str, /, **fields: Any) -> None:
        self._logger.error(event, extra=fields)

    def metric(self, metric: Metric, value: float = 1) -> None:
        if self._metrics is not None:
            self._metrics.add_metric(
                name=metric.value, unit=_METRIC_UNITS.get(metric, "Count"), value=value
            )

    @contextmanager
    def invocation(self) -> Iterator[None]:
        try:
            yield
        finally:
            if self._metrics is not None and self._metrics.metric_set:
                self._metrics.flush_metrics()
