"""The queues: due runs by lane and priority, wake-ups, and failures."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config.stage import SHARED_QUEUE, Stage
from infra.nag_suppressions import acknowledge

FAILURES_KEPT = Duration.days(14)
"""The longest retention of SQS: an operator has two weeks to look."""

WAKE_UPS_KEPT = Duration.hours(1)
"""An old wake-up is useless. The planner sends another one with its next tick."""

RECEIVED_AT_MOST = 50
"""A duplicate of a message for a run of 900 s comes back with each lease, every 20 s: 45 times.
The job state counts claims to find poison; this limit only ends unreadable messages."""

WOKEN_AT_MOST = 5

ONE_ROUND = Duration.seconds(270)
"""The visibility timeout of dead letters: longer than the timeout of the function that reads them,
and shorter than its interval of 300 s."""


@dataclass(frozen=True, slots=True)
class LaneShape:
    """Batch size, visibility timeout (`hidden`) and function timeout (`seconds`) of a lane.

    AWS requires `seconds` to be at most `hidden`. A quick run may take 300 s. The executor sets a
    visibility timeout of 30 s itself, so that a message returns soon after a crash
    (docs/decisions/0009-executor-functions.md).
    """

    batch: int
    hidden: int
    seconds: int


LANE_SHAPES = {
    "quick": LaneShape(batch=10, hidden=330, seconds=330),
    "long": LaneShape(batch=1, hidden=960, seconds=900),
}


class Lane(Construct):
    """A FIFO queue of due runs, with its dead-letter queue."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: Stage, lane: str, priority: str
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = lane if priority == SHARED_QUEUE else f"{lane}-{priority}"
        self.lane = lane
        self.executors = stage.lanes[lane][priority]
        self.dead = self._fifo("Dead", stage.physical(f"{self.name}-dead.fifo"))
        _is_the_last(self.dead)
        self.queue = self._fifo(
            "Queue",
            stage.physical(f"{self.name}.fifo"),
            hidden=Duration.seconds(LANE_SHAPES[lane].hidden),
            dead=self.dead,
        )

    def _fifo(
        self,
        construct_id: str,
        name: str,
        hidden: Duration | None = None,
        dead: sqs.Queue | None = None,
    ) -> sqs.Queue:
        return sqs.Queue(
            self,
            construct_id,
            queue_name=name,
            fifo=True,
            # High throughput: SQS allows 300 calls a second for each message group.
            deduplication_scope=sqs.DeduplicationScope.MESSAGE_GROUP,
            fifo_throughput_limit=sqs.FifoThroughputLimit.PER_MESSAGE_GROUP_ID,
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=hidden or ONE_ROUND,
            retention_period=FAILURES_KEPT if dead is None else Duration.days(4),
            dead_letter_queue=None
            if dead is None
            else sqs.DeadLetterQueue(queue=dead, max_receive_count=RECEIVED_AT_MOST),
        )


class Wake(Construct):
    """The queue of wake-ups: a standard queue, because FIFO queues cannot delay one message."""

    def __init__(
        self, scope: Construct, construct_id: str, *, stage: Stage, hidden: Duration
    ) -> None:
        super().__init__(scope, construct_id)
        self.dead = failures(self, "Dead", stage.physical("wake-dead"))
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=stage.physical("wake"),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=hidden,
            retention_period=WAKE_UPS_KEPT,
            dead_letter_queue=sqs.DeadLetterQueue(queue=self.dead, max_receive_count=WOKEN_AT_MOST),
        )


def failures(scope: Construct, construct_id: str, name: str) -> sqs.Queue:
    """Return a queue in which failures wait for an operator."""
    queue = sqs.Queue(
        scope,
        construct_id,
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=FAILURES_KEPT,
    )
    _is_the_last(queue)
    return queue


def _is_the_last(queue: sqs.Queue) -> None:
    why = "It holds what failed elsewhere: nothing comes behind it."
    acknowledge(queue, why, "Serverless-SQSRedrivePolicy", "AwsSolutions-SQS3")
