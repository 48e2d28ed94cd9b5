"""The stack of execution: executors by lane, dead letters, status function."""

from dataclasses import replace

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from infra import iam
from infra.config.stage import LANE_NAMES, Stage
from infra.constructs.event_source import QueueSource, StreamSource
from infra.constructs.function import Function, Functions, Shape, pascal
from infra.constructs.parameters import secret_arn
from infra.constructs.queue import LANE_SHAPES, failures
from infra.constructs.schedule_rule import Clock
from infra.operations.webhook_key import WEBHOOK_KEY
from infra.stacks.data import Data
from infra.stacks.scheduling import Scheduling
from punctual.aws.dynamodb.control.counter_keys import HEADS_ONLY

# The functions of every stage. CDK names its own functions by the stack.
OWN_FUNCTION_NAMES = ("punctual-*", "Punctual-*")
DEAD_LETTER_QUEUE_NAMES = ("punctual-*-dead", "punctual-*-dead.fifo", "punctual-*-failed")
DESCRIPTIONS = {
    "quick": "Runs what takes seconds, ten at a time",
    "long": "Runs what takes up to 15 minutes, one at a time, and renews its claim",
}
NOTIFICATION_LANE = "quick"  # notifications go through the queues of this lane
ROUND = Duration.minutes(5)
NEXT_ROUND = "The next round finds what this one left, and an alarm says that letters arrived."
DEAD_LETTERS_SHAPE = Shape(
    "dead-letters",
    "dead_letters",
    "Ends the run of a message that came back too often, as FAILED, with the reason",
    seconds=240,
    without_dead_letters=NEXT_ROUND,
    # The next round, five minutes later, finds the rest.
    retries=0,
    oldest=ROUND,
)
STATUS_SHAPE = Shape(
    "status",
    "status",
    "Follows changes of jobs: lists of runs, events on the bus, and what a job left behind",
    seconds=60,
    without_dead_letters="The stream's source has a queue for what failed.",
)


class Execution(Stack):
    """The executors; `status_failed` holds positions of failed changes in the stream."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        data: Data,
        scheduling: Scheduling,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): executors, dead letters, status",
            termination_protection=stage.protects("Execution"),
        )
        make = Functions(self, stage, scheduling.settings.to_env())
        arns, queues = data.arns, scheduling.arns
        reached = self._reached(stage)
        webhook_key = secret_arn(self, stage, WEBHOOK_KEY)

        self.executors: dict[str, Function] = {}
        for lane in LANE_NAMES:
            fed = [one for one in scheduling.lanes if one.lane == lane]
            executor = make(
                Shape(
                    f"executor-{lane}",
                    "executor",
                    DESCRIPTIONS[lane],
                    seconds=LANE_SHAPES[lane].seconds,
                    without_dead_letters="The queues that feed it have dead-letter queues.",
                    environment={"PUNCTUAL_LANE": lane},
                    in_a_chain=True,
                ),
                iam.executor(
                    arns,
                    queues,
                    [one.queue.queue_arn for one in fed],
                    reached,
                    limited=stage.limits is not None,
                    webhook_key=webhook_key if lane == NOTIFICATION_LANE else None,
                ),
            )
            self.executors[lane] = executor
            for one in fed:
                QueueSource(
                    self,
                    f"Feed{pascal(one.name)}",
                    function=executor,
                    queue=one.queue,
                    batch=LANE_SHAPES[lane].batch,
                    at_most=one.executors,
                )
        urls = " ".join(one.dead.queue_url for one in scheduling.lanes)
        self.dead_letters = make(
            replace(DEAD_LETTERS_SHAPE, environment={"PUNCTUAL_DEAD_LETTERS": urls}),
            iam.dead_letters(arns, queues),
        )
        self.round = Clock(
            self,
            "Bury",
            stage=stage,
            name="bury",
            description="Looks for messages of runs that came back too often",
            schedule=events.Schedule.rate(ROUND),
            function=self.dead_letters,
            retries=1,
            oldest=ROUND,
            why_dropped=NEXT_ROUND,
        )
        self.status_failed = failures(self, "StatusFailed", stage.physical("status-failed"))
        self.status = make(STATUS_SHAPE, iam.status(arns, self.status_failed.queue_arn))
        self.stream = StreamSource(
            self,
            "Changes",
            function=self.status,
            stream=arns.stream,
            failed=self.status_failed,
            batch=200,
            # One batch holds a second of changes; an idle table starts no function.
            window=Duration.seconds(1),
            at_a_time=stage.concurrency.status_batches,
            only=HEADS_ONLY,
            retries=100,
            oldest=Duration.hours(6),
        )

    @property
    def functions(self) -> dict[str, Function]:
        made = (*self.executors.values(), self.dead_letters, self.status)
        return {one.name: one for one in made}

    def _reached(self, stage: Stage) -> list[iam.Right]:
        def arns(service: str, names: tuple[str, ...], kind: str = "") -> list[str]:
            if kind:
                return [
                    self.format_arn(
                        service=service,
                        resource=kind,
                        resource_name=name,
                        arn_format=ArnFormat.COLON_RESOURCE_NAME,
                    )
                    for name in names
                ]
            return [self.format_arn(service=service, resource=name) for name in names]

        refused = iam.no_task_reaches(
            functions=arns("lambda", OWN_FUNCTION_NAMES, "function"),
            queues=arns("sqs", DEAD_LETTER_QUEUE_NAMES),
        )
        return refused + iam.task_targets(
            functions=arns("lambda", _with_versions(stage.reach.every_function), "function"),
            queues=arns("sqs", stage.reach.every_queue),
            secrets=arns("secretsmanager", (f"punctual/{stage.name}/*",), "secret"),
            parameters=[
                self.format_arn(
                    service="ssm",
                    resource="parameter",
                    resource_name=f"{stage.knobs.strip('/')}/secrets/*",
                )
            ],
        )


def _with_versions(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the function names, each exact one also with its versions.

    >>> _with_versions(("report", "task-*"))
    ('report', 'report:*', 'task-*')
    """
    found = ((name,) if name.endswith("*") else (name, f"{name}:*") for name in names)
    return tuple(one for some in found for one in some)
