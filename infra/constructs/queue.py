"""The queues: due runs by lane and priority, wake-ups, and failures."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config.stage import SHARED_QUEUE, Stage
from infra.nag_suppressions import acknowledge

FAILURE_RETENTION = Duration.days(14)
"""The longest retention of SQS: an operator has two weeks to look."""

WAKE_UP_RETENTION = Duration.hours(1)
"""An old wake-up is useless. The planner sends another one with its next tick."""

MAX_RUN_MESSAGE_RECEIVES = 50
"""A duplicate of a message for a run of 900 s returns with each lease, every 20 s: 45 times.
The job state counts claims to find poison; this limit only ends unreadable messages."""

MAX_WAKE_UP_RECEIVES = 5

OPERATION_MESSAGE_RETENTION = Duration.hours(4)
"""A waiting operation gets another message from the planner every minute."""

MAX_OPERATION_MESSAGE_RECEIVES = 10
"""More than the tries after which an item is given up, also if each try ends the function."""

DEAD_LETTER_VISIBILITY = Duration.seconds(270)
"""The visibility timeout of dead letters: longer than the timeout of the function that reads them,
and shorter than its interval of 300 s."""


@dataclass(frozen=True, slots=True)
class LaneShape:
    """Batch size, visibility timeout (`hidden`) and function timeout (`timeout_seconds`) of a lane.

    AWS requires `timeout_seconds` to be at most `hidden`. A quick run may take 300 s. The executor
    sets a visibility timeout of 30 s itself, so that a message returns soon after a crash
    (docs/decisions/0009-executor-functions.md).
    """

    batch_size: int
    visibility_seconds: int
    timeout_seconds: int


LANE_SHAPES = {
    "quick": LaneShape(batch_size=10, visibility_seconds=330, timeout_seconds=330),
    "long": LaneShape(batch_size=1, visibility_seconds=960, timeout_seconds=900),
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
        self.dead_letter_queue = self._fifo("Dead", stage.resource_name(f"{self.name}-dead.fifo"))
        _acknowledge_last_queue(self.dead_letter_queue)
        self.queue = self._fifo(
            "Queue",
            stage.resource_name(f"{self.name}.fifo"),
            visibility_timeout=Duration.seconds(LANE_SHAPES[lane].visibility_seconds),
            dead_letter_queue=self.dead_letter_queue,
        )

    def _fifo(
        self,
        construct_id: str,
        name: str,
        visibility_timeout: Duration | None = None,
        dead_letter_queue: sqs.Queue | None = None,
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
            visibility_timeout=visibility_timeout or DEAD_LETTER_VISIBILITY,
            retention_period=FAILURE_RETENTION if dead_letter_queue is None else Duration.days(4),
            dead_letter_queue=None
            if dead_letter_queue is None
            else sqs.DeadLetterQueue(
                queue=dead_letter_queue, max_receive_count=MAX_RUN_MESSAGE_RECEIVES
            ),
        )


@dataclass(frozen=True, slots=True)
class DelayQueueShape:
    """The name of a standard queue, and how long and how often it keeps a message."""

    name: str
    retention: Duration
    max_receives: int


WAKE_UP_QUEUE = DelayQueueShape("wake", WAKE_UP_RETENTION, MAX_WAKE_UP_RECEIVES)
OPERATION_QUEUE = DelayQueueShape(
    "operations", OPERATION_MESSAGE_RETENTION, MAX_OPERATION_MESSAGE_RECEIVES
)


class DelayQueue(Construct):
    """A standard queue, because FIFO queues cannot delay one message, with its dead letters."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        shape: DelayQueueShape,
        visibility_timeout: Duration,
    ) -> None:
        super().__init__(scope, construct_id)
        self.dead_letter_queue = create_failure_queue(
            self, "Dead", stage.resource_name(f"{shape.name}-dead")
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=stage.resource_name(shape.name),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            visibility_timeout=visibility_timeout,
            retention_period=shape.retention,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letter_queue, max_receive_count=shape.max_receives
            ),
        )


def create_failure_queue(scope: Construct, construct_id: str, name: str) -> sqs.Queue:
    """Return a queue in which failures wait for an operator."""
    queue = sqs.Queue(
        scope,
        construct_id,
        queue_name=name,
        encryption=sqs.QueueEncryption.SQS_MANAGED,
        enforce_ssl=True,
        retention_period=FAILURE_RETENTION,
    )
    _acknowledge_last_queue(queue)
    return queue


def _acknowledge_last_queue(queue: sqs.Queue) -> None:
    reason = "It is itself the queue of failed messages."
    acknowledge(queue, reason, "Serverless-SQSRedrivePolicy", "AwsSolutions-SQS3")
