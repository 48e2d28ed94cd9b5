"""The stack of scheduling: tick, planner, pollers, reconciler and all queues."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from constructs import Construct

from infra import iam
from infra.config.stage import Stage
from infra.constructs.event_source import QueueSource
from infra.constructs.function import Function, Functions, Shape, pascal
from infra.constructs.parameters import Knobs
from infra.constructs.queue import Lane, Wake
from infra.constructs.schedule_rule import Clock
from infra.stacks.data import Data
from punctual.domain.tenants.limits import text_of
from punctual.settings import Settings

NEXT_TICK = "The next tick does what this one did not, and an alarm says when none comes."
NEXT_WALK = "The next hour goes on where the walk ended, and an alarm says that it failed."
POLLER_SHAPE = Shape(
    "poller",
    "poller",
    "Looks at the jobs that are due and queues their runs, to the second",
    seconds=180,
    without_dead_letters="The queue that feeds it has a dead-letter queue.",
    in_a_chain=True,
)
POLLER_BATCH = 10
PLANNER_SHAPE = Shape(
    "planner",
    "planner",
    "Each minute: hands out the minutes up to two ahead, and those that are behind",
    seconds=50,
    without_dead_letters=NEXT_TICK,
    # The next tick follows a minute later.
    retries=0,
    oldest=Duration.seconds(60),
)
RECONCILER_SHAPE = Shape(
    "reconciler",
    "reconciler",
    "Once a day, in pieces: mends jobs without a timer, and removes payloads without a job",
    seconds=900,
    without_dead_letters=NEXT_WALK,
    retries=1,
    oldest=Duration.minutes(30),
)


class Scheduling(Stack):
    """The queues of due runs (`lanes`), and the functions that fill them."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage, data: Data) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): planner, pollers, queues, and the knobs",
            termination_protection=stage.protects("Scheduling"),
        )
        self.wake = Wake(self, "Wake", stage=stage, hidden=Duration.seconds(POLLER_SHAPE.seconds))
        self.lanes = [
            Lane(self, pascal(lane, priority), stage=stage, lane=lane, priority=priority)
            for lane, queues in stage.lanes.items()
            for priority in queues
        ]
        self.knobs = Knobs(self, "Knobs", stage=stage)
        self.settings = _settings(stage, data, self)
        make = Functions(self, stage, self.settings.to_env())
        arns, queues = data.arns, self.arns

        self.planner = make(PLANNER_SHAPE, iam.planner(arns, queues, self.knobs.arns))
        self.poller = make(POLLER_SHAPE, iam.poller(arns, queues))
        self.reconciler = make(RECONCILER_SHAPE, iam.reconciler(arns, queues))
        self.wake_source = QueueSource(
            self,
            "WakePoller",
            function=self.poller,
            queue=self.wake.queue,
            batch=POLLER_BATCH,
            at_most=stage.pollers,
        )
        self.tick = Clock(
            self,
            "Tick",
            stage=stage,
            name="tick",
            description="The tick that Punctual lives by, each minute",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            function=self.planner,
            retries=1,
            oldest=Duration.seconds(60),
            why_dropped=NEXT_TICK,
        )
        self.walk = Clock(
            self,
            "Walk",
            stage=stage,
            name="reconcile",
            description="Goes on with the day's walk over all jobs, until it is done",
            schedule=events.Schedule.rate(Duration.hours(1)),
            function=self.reconciler,
            retries=1,
            oldest=Duration.minutes(30),
            why_dropped=NEXT_WALK,
        )

    @property
    def functions(self) -> dict[str, Function]:
        return {one.name: one for one in (self.planner, self.poller, self.reconciler)}

    @property
    def arns(self) -> iam.Queues:
        return iam.Queues(
            wake=self.wake.queue.queue_arn,
            lanes=tuple(lane.queue.queue_arn for lane in self.lanes),
            dead=tuple(lane.dead.queue_arn for lane in self.lanes),
        )


def _settings(stage: Stage, data: Data, scheduling: Scheduling) -> Settings:
    return Settings(
        stage=stage.name,
        jobs_table=data.jobs.table.table_name,
        timers_table=data.timers.table.table_name,
        runs_table=data.runs.table.table_name,
        control_table=data.control.table.table_name,
        audit_table=data.audit.table.table_name,
        bucket=data.outputs.bucket.bucket_name,
        wake_queue=scheduling.wake.queue.queue_url,
        event_bus=data.bus.event_bus_name,
        knobs=stage.knobs,
        metrics=stage.metrics,
        run_events=stage.run_events,
        networks=stage.reach.networks,
        reach=stage.reach.text,
        limits=None if stage.limits is None else text_of(stage.limits),
        queues={lane.name: lane.queue.queue_url for lane in scheduling.lanes},
        places={lane.name: lane.executors for lane in scheduling.lanes},
    )
