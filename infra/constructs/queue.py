"""The queues: what is due by lane and priority, wake-ups, and what is kept of failures."""

from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.config.stage import SHARED_QUEUE, Stage
from infra.nag_suppressions import acknowledge

FAILURES_KEPT = Duration.days(14)
"""The longest that SQS keeps anything: a person has two weeks to look."""

WAKE_UPS_KEPT = Duration.hours(1)
"""A wake-up that nobody took is of no use: the planner sends another with its next tick."""

RECEIVED_AT_MOST = 50
"""A twin of a message whose run takes 900 s comes back with the end of each lease, every 20 s:
45 times. Poison is counted in claims, by the job's head; this only ends what cannot be read."""

WOKEN_AT_MOST = 5

ONE_ROUND = Duration.seconds(270)
"""A dead letter that could not be dealt with is hidden for longer than the function that reads
them may run, and seen again by its next round, after 300 s."""


@dataclass(frozen=True, slots=True)
class LaneShape:
    """How a lane is worked: messages a batch, and seconds until one is handed out again.

    `seconds`, the function's timeout, may not be longer than `hidden`: AWS refuses that.
    A quick run may take 300 s. The function itself hides what it works on for only 30 s, so that a
    crash brings it back soon (docs/decisions/0009-executor-functions.md).
    """

    batch: int
    hidden: int
    seconds: int


LANE_SHAPES = {
    "quick": LaneShape(batch=10, hidden=330, seconds=330),
    "long": LaneShape(batch=1, hidden=960, seconds=900),
}


class Lane(Construct):
    """One queue of runs that are due, and the dead-letter queue behind it; both FIFO."""

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
            # High throughput: 300 calls a second for each message group, not for the queue.
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
    """Wake-ups of pollers: a standard queue, for only there a message may be delayed."""

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
    """Where something that failed waits for a person."""
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
