"""The alarms, each with its section in docs/runbook.md.

A failed run raises no alarm. The tenant can ask for notifications.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.config.stage import EXECUTOR_FUNCTIONS, Stage
from infra.stacks.observability.metrics import (
    KEPT_FOR_A_PERSON,
    MAXIMUM,
    Metrics,
    Watched,
)
from punctual.lambdas.telemetry import Metric

ALARM_PAGE = "docs/runbook.md"

MAX_LATENESS_MS = 2_000  # the aim of the architecture
MAX_WATERMARK_LAG_SECONDS = 300  # a healthy watermark is two to four minutes behind
MAX_STREAM_AGE_MS = 60_000
MAX_MESSAGE_AGE_SECONDS = {"quick": 60, "long": 300}  # by lane
MAX_LOW_MESSAGE_AGE_SECONDS = 600  # runs of low priority may wait
INFREQUENT_FUNCTIONS = ("reconciler", "dead-letters")  # started every hour and every five minutes
MAX_WAKEUP_AGE_SECONDS = 1_200  # SQS delays by up to 900 s, and a poller works for up to 180 s

IS_AT_LEAST = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
IS_ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
IS_BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
SILENCE_IS_GOOD = cloudwatch.TreatMissingData.NOT_BREACHING
SILENCE_IS_BAD = cloudwatch.TreatMissingData.BREACHING


@dataclass(frozen=True, slots=True)
class Rule:
    """The condition of an alarm: `after` of the last `of` minutes are beyond the threshold."""

    kind: str
    about: str  # follows the kind in the name; empty if there is only one
    meaning: str
    metric: cloudwatch.IMetric
    beyond: float
    after: int = 3
    of: int = 3
    compare: cloudwatch.ComparisonOperator = IS_AT_LEAST
    silence: cloudwatch.TreatMissingData = SILENCE_IS_GOOD

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.about}" if self.about else self.kind

    @property
    def section(self) -> str:
        return f"{ALARM_PAGE}#{self.kind}"


class Alarms(Construct):
    """The alarms of the kinds that the stage chose; each notifies the topic."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        watched: Watched,
        topic: sns.ITopic,
    ) -> None:
        super().__init__(scope, construct_id)
        told = actions.SnsAction(topic)
        self.every: list[cloudwatch.Alarm] = []
        for rule in rules(Metrics(stage), watched):
            if rule.kind in stage.alarms:
                alarm = self._alarm(stage, rule)
                alarm.add_alarm_action(told)
                alarm.add_ok_action(told)
                self.every.append(alarm)

    def _alarm(self, stage: Stage, rule: Rule) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            rule.name.replace(".fifo", ""),
            alarm_name=stage.physical(rule.name.replace(".fifo", "")),
            alarm_description=f"{rule.meaning} What to do: {rule.section}",
            metric=_unlabelled(rule.metric),
            threshold=rule.beyond,
            comparison_operator=rule.compare,
            evaluation_periods=rule.of,
            datapoints_to_alarm=rule.after,
            treat_missing_data=rule.silence,
        )


def _unlabelled(metric: cloudwatch.IMetric) -> cloudwatch.IMetric:
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


def rules(metrics: Metrics, watched: Watched) -> Iterator[Rule]:
    """Yield the rules of all kinds, in the order of the dashboard."""
    yield from _on_time(metrics)
    yield from _keeping_up(metrics, watched)
    yield from _left_over(metrics, watched)
    yield from _failing(metrics, watched)


def _on_time(metrics: Metrics) -> Iterator[Rule]:
    yield Rule(
        "no-tick",
        "",
        "For three minutes no tick of the planner went well: soon nothing new will start.",
        metrics.ticks(),
        beyond=1,
        compare=IS_BELOW,
        silence=SILENCE_IS_BAD,
    )
    for service in EXECUTOR_FUNCTIONS:
        lane = service.removeprefix("executor-")
        yield Rule(
            "lateness",
            lane,
            f"One in a hundred runs of the {lane} lane starts over 2 seconds late.",
            metrics.own(Metric.LATENESS, service, "p99"),
            beyond=MAX_LATENESS_MS,
            after=3,
            of=5,
            compare=IS_ABOVE,
        )
    yield Rule(
        "watermark",
        "",
        "Minutes that are over by five minutes and more are not done: runs are missing.",
        metrics.own(Metric.WATERMARK_LAG, "planner", MAXIMUM),
        beyond=MAX_WATERMARK_LAG_SECONDS,
        compare=IS_ABOVE,
    )


def _keeping_up(metrics: Metrics, watched: Watched) -> Iterator[Rule]:
    patience = {
        f"{name}.fifo": MAX_LOW_MESSAGE_AGE_SECONDS
        if name.endswith("-low")
        else MAX_MESSAGE_AGE_SECONDS[lane]
        for name, lane in watched.lanes.items()
    }
    patience["wake"] = MAX_WAKEUP_AGE_SECONDS
    for queue in watched.queues:
        what = "A wake-up of a poller" if queue == "wake" else "A run that is due"
        yield Rule(
            "oldest-message",
            queue,
            f"{what} has stood in the queue for over {patience[queue]} seconds.",
            metrics.queue(queue, "ApproximateAgeOfOldestMessage", MAXIMUM),
            beyond=patience[queue],
            compare=IS_ABOVE,
        )
    yield Rule(
        "stream-age",
        "",
        "Lists of runs, counts and events on the bus are over a minute behind.",
        metrics.function("status", "IteratorAge", MAXIMUM),
        beyond=MAX_STREAM_AGE_MS,
        compare=IS_ABOVE,
    )


def _left_over(metrics: Metrics, watched: Watched) -> Iterator[Rule]:
    for queue in watched.dead:
        waits = queue in KEPT_FOR_A_PERSON
        yield Rule(
            "dead-letters",
            queue.replace("-dead", ""),
            "Something that failed again and again waits here for a person."
            if waits
            else "A message came back too often; its run is ended as FAILED.",
            metrics.queue(queue, "ApproximateNumberOfMessagesVisible", MAXIMUM)
            if waits
            else metrics.arrived(queue),
            beyond=1,
            after=1,
            of=5,
        )
    yield Rule(
        "reconciler",
        "",
        "The daily walk found jobs that nothing would have started, or timers left behind.",
        metrics.own(Metric.RECONCILER_FINDS, "reconciler").with_(period=Duration.hours(1)),
        beyond=1,
        after=1,
        of=1,
    )


def _failing(metrics: Metrics, watched: Watched) -> Iterator[Rule]:
    """Yield a rule for each function.

    Lambda retries, so the alarm needs failures in three of ten minutes.
    """
    for name in watched.functions:
        # An infrequent function raises the alarm after one failure.
        after, of = (1, 1) if name in INFREQUENT_FUNCTIONS else (3, 10)
        yield Rule(
            "errors",
            name,
            f"The function {name} fails: it crashes, or runs out of time or memory.",
            metrics.function(name, "Errors"),
            beyond=1,
            after=after,
            of=of,
        )
        yield Rule(
            "throttles",
            name,
            f"Lambda refuses to run {name}: no concurrency is left for it.",
            metrics.function(name, "Throttles"),
            beyond=1,
            after=after,
            of=of,
        )
    for name, table in watched.tables.items():
        yield Rule(
            "table-throttles",
            name,
            f"DynamoDB refuses reads or writes of the {name} table: too many at once.",
            metrics.table_throttles(table, name),
            beyond=1,
            after=3,
            of=10,
        )
    yield Rule(
        "api-5xx",
        "",
        "Calls of the API fail through no fault of who called.",
        metrics.api(watched.api, "5xx"),
        beyond=1,
        after=3,
        of=10,
    )
