"""The stack of scheduling: tick, planner, pollers, reconciler, operations and all queues."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from infra import iam
from infra.config.stage import Stage
from infra.constructs.event_source import QueueSource
from infra.constructs.function import Function, Functions, FunctionShape, pascal_case
from infra.constructs.parameters import OperatorParameters
from infra.constructs.queue import OPERATION_QUEUE, WAKE_UP_QUEUE, DelayQueue, Lane
from infra.constructs.schedule_rule import ScheduleRule
from infra.stacks.data import Data
from punctual.domain.tenants.limits import format_limits
from punctual.settings import OPERATION_CONCURRENCY, Settings

NEXT_TICK_REASON = "The next tick does the remaining work, and an alarm reports missing ticks."
NEXT_WALK_REASON = "The next hour continues the walk, and an alarm reports a failure."
POLLER_SHAPE = FunctionShape(
    "poller",
    "poller",
    "Evaluates due timers to the second and queues their runs",
    timeout_seconds=180,
    no_dead_letters_reason="Its queue has a dead-letter queue.",
    allows_recursion=True,
)
WAKE_UPS_PER_BATCH = 10
OPERATIONS_SHAPE = FunctionShape(
    "operations",
    "operations",
    "Carries out operations on many jobs or runs, a slice after another",
    timeout_seconds=60,
    no_dead_letters_reason="Its queue has a dead-letter queue.",
    allows_recursion=True,
)
OPERATION_VISIBILITY = Duration.seconds(6 * OPERATIONS_SHAPE.timeout_seconds)  # as AWS advises
PLANNER_SHAPE = FunctionShape(
    "planner",
    "planner",
    "Each minute: hands out the partitions up to two minutes ahead, and overdue ones",
    timeout_seconds=50,
    no_dead_letters_reason=NEXT_TICK_REASON,
    # The next tick follows a minute later.
    retries=0,
    max_event_age=Duration.seconds(60),
)
RECONCILER_SHAPE = FunctionShape(
    "reconciler",
    "reconciler",
    "Once a day, in pieces: repairs jobs without a timer, removes payloads without a job",
    timeout_seconds=900,
    no_dead_letters_reason=NEXT_WALK_REASON,
    retries=1,
    max_event_age=Duration.minutes(30),
)


class Scheduling(Stack):
    """The queues of due runs (`lanes`), and the functions that fill them."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage, data: Data) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): planner, pollers, queues and parameters",
            termination_protection=stage.protects("Scheduling"),
        )
        self._stage = stage
        self.wake_up_queue = DelayQueue(
            self,
            "Wake",
            stage=stage,
            shape=WAKE_UP_QUEUE,
            visibility_timeout=Duration.seconds(POLLER_SHAPE.timeout_seconds),
        )
        self.operation_queue = DelayQueue(
            self,
            "OperationQueue",
            stage=stage,
            shape=OPERATION_QUEUE,
            visibility_timeout=OPERATION_VISIBILITY,
        )
        self.lanes = [
            Lane(self, pascal_case(lane, priority), stage=stage, lane=lane, priority=priority)
            for lane, queues in stage.lanes.items()
            for priority in queues
        ]
        self.operator_parameters = OperatorParameters(self, "Knobs", stage=stage)
        self.settings = _settings(stage, data, self)
        create_function = Functions(self, stage, self.settings.to_env())
        arns, queues = data.arns, self.arns

        self.planner = create_function(
            PLANNER_SHAPE, iam.planner(arns, queues, self.operator_parameters.arns)
        )
        self.poller = create_function(POLLER_SHAPE, iam.poller(arns, queues))
        self.reconciler = create_function(RECONCILER_SHAPE, iam.reconciler(arns, queues))
        self.operations = create_function(
            OPERATIONS_SHAPE, iam.operations(arns, queues, has_limits=stage.limits is not None)
        )
        QueueSource(
            self,
            "FeedOperations",
            function=self.operations,
            queue=self.operation_queue.queue,
            batch_size=1,  # a message takes up to 20 seconds
            max_concurrency=OPERATION_CONCURRENCY,
        )
        self.wake_up_source = QueueSource(
            self,
            "WakePoller",
            function=self.poller,
            queue=self.wake_up_queue.queue,
            batch_size=WAKE_UPS_PER_BATCH,
            max_concurrency=stage.pollers,
        )
        self.tick_rule = self._create_tick_rule()
        self.walk_rule = self._create_walk_rule()

    @property
    def functions(self) -> dict[str, Function]:
        functions = (self.planner, self.poller, self.reconciler, self.operations)
        return {function.name: function for function in functions}

    @property
    def arns(self) -> iam.QueueArns:
        return iam.QueueArns(
            wake_up=self.wake_up_queue.queue.queue_arn,
            operations=self.operation_queue.queue.queue_arn,
            lanes=tuple(lane.queue.queue_arn for lane in self.lanes),
            dead_letters=tuple(lane.dead_letter_queue.queue_arn for lane in self.lanes),
        )

    def _create_tick_rule(self) -> ScheduleRule:
        return ScheduleRule(
            self,
            "Tick",
            stage=self._stage,
            name="tick",
            description="The tick of the planner, each minute",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            function=self.planner,
            retries=1,
            max_event_age=Duration.seconds(60),
            dropped_events_reason=NEXT_TICK_REASON,
        )

    def _create_walk_rule(self) -> ScheduleRule:
        return ScheduleRule(
            self,
            "Walk",
            stage=self._stage,
            name="reconcile",
            description="Continues the daily walk over all jobs until it is done",
            schedule=events.Schedule.rate(Duration.hours(1)),
            function=self.reconciler,
            retries=1,
            max_event_age=Duration.minutes(30),
            dropped_events_reason=NEXT_WALK_REASON,
        )


def _settings(stage: Stage, data: Data, scheduling: Scheduling) -> Settings:
    return Settings(
        stage=stage.name,
        jobs_table=data.jobs.table.table_name,
        timers_table=data.timers.table.table_name,
        runs_table=data.runs.table.table_name,
        control_table=data.control.table.table_name,
        audit_table=data.audit.table.table_name,
        lists_table=data.lists.table.table_name,
        bucket=data.outputs.bucket.bucket_name,
        wake_queue=scheduling.wake_up_queue.queue.queue_url,
        operation_queue=scheduling.operation_queue.queue.queue_url,
        event_bus=data.bus.event_bus_name,
        knobs=stage.parameter_prefix,
        metrics=stage.metrics,
        run_events=stage.run_events,
        networks=stage.reach.networks,
        reach=stage.reach.text,
        max_container_vcpu=stage.max_container_vcpu if stage.containers else 0,
        list_slots=stage.list_slots,
        feed_slots=stage.feed_slots,
        operations_per_second=stage.operations_per_second,
        container_scripts=stage.has_container_scripts,
        limits=None if stage.limits is None else format_limits(stage.limits),
        script_memory_mb=stage.script_memory_mb,
        script_architecture=stage.script_architecture,
        queues={lane.name: lane.queue.queue_url for lane in scheduling.lanes},
        places={lane.name: lane.executors for lane in scheduling.lanes},
        script_places=stage.script_places,
    )
