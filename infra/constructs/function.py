"""A Lambda function of Punctual: its own role and log group, both layers."""

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
    """The part of a function that is the same in each stage: code, timeout, retries."""

    name: str
    folder: str
    description: str
    seconds: int
    # The reason why the function needs no dead-letter queue.
    without_dead_letters: str
    environment: Mapping[str, str] = field(default_factory=dict)
    # The function receives messages that it sent itself. Lambda stops this recursion after about
    # 16 hops, and a job with a long wait queue needs more.
    in_a_chain: bool = False
    # The number and the maximum age of Lambda's retries of asynchronous invocations.
    retries: int | None = None
    oldest: Duration | None = None


class Function(Construct):
    """A function with `role` and `log_group`, for alarms and event sources."""

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
            # Inline, because CloudFormation rejects an event source before its role may read it.
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
            # The stack lists all of its rights.
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
    """Builder of the functions of one stack, which share their layers."""

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
    """Return the words joined in PascalCase.

    >>> pascal("quick", "all")
    'QuickAll'
    """
    return "".join(part.capitalize() for name in names for part in name.split("-"))
