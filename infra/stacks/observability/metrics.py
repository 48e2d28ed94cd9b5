"""The metrics of alarms and dashboard: those of AWS, which are free, and Punctual's own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.config.stage import EXECUTOR_FUNCTIONS, Stage
from punctual.lambdas.telemetry import METRIC_NAMESPACE, Metric

METRIC_PERIOD = Duration.minutes(1)
SUM_STATISTIC, MAXIMUM_STATISTIC = "Sum", "Maximum"

EMITTING_FUNCTIONS: Mapping[Metric, tuple[str, ...]] = {
    Metric.TICKS: ("planner",),
    Metric.WATERMARK_LAG: ("planner",),
    Metric.DUE: ("poller",),
    Metric.DISPATCHED: ("poller",),
    Metric.MISSED: ("poller",),
    Metric.LATENESS: EXECUTOR_FUNCTIONS,
    Metric.STARTED: EXECUTOR_FUNCTIONS,
    Metric.FINISHED: EXECUTOR_FUNCTIONS,
    Metric.RETRIED: EXECUTOR_FUNCTIONS,
    Metric.FAILED: (*EXECUTOR_FUNCTIONS, "dead-letters"),
    Metric.DEAD_LETTERS: ("dead-letters",),
    Metric.RECONCILER_FINDS: ("reconciler",),
    Metric.LIST_LAG: ("status",),
    Metric.LIST_ROWS_REPAIRED: ("reconciler",),
    Metric.LIMITED: EXECUTOR_FUNCTIONS,
    Metric.WEBHOOKS_GIVEN_UP: ("executor-quick", "dead-letters"),
}
"""The functions that emit a metric: each has a series of its own, which is billed."""


@dataclass(frozen=True, slots=True)
class WatchedResources:
    """The watched resources, by name without the prefix of the stage.

    `lanes` maps a queue of runs to its lane; `tables` and `api` hold names by CloudFormation.
    `script_functions` run scripts. They write no logs.
    """

    functions: tuple[str, ...]
    script_functions: tuple[str, ...]
    lanes: Mapping[str, str]
    tables: Mapping[str, str]
    api: str

    @property
    def queues(self) -> tuple[str, ...]:
        """Return the queues of work."""
        return (*(f"{name}.fifo" for name in self.lanes), "wake", "operations")

    @property
    def dead_letter_queues(self) -> tuple[str, ...]:
        """Return the dead-letter queues. The queues that a function empties come first."""
        return (*(f"{name}-dead.fifo" for name in self.lanes), *OPERATOR_QUEUES)


OPERATOR_QUEUES = ("wake-dead", "operations-dead", "status-failed")


class Metrics:
    """Builder of metrics with labels for graphs."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def own_metric(
        self, metric: Metric, service: str, statistic: str = SUM_STATISTIC, label: str | None = None
    ) -> cloudwatch.Metric:
        """Return one of Punctual's own metrics, with its dimensions."""
        return cloudwatch.Metric(
            namespace=METRIC_NAMESPACE,
            metric_name=metric.value,
            dimensions_map={"service": service, "stage": self._stage.name},
            statistic=statistic,
            period=METRIC_PERIOD,
            label=label or f"{metric.value.lower()} {service}",
        )

    def own_sum(self, metric: Metric, label: str) -> cloudwatch.IMetric:
        """Return the sum over all functions that emit the metric."""
        services = EMITTING_FUNCTIONS[metric]
        ids = _series_ids(metric.value, *services)
        series = (self.own_metric(metric, service) for service in services)
        return _sum_expression(dict(zip(ids, series, strict=True)), label)

    def function(self, name: str, metric: str, statistic: str = SUM_STATISTIC) -> cloudwatch.Metric:
        return self._aws_metric(
            "Lambda", metric, {"FunctionName": self._stage.resource_name(name)}, statistic, name
        )

    def queue(self, name: str, metric: str, statistic: str = SUM_STATISTIC) -> cloudwatch.Metric:
        dimensions = {"QueueName": self._stage.resource_name(name)}
        return self._aws_metric("SQS", metric, dimensions, statistic, name)

    def table(self, table: str, label: str, metric: str) -> cloudwatch.Metric:
        return self._aws_metric("DynamoDB", metric, {"TableName": table}, SUM_STATISTIC, label)

    def api(self, api: str, metric: str, statistic: str = SUM_STATISTIC) -> cloudwatch.Metric:
        return self._aws_metric("ApiGateway", metric, {"ApiId": api}, statistic, metric)

    def ticks(self) -> cloudwatch.IMetric:
        """Return the successful ticks, from metrics of AWS."""
        return cloudwatch.MathExpression(
            expression="started - failed",
            using_metrics={
                "started": self.function("planner", "Invocations"),
                "failed": self.function("planner", "Errors"),
            },
            period=METRIC_PERIOD,
            label="successful ticks",
        )

    def dead_letter_count(self, queue: str) -> cloudwatch.IMetric:
        """Return the number of dead letters: received by the function, or in the queue."""
        received, visible = _series_ids(queue, "handed", "there")
        return cloudwatch.MathExpression(
            expression=f"{received} + {visible}",
            using_metrics={
                received: self.queue(queue, "NumberOfMessagesReceived"),
                visible: self.queue(queue, "ApproximateNumberOfMessagesVisible", MAXIMUM_STATISTIC),
            },
            period=METRIC_PERIOD,
            label=queue,
        )

    def table_throttles(self, table: str, label: str) -> cloudwatch.IMetric:
        reads, writes = _series_ids(label, "reads", "writes")
        return _sum_expression(
            {
                reads: self.table(table, label, "ReadThrottleEvents"),
                writes: self.table(table, label, "WriteThrottleEvents"),
            },
            label,
        )

    def _aws_metric(
        self, service: str, metric: str, dimensions: Mapping[str, str], statistic: str, label: str
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=f"AWS/{service}",
            metric_name=metric,
            dimensions_map=dict(dimensions),
            statistic=statistic,
            period=METRIC_PERIOD,
            label=label,
        )


def _series_ids(subject: str, *names: str) -> list[str]:
    """Return names for series of one graph, for use in its formulas.

    >>> _series_ids("quick-high-dead.fifo", "visible")
    ['visible_quick_high_dead_fifo']
    """
    return [re.sub(r"\W", "_", f"{name}_{subject}") for name in names]


def _sum_expression(metrics_by_id: dict[str, cloudwatch.IMetric], label: str) -> cloudwatch.IMetric:
    """Return a formula that counts a minute without data as zero."""
    return cloudwatch.MathExpression(
        expression=" + ".join(f"FILL({name}, 0)" for name in metrics_by_id),
        using_metrics=metrics_by_id,
        period=METRIC_PERIOD,
        label=label,
    )
