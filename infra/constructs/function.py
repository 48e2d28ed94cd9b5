"""A Lambda function of Punctual: its own role and log group, both layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.build import packaging
from infra.build.layers import LAMBDA_ARCHITECTURE, LAMBDA_RUNTIME, Layers
from infra.config.stage import Stage
from infra.constructs.log_group import create_log_group
from infra.iam import Right, logging, networking, statements, tracing
from infra.nag_suppressions import acknowledge, acknowledge_wildcards

DEFAULT_MEMORY_MB = 512  # of a function that not every stage has


@dataclass(frozen=True, slots=True)
class FunctionShape:
    """The part of a function that is the same in each stage: code, timeout, retries."""

    name: str
    folder: str
    description: str
    timeout_seconds: int
    # The reason why the function needs no dead-letter queue.
    no_dead_letters_reason: str
    environment: Mapping[str, str] = field(default_factory=dict)
    # The function receives messages that it sent itself. Lambda stops this recursion after about
    # 16 hops, and a job with a long wait queue needs more.
    allows_recursion: bool = False
    # The number and the maximum age of Lambda's retries of asynchronous invocations.
    retries: int | None = None
    max_event_age: Duration | None = None


class Function(Construct):
    """A function with `role` and `log_group`, for alarms and event sources."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        shape: FunctionShape,
        stage: Stage,
        layers: Layers,
        environment: Mapping[str, str],
        rights: Sequence[Right],
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = shape.name
        self.timeout = Duration.seconds(shape.timeout_seconds)
        resource_name = stage.resource_name(shape.name)
        self.log_group = create_log_group(self, "Log", stage.function_log_group(shape.name), stage)
        all_rights = [*rights, logging(self.log_group.log_group_arn)]
        all_rights += [tracing()] if stage.tracing else []
        all_rights += [networking()] if stage.vpc else []
        self.role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"The rights of {resource_name}",
            # Inline, because CloudFormation rejects an event source before its role may read it.
            inline_policies={shape.name: iam.PolicyDocument(statements=statements(all_rights))},
        )
        acknowledge_wildcards(self.role, all_rights)
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=resource_name,
            description=shape.description,
            runtime=LAMBDA_RUNTIME,
            architecture=LAMBDA_ARCHITECTURE,
            code=packaging.function_code(shape.folder),
            handler="handler.handler",
            layers=layers.both,
            memory_size=stage.memory.get(shape.name, DEFAULT_MEMORY_MB),
            timeout=self.timeout,
            environment={
                **environment,
                **shape.environment,
                "POWERTOOLS_SERVICE_NAME": shape.name,
                "POWERTOOLS_LOG_LEVEL": "INFO",
            },
            tracing=lambda_.Tracing.ACTIVE if stage.tracing else lambda_.Tracing.DISABLED,
            reserved_concurrent_executions=stage.reserved.get(shape.name),
            recursive_loop=lambda_.RecursiveLoop.ALLOW if shape.allows_recursion else None,
            retry_attempts=shape.retries,
            max_event_age=shape.max_event_age,
            log_group=self.log_group,
            # The stack lists all of its rights.
            role=self.role.without_policy_updates(),
        )
        if stage.vpc:
            self._attach_to_vpc(stage)
        self._acknowledge(shape, stage)

    @property
    def arn(self) -> str:
        return self.function.function_arn

    def _acknowledge(self, shape: FunctionShape, stage: Stage) -> None:
        acknowledge(
            self,
            "The layers are compiled for Python 3.13. Another version needs a test.",
            "AwsSolutions-L1",
            "Serverless-LambdaLatestVersion",
        )
        acknowledge(self, shape.no_dead_letters_reason, "Serverless-LambdaDLQ")
        if shape.retries is not None:
            acknowledge(
                self, shape.no_dead_letters_reason, "Serverless-LambdaAsyncFailureDestination"
            )
        if not stage.tracing:
            acknowledge(
                self, "Tracing costs money. A stage can enable it.", "Serverless-LambdaTracing"
            )

    def _attach_to_vpc(self, stage: Stage) -> None:
        cfn_function = self.function.node.default_child
        assert isinstance(cfn_function, lambda_.CfnFunction)
        assert stage.vpc is not None
        cfn_function.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
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
        self,
        shape: FunctionShape,
        rights: Sequence[Right],
        environment: Mapping[str, str] | None = None,
    ) -> Function:
        return Function(
            self._scope,
            pascal_case(shape.name),
            shape=shape,
            stage=self._stage,
            layers=self._layers,
            environment=self._environment if environment is None else environment,
            rights=rights,
        )


def pascal_case(*names: str) -> str:
    """Return the words joined in PascalCase.

    >>> pascal_case("quick", "all")
    'QuickAll'
    """
    return "".join(part.capitalize() for name in names for part in name.split("-"))
