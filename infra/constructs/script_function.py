"""A function that runs scripts: no right at all, and an environment for one tenant only."""

from aws_cdk import Duration, Size
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from infra.build.layers import LAMBDA_RUNTIME
from infra.build.runner import RUNNER_HANDLER
from infra.config.stage import RUNNER_MEMORY_MB, SCRIPT_DISK_MB, Stage
from infra.nag_suppressions import acknowledge

FUNCTION_TIMEOUT = Duration.minutes(15)
"""The maximum of Lambda. A script may take 14 minutes, so that the runner can end the run."""

MAX_EVENT_AGE = Duration.seconds(60)
"""The lease of a run that waits for its runner covers this time."""

LAMBDA_ARCHITECTURES = {
    "arm64": lambda_.Architecture.ARM_64,
    "x86_64": lambda_.Architecture.X86_64,
}
NO_RETRY_REASON = "The claim of a run decides: when its lease expires, another attempt starts."


class ScriptFunction(Construct):
    """The function of one runtime. Executors invoke it with the tenant of the run."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        name: str,
        code: lambda_.Code,
        layers: list[lambda_.LayerVersion],
    ) -> None:
        super().__init__(scope, construct_id)
        self.name = name
        resource_name = stage.resource_name(name)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"No rights, not even to write logs: {resource_name}",
        )
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=resource_name,
            description=f"Runs scripts of one tenant in each environment ({name})",
            runtime=LAMBDA_RUNTIME,
            architecture=LAMBDA_ARCHITECTURES[stage.script_architecture],
            code=code,
            handler=RUNNER_HANDLER,
            layers=layers,
            memory_size=stage.script_memory_mb + RUNNER_MEMORY_MB,
            ephemeral_storage_size=Size.mebibytes(SCRIPT_DISK_MB),
            timeout=FUNCTION_TIMEOUT,
            # Lambda takes this setting only when it creates the function.
            tenancy_config=lambda_.TenancyConfig.PER_TENANT,
            reserved_concurrent_executions=stage.reserved.get(name),
            retry_attempts=0,
            max_event_age=MAX_EVENT_AGE,
            # A policy of CDK, for example to write logs, must not reach the role.
            role=role.without_policy_updates(),
        )
        self.function.node.try_remove_child("LogGroup")  # the role may not write logs
        self._acknowledge()

    @property
    def arn(self) -> str:
        return self.function.function_arn

    def _acknowledge(self) -> None:
        acknowledge(
            self,
            "Scripts run with the Python that the project tests.",
            "AwsSolutions-L1",
            "Serverless-LambdaLatestVersion",
        )
        acknowledge(
            self,
            NO_RETRY_REASON,
            "Serverless-LambdaDLQ",
            "Serverless-LambdaAsyncFailureDestination",
        )
        acknowledge(self, "The role has no right to write traces.", "Serverless-LambdaTracing")
