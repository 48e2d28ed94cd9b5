"""A Lambda function as all of ours are: small rights, its own log, both layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.build import packaging
from infra.build.layers import LAMBDA_ARCHITECTURE, PYTHON, Layers
from infra.config.stage import Stage
from infra.iam import Right, logging, networking, statements, tracing
from infra.nag_suppressions import acknowledge, acknowledge_wide


@dataclass(frozen=True, slots=True)
class Shape:
    """What a function is, whatever the stage: its code, how long it may take, who may loop."""

    name: str
    folder: str
    description: str
    seconds: int
    # Why nothing is kept of an event that the function could not take.
    without_dead_letters: str
    environment: Mapping[str, str] = field(default_factory=dict)
    # Reads from SQS what it, or a function behind it, sends there. Lambda stops such a chain
    # after some 16 hops, and a job with a long line of waiting runs is one.
    in_a_chain: bool = False
    # For what is invoked asynchronously: how often, and for how long, it is tried again.
    retries: int | None = None
    oldest: Duration | None = None


class Function(Construct):
    """`function`, `role` and `log_group` are what alarms and event sources need of it."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        shape: Shape,
        stage: Stage,
        layers: Layers,
        environment: Mapping[str, str],
        rights: Sequence[Right],
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = shape.name
        self.timeout = Duration.seconds(shape.seconds)
        physical = stage.physical(shape.name)
        self.log_group = self._log(physical, stage)
        allowed = [*rights, logging(self.log_group.log_group_arn)]
        allowed += [tracing()] if stage.tracing else []
        allowed += [networking()] if stage.vpc else []
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"What {physical} may do",
            # In the role itself: an event source is refused while its function may not read it.
            inline_policies={shape.name: iam.PolicyDocument(statements=statements(allowed))},
        )
        acknowledge_wide(self.role, allowed)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=physical,
            description=shape.description,
            runtime=PYTHON,
            architecture=LAMBDA_ARCHITECTURE,
            code=packaging.function(shape.folder),
            handler="handler.handler",
            layers=layers.both,
            memory_size=stage.memory[shape.name],
            timeout=self.timeout,
            environment={
                **environment,
                **shape.environment,
                "POWERTOOLS_SERVICE_NAME": shape.name,
                "POWERTOOLS_LOG_LEVEL": "INFO",
            },
            tracing=lambda_.Tracing.ACTIVE if stage.tracing else lambda_.Tracing.DISABLED,
            reserved_concurrent_executions=stage.reserved.get(shape.name),
            recursive_loop=lambda_.RecursiveLoop.ALLOW if shape.in_a_chain else None,
            retry_attempts=shape.retries,
            max_event_age=shape.oldest,
            log_group=self.log_group,
            # What the stack lists is all it may do.
            role=self.role.without_policy_updates(),
        )
        if stage.vpc:
            self._place_in(stage)
        self._acknowledge(shape, stage)

    @property
    def arn(self) -> str:
        return self.function.function_arn

    def _log(self, physical: str, stage: Stage) -> logs.LogGroup:
        group = logs.LogGroup(
            self, "Log", log_group_name=f"/aws/lambda/{physical}", removal_policy=stage.removal
        )
        kept = group.node.default_child
        assert isinstance(kept, logs.CfnLogGroup)
        kept.retention_in_days = stage.log_retention_days
        return group

    def _acknowledge(self, shape: Shape, stage: Stage) -> None:
        acknowledge(
            self,
            "Python 3.13 is what the layers are compiled for; a new one comes with a test of it.",
            "AwsSolutions-L1",
            "Serverless-LambdaLatestVersion",
        )
        acknowledge(self, shape.without_dead_letters, "Serverless-LambdaDLQ")
        if shape.retries is not None:
            acknowledge(
                self, shape.without_dead_letters, "Serverless-LambdaAsyncFailureDestination"
            )
        if not stage.tracing:
            acknowledge(self, "Tracing costs: a stage chooses it.", "Serverless-LambdaTracing")

    def _place_in(self, stage: Stage) -> None:
        function = self.function.node.default_child
        assert isinstance(function, lambda_.CfnFunction)
        assert stage.vpc is not None
        function.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
            subnet_ids=list(stage.vpc.subnets), security_group_ids=list(stage.vpc.security_groups)
        )


class Functions:
    """Makes those of one stack, with the layers that they share."""

    def __init__(self, scope: Construct, stage: Stage, environment: Mapping[str, str]) -> None:
        self._scope = scope
        self._stage = stage
        self._environment = environment
        self._layers = Layers(scope, "Layers")

    def __call__(
        self, shape: Shape, rights: Sequence[Right], environment: Mapping[str, str] | None = None
    ) -> Function:
        return Function(
            self._scope,
            pascal(shape.name),
            shape=shape,
            stage=self._stage,
            layers=self._layers,
            environment=self._environment if environment is None else environment,
            rights=rights,
        )


def pascal(*names: str) -> str:
    """
    >>> pascal("quick", "all")
    'QuickAll'
    """
    return "".join(part.capitalize() for name in names for part in name.split("-"))
