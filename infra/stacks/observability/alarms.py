"""The alarms, each with its section in docs/runbook.md.

A failed run raises no alarm. The tenant can ask for notifications.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config.stage import EXECUTOR_FUNCTIONS, Stage
from infra.stacks.observability.metrics import (
    MAXIMUM_STATISTIC,
    OPERATOR_QUEUES,
    Metrics,
    WatchedResources,
)
from punctual.lambdas.telemetry import Metric

RUNBOOK_PAGE = "docs/runbook.md"

MAX_LATENESS_MS = 2_000  # the aim of the architecture
MAX_WATERMARK_LAG_SECONDS = 300  # a healthy watermark is two to four minutes behind
MAX_STREAM_AGE_MS = 60_000
MAX_LIST_LAG_MS = 10_000  # the promise of the API for lists over all jobs
MAX_MESSAGE_AGE_SECONDS = {"quick": 60, "long": 300}  # by lane
MAX_LOW_MESSAGE_AGE_SECONDS = 600  # runs of low priority may wait
INFREQUENT_FUNCTIONS = ("reconciler", "dead-letters")  # started every hour and every five minutes
MAX_WAKEUP_AGE_SECONDS = 1_200  # SQS delays by up to 900 s, and a poller works for up to 180 s
MAX_OPERATION_MESSAGE_AGE_SECONDS = 1_800  # SQS delays by up to 900 s, and operations take turns
MAX_RESERVATION_SHARE = 0.8  # of the reserved executions of a function
MAX_SCRIPT_FUNCTION_SECONDS = 870  # a script has 840 s, and Lambda ends the function after 900 s
MAX_FUNCTION_SECONDS = {"claims": 26, "containers": 108}  # nine tenths of their timeouts

MESSAGE_TEXTS = {"wake": "A wake-up of a poller", "operations": "The next part of an operation"}

IS_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
IS_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
IS_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
MISSING_DATA_IS_GOOD = cloudwatch.TreatMissingData.NOT_BREACHING
MISSING_DATA_IS_BAD = cloudwatch.TreatMissingData.BREACHING


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """The condition of an alarm.

    It rings if `breaching_minutes` of the last `evaluated_minutes` exceed the threshold.
    """

    kind: str
    subject: str  # follows the kind in the name; empty if there is only one
    meaning: str
    metric: cloudwatch.IMetric
    threshold: float
    breaching_minutes: int = 3
    evaluated_minutes: int = 3
    comparison: cloudwatch.ComparisonOperator = IS_AT_LEAST
    missing_data: cloudwatch.TreatMissingData = MISSING_DATA_IS_GOOD

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.subject}" if self.subject else self.kind

    @property
    def section(self) -> str:
        return f"{RUNBOOK_PAGE}#{self.kind}"


class Alarms(Construct):
    """The alarms of the kinds that the stage chose; each notifies the topic."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        watched: WatchedResources,
        topic: sns.ITopic,
    ) -> None:
        super().__init__(scope, construct_id)
        action = actions.SnsAction(topic)
        self.alarms: list[cloudwatch.Alarm] = []
        for rule in alarm_rules(Metrics(stage), watched, stage.reserved):
            if rule.kind in stage.alarms:
                alarm = self._alarm(stage, rule)
                alarm.add_alarm_action(action)
                alarm.add_ok_action(action)
                self.alarms.append(alarm)

    def _alarm(self, stage: Stage, rule: AlarmRule) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            rule.name.replace(".fifo", ""),
            alarm_name=stage.resource_name(rule.name.replace(".fifo", "")),
            alarm_description=f"{rule.meaning} See {rule.section}",
            metric=_without_label(rule.metric),
            threshold=rule.threshold,
            comparison_operator=rule.comparison,
            evaluation_periods=rule.evaluated_minutes,
            datapoints_to_alarm=rule.breaching_minutes,
            treat_missing_data=rule.missing_data,
        )


def _without_label(metric: cloudwatch.IMetric) -> cloudwatch.IMetric:
    """Return the metric without its label. With a label, CDK writes a formula."""
    if not isinstance(metric, cloudwatch.Metric):
        return metric
    return cloudwatch.Metric(
        namespace=metric.namespace,
        metric_name=metric.metric_name,
        dimensions_map=metric.dimensions,
        statistic=metric.statistic,
        period=metric.period,
    )


def alarm_rules(
    metrics: Metrics, watched: WatchedResources, reserved: Mapping[str, int]
) -> Iterator[AlarmRule]:
    """Yield the rules of all kinds, in the order of the dashboard.

    `reserved` has the reserved executions by function.
    """
    yield from _punctuality_rules(metrics)
    yield from _backlog_rules(metrics, watched)
    yield from _leftover_rules(metrics, watched)
    yield from _failure_rules(metrics, watched)
    yield from _script_function_rules(metrics, watched)
    yield from _capacity_rules(metrics, watched, reserved)


def _punctuality_rules(metrics: Metrics) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "no-tick",
        "",
        "No tick of the planner succeeded for three minutes. Soon no new run starts.",
        metrics.ticks(),
        threshold=1,
        comparison=IS_BELOW,
        missing_data=MISSING_DATA_IS_BAD,
    )
    for service in EXECUTOR_FUNCTIONS:
        lane = service.removeprefix("executor-")
        yield AlarmRule(
            "lateness",
            lane,
            f"One in a hundred runs of the {lane} lane starts over 2 seconds late.",
            metrics.own_metric(Metric.LATENESS, service, "p99"),
            threshold=MAX_LATENESS_MS,
            breaching_minutes=3,
            evaluated_minutes=5,
            comparison=IS_ABOVE,
        )
    yield AlarmRule(
        "watermark",
        "",
        "Buckets are not done five minutes after their end. Runs are missing.",
        metrics.own_metric(Metric.WATERMARK_LAG, "planner", MAXIMUM_STATISTIC),
        threshold=MAX_WATERMARK_LAG_SECONDS,
        comparison=IS_ABOVE,
    )


def _backlog_rules(metrics: Metrics, watched: WatchedResources) -> Iterator[AlarmRule]:
    max_age_seconds = {
        f"{name}.fifo": MAX_LOW_MESSAGE_AGE_SECONDS
        if name.endswith("-low")
        else MAX_MESSAGE_AGE_SECONDS[lane]
        for name, lane in watched.lanes.items()
    }
    max_age_seconds["wake"] = MAX_WAKEUP_AGE_SECONDS
    max_age_seconds["operations"] = MAX_OPERATION_MESSAGE_AGE_SECONDS
    for queue in watched.queues:
        message_text = MESSAGE_TEXTS.get(queue, "A due run")
        yield AlarmRule(
            "oldest-message",
            queue,
            f"{message_text} has been in the queue for over {max_age_seconds[queue]} seconds.",
            metrics.queue(queue, "ApproximateAgeOfOldestMessage", MAXIMUM_STATISTIC),
            threshold=max_age_seconds[queue],
            comparison=IS_ABOVE,
        )
    yield AlarmRule(
        "stream-age",
        "",
        "Lists of runs, counts and events on the bus are over a minute behind.",
        metrics.function("status", "IteratorAge", MAXIMUM_STATISTIC),
        threshold=MAX_STREAM_AGE_MS,
        comparison=IS_ABOVE,
    )
    yield AlarmRule(
        "list-lag",
        "",
        "A changed job showed in the list of jobs after more than 10 seconds.",
        metrics.own_metric(Metric.LIST_LAG, "status", MAXIMUM_STATISTIC),
        threshold=MAX_LIST_LAG_MS,
        comparison=IS_ABOVE,
    )


def _leftover_rules(metrics: Metrics, watched: WatchedResources) -> Iterator[AlarmRule]:
    for queue in watched.dead_letter_queues:
        is_for_operator = queue in OPERATOR_QUEUES
        yield AlarmRule(
            "dead-letters",
            queue.replace("-dead", ""),
            "A message that failed repeatedly waits here for an operator."
            if is_for_operator
            else "A message was received too often. Its run ends as FAILED.",
            metrics.queue(queue, "ApproximateNumberOfMessagesVisible", MAXIMUM_STATISTIC)
            if is_for_operator
            else metrics.dead_letter_count(queue),
            threshold=1,
            breaching_minutes=1,
            evaluated_minutes=5,
        )
    yield AlarmRule(
        "reconciler",
        "",
        "The daily walk found jobs without a timer, or timers behind the watermark.",
        metrics.own_metric(Metric.RECONCILER_FINDS, "reconciler").with_(period=Duration.hours(1)),
        threshold=1,
        breaching_minutes=1,
        evaluated_minutes=1,
    )


def _failure_rules(metrics: Metrics, watched: WatchedResources) -> Iterator[AlarmRule]:
    """Yield a rule for each function.

    Lambda retries, so the alarm needs failures in three of ten minutes.
    """
    for name in watched.functions:
        yield from _function_rules(metrics, name)
    for name, table in watched.tables.items():
        yield AlarmRule(
            "table-throttles",
            name,
            f"DynamoDB throttles reads or writes of the {name} table.",
            metrics.table_throttles(table, name),
            threshold=1,
            breaching_minutes=3,
            evaluated_minutes=10,
        )
    yield AlarmRule(
        "api-5xx",
        "",
        "Calls of the API fail with a server error.",
        metrics.api(watched.api, "5xx"),
        threshold=1,
        breaching_minutes=3,
        evaluated_minutes=10,
    )


def _function_rules(metrics: Metrics, name: str) -> Iterator[AlarmRule]:
    # An infrequent function raises the alarm after one failure.
    breaching_minutes, evaluated_minutes = (1, 1) if name in INFREQUENT_FUNCTIONS else (3, 10)
    yield AlarmRule(
        "errors",
        name,
        f"The function {name} fails: it crashes, or exceeds its time or memory.",
        metrics.function(name, "Errors"),
        threshold=1,
        breaching_minutes=breaching_minutes,
        evaluated_minutes=evaluated_minutes,
    )
    yield AlarmRule(
        "throttles",
        name,
        f"Lambda throttles {name}: no concurrency is left for it.",
        metrics.function(name, "Throttles"),
        threshold=1,
        breaching_minutes=breaching_minutes,
        evaluated_minutes=evaluated_minutes,
    )


def _script_function_rules(metrics: Metrics, watched: WatchedResources) -> Iterator[AlarmRule]:
    """Yield the rules of the functions that run scripts. A script that fails raises no alarm."""
    for name in watched.script_functions:
        yield from _function_rules(metrics, name)
        yield AlarmRule(
            "dropped-events",
            name,
            f"Lambda accepted scripts for {name} and did not run them. Their runs start again.",
            metrics.function(name, "AsyncEventsDropped"),
            threshold=1,
            breaching_minutes=3,
            evaluated_minutes=10,
        )


def _capacity_rules(
    metrics: Metrics, watched: WatchedResources, reserved: Mapping[str, int]
) -> Iterator[AlarmRule]:
    """Yield the rules of functions that are close to their reservation or their timeout.

    They are the functions of scripts and of external executors. Other functions have queues.
    """
    seconds_by_function = {
        **dict.fromkeys(watched.script_functions, MAX_SCRIPT_FUNCTION_SECONDS),
        **{
            name: MAX_FUNCTION_SECONDS[name]
            for name in watched.functions
            if name in MAX_FUNCTION_SECONDS
        },
    }
    for name, seconds in seconds_by_function.items():
        if name in reserved:
            yield AlarmRule(
                "concurrency",
                name,
                f"The function {name} uses most of its {reserved[name]} reserved executions.",
                metrics.function(name, "ConcurrentExecutions", MAXIMUM_STATISTIC),
                threshold=math.ceil(MAX_RESERVATION_SHARE * reserved[name]),
            )
        yield AlarmRule(
            "duration",
            name,
            f"The function {name} took over {seconds} seconds. Lambda soon ends it by its timeout.",
            metrics.function(name, "Duration", MAXIMUM_STATISTIC),
            threshold=seconds * 1000,
            breaching_minutes=1,
            evaluated_minutes=1,
            comparison=IS_ABOVE,
        )
