"""The stack of execution: executors by lane, dead letters, status function."""

from dataclasses import replace

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra import container_rights, iam
from infra.build.layers import LAMBDA_RUNTIME
from infra.build.node_layer import node_layer
from infra.build.runner import build_runner
from infra.config.concurrency import STREAM_BATCH_SIZE, STREAM_WINDOW_SECONDS
from infra.config.stage import FUNCTION_NAMES, LANE_NAMES, SCRIPT_FUNCTION_NAMES, Stage
from infra.constructs.event_source import QueueSource, StreamSource
from infra.constructs.function import Function, Functions, FunctionShape, pascal_case
from infra.constructs.parameters import secret_arn, task_secret_arns
from infra.constructs.queue import LANE_SHAPES, create_failure_queue
from infra.constructs.schedule_rule import ScheduleRule
from infra.constructs.script_function import LAMBDA_ARCHITECTURES, ScriptFunction
from infra.stacks.containers import CONTAINER_LANE, Containers
from infra.stacks.data import Data
from infra.stacks.scheduling import Scheduling
from punctual.aws.dynamodb.keys import JOB_STATE_STREAM_FILTERS
from punctual.lambdas.ssm_secrets import (
    API_ADDRESS_PARAMETER,
    TOKEN_KEY_PARAMETER,
    WEBHOOK_KEY_PARAMETER,
)
from punctual.tasks.limits import SCRIPT_FUNCTIONS

# The functions of every stage, without those that run scripts. CDK names its own by the stack.
OWN_FUNCTION_NAMES = (*(f"punctual-*-{name}" for name in FUNCTION_NAMES), "Punctual-*")
DEAD_LETTER_QUEUE_NAMES = ("punctual-*-dead", "punctual-*-dead.fifo", "punctual-*-failed")
EXECUTOR_DESCRIPTIONS = {
    "quick": "Executes runs of up to 300 s, ten at a time",
    "long": "Executes runs of up to 15 minutes, one at a time, and renews their claims",
}
SCRIPT_LANE = "long"  # its executor runs scripts
NOTIFICATION_LANE = "quick"  # notifications go through the queues of this lane
DEAD_LETTER_INTERVAL = Duration.minutes(5)
NEXT_DEAD_LETTER_ROUND_REASON = (
    "The next round handles the remaining messages, and an alarm reports dead letters."
)
DEAD_LETTERS_SHAPE = FunctionShape(
    "dead-letters",
    "dead_letters",
    "Ends the run of a message that was received too often, as FAILED, with a reason",
    timeout_seconds=240,
    no_dead_letters_reason=NEXT_DEAD_LETTER_ROUND_REASON,
    # The next round, five minutes later, finds the rest.
    retries=0,
    max_event_age=DEAD_LETTER_INTERVAL,
)
STATUS_SHAPE = FunctionShape(
    "status",
    "status",
    "Follows changes of job states: lists of runs, counts, events, data of expired jobs",
    timeout_seconds=60,
    no_dead_letters_reason="The event source of the stream has a queue for failed changes.",
)


class Execution(Stack):
    """The executors; `status_failure_queue` holds positions of failed changes in the stream."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        data: Data,
        scheduling: Scheduling,
        containers: Containers | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): executors, dead letters, status",
            termination_protection=stage.protects("Execution"),
        )
        self._stage = stage
        self._arns, self._queues = data.arns, scheduling.arns
        self._create_function = Functions(self, stage, scheduling.settings.to_env())
        self.script_functions = self._create_script_functions(stage)
        self._target_rights = self._list_target_rights(stage)
        self._start_rights = self._list_start_rights(containers)
        self._start_settings = (
            {CONTAINER_LANE: containers.settings.to_env()} if containers is not None else {}
        )
        self.executors = {lane: self._create_executor(lane, scheduling) for lane in LANE_NAMES}
        self.dead_letters = self._create_dead_letters(scheduling)
        self.dead_letter_rule = self._create_dead_letter_rule()
        self.status_failure_queue = create_failure_queue(
            self, "StatusFailed", stage.resource_name("status-failed")
        )
        self.status = self._create_status()
        self.stream_source = self._create_stream_source()

    @property
    def functions(self) -> dict[str, Function]:
        functions = (*self.executors.values(), self.dead_letters, self.status)
        return {function.name: function for function in functions}

    def _list_start_rights(self, containers: Containers | None) -> dict[str, list[iam.Right]]:
        """Return the rights to start scripts and containers, by lane."""
        claim_parameters = [
            secret_arn(self, self._stage, name)
            for name in (TOKEN_KEY_PARAMETER, API_ADDRESS_PARAMETER)
        ]
        scripts = [function.arn for function in self.script_functions.values()]
        rights = {SCRIPT_LANE: iam.executor_of_scripts(self._arns, scripts, claim_parameters)}
        if containers is not None:
            rights[CONTAINER_LANE] = [
                *rights[CONTAINER_LANE],
                *containers.start_rights,
                *container_rights.executor_of_containers(self._arns),
            ]
        return rights

    def _create_executor(self, lane: str, scheduling: Scheduling) -> Function:
        """Return the executor of a lane, with a source for each of its queues."""
        lane_queues = [lane_queue for lane_queue in scheduling.lanes if lane_queue.lane == lane]
        executor = self._create_function(
            FunctionShape(
                f"executor-{lane}",
                "executor",
                EXECUTOR_DESCRIPTIONS[lane],
                timeout_seconds=LANE_SHAPES[lane].timeout_seconds,
                no_dead_letters_reason="Its queues have dead-letter queues.",
                environment={"PUNCTUAL_LANE": lane, **self._start_settings.get(lane, {})},
                allows_recursion=True,
            ),
            self._list_executor_rights(
                lane, [lane_queue.queue.queue_arn for lane_queue in lane_queues]
            ),
        )
        for lane_queue in lane_queues:
            QueueSource(
                self,
                f"Feed{pascal_case(lane_queue.name)}",
                function=executor,
                queue=lane_queue.queue,
                batch_size=LANE_SHAPES[lane].batch_size,
                max_concurrency=lane_queue.executors,
            )
        return executor

    def _list_executor_rights(self, lane: str, lane_queue_arns: list[str]) -> list[iam.Right]:
        stage = self._stage
        notifies = lane == NOTIFICATION_LANE
        return iam.executor(
            self._arns,
            self._queues,
            lane_queue_arns,
            [*self._target_rights, *self._start_rights.get(lane, [])],
            has_quotas=stage.limits is not None
            or (lane == SCRIPT_LANE and bool(stage.script_places)),
            webhook_key=secret_arn(self, stage, WEBHOOK_KEY_PARAMETER) if notifies else None,
        )

    def _create_dead_letters(self, scheduling: Scheduling) -> Function:
        urls = " ".join(lane_queue.dead_letter_queue.queue_url for lane_queue in scheduling.lanes)
        return self._create_function(
            replace(DEAD_LETTERS_SHAPE, environment={"PUNCTUAL_DEAD_LETTERS": urls}),
            iam.dead_letters(self._arns, self._queues),
        )

    def _create_dead_letter_rule(self) -> ScheduleRule:
        return ScheduleRule(
            self,
            "Bury",
            stage=self._stage,
            name="bury",
            description="Starts the function that handles dead letters",
            schedule=events.Schedule.rate(DEAD_LETTER_INTERVAL),
            function=self.dead_letters,
            retries=1,
            max_event_age=DEAD_LETTER_INTERVAL,
            dropped_events_reason=NEXT_DEAD_LETTER_ROUND_REASON,
        )

    def _create_status(self) -> Function:
        has_quotas = self._stage.limits is not None or bool(self._stage.script_places)
        failure_queue_arn = self.status_failure_queue.queue_arn
        return self._create_function(
            STATUS_SHAPE, iam.status(self._arns, failure_queue_arn, has_quotas=has_quotas)
        )

    def _create_stream_source(self) -> StreamSource:
        return StreamSource(
            self,
            "Changes",
            function=self.status,
            stream_arn=self._arns.stream,
            failure_queue=self.status_failure_queue,
            batch_size=STREAM_BATCH_SIZE,
            # One batch holds a second of changes; an idle table starts no function.
            batching_window=Duration.seconds(STREAM_WINDOW_SECONDS),
            parallelization_factor=self._stage.concurrency.status_batches,
            filter_patterns=JOB_STATE_STREAM_FILTERS,
            retries=100,
            max_age=Duration.hours(6),
        )

    def _create_script_functions(self, stage: Stage) -> dict[str, ScriptFunction]:
        """Return the functions that run scripts, by name. Only that for Node.js has its layer."""
        code = lambda_.Code.from_asset(str(build_runner()))
        nodejs = lambda_.LayerVersion(
            self,
            "NodeJs",
            code=node_layer(self, stage.script_architecture),
            description="The Node.js that scripts run with",
            compatible_runtimes=[LAMBDA_RUNTIME],
            compatible_architectures=[LAMBDA_ARCHITECTURES[stage.script_architecture]],
        )
        return {
            name: ScriptFunction(
                self,
                pascal_case(name),
                stage=stage,
                name=name,
                code=code,
                layers=[nodejs] if name == SCRIPT_FUNCTIONS["node"] else [],
            )
            for name in SCRIPT_FUNCTION_NAMES
        }

    def _list_target_rights(self, stage: Stage) -> list[iam.Right]:
        def arns(service: str, names: tuple[str, ...], resource: str = "") -> list[str]:
            if resource:
                return [
                    self.format_arn(
                        service=service,
                        resource=resource,
                        resource_name=name,
                        arn_format=ArnFormat.COLON_RESOURCE_NAME,
                    )
                    for name in names
                ]
            return [self.format_arn(service=service, resource=name) for name in names]

        denied = iam.deny_own_targets(
            functions=arns("lambda", OWN_FUNCTION_NAMES, "function"),
            queues=arns("sqs", DEAD_LETTER_QUEUE_NAMES),
        )
        return denied + iam.task_targets(
            functions=arns("lambda", _with_versions(stage.reach.all_functions), "function"),
            queues=arns("sqs", stage.reach.all_queues),
            secrets=arns("secretsmanager", (f"punctual/{stage.name}/*",), "secret"),
            parameters=task_secret_arns(self, stage),
        )


def _with_versions(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the function names, each exact one also with its versions.

    >>> _with_versions(("report", "task-*"))
    ('report', 'report:*', 'task-*')
    """
    qualified_names = ((name,) if name.endswith("*") else (name, f"{name}:*") for name in names)
    return tuple(qualified_name for variants in qualified_names for qualified_name in variants)
