"""SSM parameters that an operator changes at run time; the planner reads them each minute."""

from aws_cdk import Stack
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra.config.stage import Stage


def create_parameter(
    scope: Construct, construct_id: str, stage: Stage, name: str, value: str, description: str
) -> ssm.StringParameter:
    return ssm.StringParameter(
        scope,
        construct_id,
        parameter_name=f"{stage.parameter_prefix}{name}",
        description=description,
        string_value=value,
    )


def secret_arn(stack: Stack, stage: Stage, name: str) -> str:
    """Return the ARN of a SecureString. No template can create one: `make deploy` does."""
    return stack.format_arn(
        service="ssm",
        resource="parameter",
        resource_name=f"{stage.parameter_prefix}{name}".lstrip("/"),
    )


def task_secret_arns(stack: Stack, stage: Stage) -> list[str]:
    """Return the ARNs of the secrets that tasks name, of all tenants."""
    return [secret_arn(stack, stage, "secrets/*")]


class OperatorParameters(Construct):
    """The parameters. A deployment writes one again only if its value in cdk.json changed."""

    def __init__(self, scope: Construct, construct_id: str, *, stage: Stage) -> None:
        super().__init__(scope, construct_id)
        self.shards = create_parameter(
            self,
            "Shards",
            stage,
            "shards",
            str(stage.shards),
            "Number of shards of each bucket of timers. Increase it at any time, never decrease it",
        )
        self.pace = create_parameter(
            self,
            "Pace",
            stage,
            "pace",
            str(stage.catch_up_pace),
            "Number of overdue buckets that each tick hands out after an outage",
        )
        self.dispatch = create_parameter(
            self,
            "Dispatch",
            stage,
            "dispatch",
            "on",
            "on, or off to start no runs. With on again, catch-up follows and nothing is lost",
        )

    @property
    def arns(self) -> list[str]:
        return [
            ssm_parameter.parameter_arn for ssm_parameter in (self.shards, self.pace, self.dispatch)
        ]
