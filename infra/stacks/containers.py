"""The stack of containers on Fargate: network, cluster, two roles, logs, and their function.

It exists only where the stage has `containers` on. Tasks run in public subnets without NAT and
without inbound rules, or in the private subnets of the stage's own VPC.
"""

from collections.abc import Iterator
from dataclasses import replace

from aws_cdk import Annotations, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr_assets as ecr_assets
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as aws_iam
from constructs import Construct

from infra import container_rights, iam
from infra.build.scripts_image import build_scripts_context
from infra.config.stage import Stage
from infra.constructs.function import Function, Functions, FunctionShape
from infra.constructs.log_group import create_log_group
from infra.constructs.schedule_rule import ScheduleRule
from infra.nag_suppressions import acknowledge, acknowledge_wildcards
from infra.stacks.data import Data
from infra.stacks.scheduling import Scheduling
from punctual.lambdas.containers.settings import ContainerSettings
from punctual.tasks.container.task_report import ECS_EVENT_TYPE, ECS_SOURCE, STOP_REQUESTED

CONTAINERS_FUNCTION = "containers"
CONTAINER_LANE = "long"  # its executor starts containers
NEXT_SWEEP_REASON = "The next sweep, a minute later, finds what this invocation missed."
CONTAINERS_SHAPE = FunctionShape(
    CONTAINERS_FUNCTION,
    "containers",
    "Follows containers: events of ECS, requests to stop, and a sweep each minute",
    timeout_seconds=120,
    no_dead_letters_reason=NEXT_SWEEP_REASON,
    retries=1,
    max_event_age=Duration.minutes(5),
)
AVAILABILITY_ZONES = 2
TASK_SERVICE = "ecs-tasks.amazonaws.com"
NO_IMAGE_WARNING = (
    "Scripts of over 14 minutes are refused: no Docker was found to build their image. Start "
    "Docker, or set `scriptsImage` of the stage in cdk.json"
)
IMAGE_PLATFORMS = {
    "x86_64": ecr_assets.Platform.LINUX_AMD64,
    "arm64": ecr_assets.Platform.LINUX_ARM64,
}
ARCHITECTURE_NAMES = {"x86_64": "X86_64", "arm64": "ARM64"}


class Containers(Stack):
    """`start_rights` and `settings` are for the executor that starts containers."""

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
            description=f"Punctual ({stage.name}): containers on Fargate",
            termination_protection=stage.protects("Containers"),
        )
        self._stage = stage
        self.cluster = self._create_cluster()
        # A log group of tasks, with the retention of the stage.
        self.log_group = create_log_group(
            self, "Log", f"/aws/ecs/{stage.resource_name('containers')}", stage
        )
        self.task_role = self._create_role("TaskRole", "What containers may do: nothing", [])
        self.execution_role = self._create_role(
            "ExecutionRole",
            "Pulls images, reads secrets and writes logs",
            self._execution_rights(data),
        )
        subnets, security_groups = self._create_network()
        self.settings = ContainerSettings(
            cluster=self.cluster.attr_arn,
            subnets=tuple(subnets),
            security_groups=tuple(security_groups),
            has_public_address=stage.vpc is None,
            task_role=self.task_role.role_arn,
            execution_role=self.execution_role.role_arn,
            log_group=self.log_group.log_group_name,
            region=self.region,
            architecture=ARCHITECTURE_NAMES[stage.script_architecture],
            family_prefix=stage.prefix,
            parameter_arn=self._secrets_arn(""),
            max_vcpu=stage.max_container_vcpu,
            bucket_arn=data.arns.bucket,
            image=self._scripts_image(),
        )
        create_function = Functions(
            self, stage, {**scheduling.settings.to_env(), **self.settings.to_env()}
        )
        self.function = create_function(
            CONTAINERS_SHAPE,
            container_rights.containers(
                data.arns,
                replace(scheduling.arns, lanes=tuple(_long_queues(scheduling))),
                self.format_arn(service="ecs", resource="task", resource_name=f"{stage.prefix}/*"),
                self.cluster.attr_arn,
                self.log_group.log_group_arn,
            ),
        )
        self._create_rules(data)

    @property
    def functions(self) -> dict[str, Function]:
        return {self.function.name: self.function}

    @property
    def start_rights(self) -> list[iam.Right]:
        """Return the rights of an executor that starts containers."""
        family = self.format_arn(
            service="ecs", resource="task-definition", resource_name=f"{self._stage.prefix}-*"
        )
        return container_rights.start_containers(
            family,
            self.cluster.attr_arn,
            [self.task_role.role_arn, self.execution_role.role_arn],
            TASK_SERVICE,
        )

    def _scripts_image(self) -> str:
        """Return the image of scripts that a function cannot run, or an empty string."""
        if self._stage.builds_scripts_image:
            asset = ecr_assets.DockerImageAsset(
                self,
                "ScriptsImage",
                directory=str(build_scripts_context()),
                platform=IMAGE_PLATFORMS[self._stage.script_architecture],
            )
            return asset.image_uri
        if self._stage.scripts_image is None:
            Annotations.of(self).add_warning_v2("punctual:no-scripts-image", NO_IMAGE_WARNING)
        return self._stage.scripts_image or ""

    def _create_cluster(self) -> ecs.CfnCluster:
        cluster = ecs.CfnCluster(self, "Cluster", cluster_name=self._stage.prefix)
        acknowledge(
            cluster,
            "Container Insights costs money. Each run tells its own end.",
            "AwsSolutions-ECS4",
        )
        return cluster

    def _create_role(
        self, construct_id: str, description: str, rights: list[iam.Right]
    ) -> aws_iam.Role:
        policies = (
            {"execution": aws_iam.PolicyDocument(statements=iam.statements(rights))}
            if rights
            else None
        )
        role = aws_iam.Role(
            self,
            construct_id,
            assumed_by=aws_iam.ServicePrincipal(
                TASK_SERVICE, conditions={"StringEquals": {"aws:SourceAccount": self.account}}
            ),
            description=f"{description} ({self._stage.prefix})",
            inline_policies=policies,
        )
        acknowledge_wildcards(role, rights)
        return role

    def _execution_rights(self, data: Data) -> list[iam.Right]:
        repositories = self.format_arn(service="ecr", resource="repository", resource_name="*")
        return container_rights.pull_images(
            data.arns, repositories, self.log_group.log_group_arn, self._secrets_arn("*")
        )

    def _secrets_arn(self, name: str) -> str:
        prefix = self._stage.parameter_prefix.strip("/")
        return self.format_arn(
            service="ssm", resource="parameter", resource_name=f"{prefix}/secrets/{name}"
        )

    def _create_network(self) -> tuple[list[str], list[str]]:
        """Return the subnets and security groups of tasks."""
        if self._stage.vpc is not None:
            return list(self._stage.vpc.subnets), list(self._stage.vpc.security_groups)
        vpc = ec2.Vpc(
            self,
            "Vpc",
            max_azs=AVAILABILITY_ZONES,
            nat_gateways=0,
            restrict_default_security_group=False,
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Tasks", subnet_type=ec2.SubnetType.PUBLIC, map_public_ip_on_launch=False
                )
            ],
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(service=ec2.GatewayVpcEndpointAwsService.S3)
            },
        )
        acknowledge(vpc, "Flow logs cost money. No rule lets a packet in.", "AwsSolutions-VPC7")
        group = ec2.SecurityGroup(
            self,
            "Tasks",
            vpc=vpc,
            description=f"Tasks of {self._stage.prefix}: out, and nothing in",
            allow_all_outbound=True,
        )
        return [subnet.subnet_id for subnet in vpc.public_subnets], [group.security_group_id]

    def _create_rules(self, data: Data) -> None:
        self.sweep_rule = ScheduleRule(
            self,
            "Sweep",
            stage=self._stage,
            name="sweep",
            description="The sweep over running containers, each minute",
            schedule=events.Schedule.rate(Duration.minutes(1)),
            function=self.function,
            retries=1,
            max_event_age=Duration.seconds(60),
            dropped_events_reason=NEXT_SWEEP_REASON,
        )
        self._create_event_rule(
            "TaskChanges",
            "task-changes",
            "State changes of tasks in the cluster",
            None,
            events.EventPattern(
                source=[ECS_SOURCE],
                detail_type=[ECS_EVENT_TYPE],
                detail={"clusterArn": [self.cluster.attr_arn]},
            ),
        )
        self._create_event_rule(
            "StopRequests",
            "stop-requests",
            "Cancel requests of runs in containers",
            data.bus,
            events.EventPattern(source=["punctual"], detail_type=[STOP_REQUESTED]),
        )

    def _create_event_rule(
        self,
        construct_id: str,
        name: str,
        description: str,
        bus: events.IEventBus | None,
        pattern: events.EventPattern,
    ) -> None:
        rule = events.Rule(
            self,
            construct_id,
            rule_name=self._stage.resource_name(name),
            description=description,
            event_bus=bus,
            event_pattern=pattern,
            targets=[
                targets.LambdaFunction(
                    self.function.function, retry_attempts=3, max_event_age=Duration.minutes(5)
                )
            ],
        )
        acknowledge(rule, NEXT_SWEEP_REASON, "Serverless-EventBusDLQ")


def _long_queues(scheduling: Scheduling) -> Iterator[str]:
    """Yield the queues that runs of containers go back to."""
    return (lane.queue.queue_arn for lane in scheduling.lanes if lane.lane == CONTAINER_LANE)
