"""The stack that shows the state of the others: dashboard, alarms, saved queries, budget."""

from aws_cdk import ArnFormat, CfnOutput, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.config.stage import Stage
from infra.constructs.console_links import link_dashboard, link_saved_queries
from infra.nag_suppressions import acknowledge
from infra.stacks.api import Api
from infra.stacks.containers import Containers
from infra.stacks.data import Data
from infra.stacks.execution import Execution
from infra.stacks.observability.alarms import Alarms
from infra.stacks.observability.budget import Budget
from infra.stacks.observability.dashboard import create_dashboard
from infra.stacks.observability.metrics import WatchedResources
from infra.stacks.observability.queries import Queries
from infra.stacks.scheduling import Scheduling

CLOUDWATCH_PRINCIPAL = "cloudwatch.amazonaws.com"


class Observability(Stack):
    """No other stack depends on it, so it can be removed and created again at any time."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: Stage,
        data: Data,
        scheduling: Scheduling,
        execution: Execution,
        api: Api,
        containers: Containers | None = None,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            description=f"Punctual ({stage.name}): dashboard, alarms and saved queries",
            termination_protection=stage.protects("Observability"),
        )
        for observed_stack in (data, scheduling, execution, api):
            self.add_stack_dependency(observed_stack)
        functions = {**scheduling.functions, **execution.functions, **api.functions}
        if containers is not None:
            self.add_stack_dependency(containers)
            functions |= containers.functions
        watched = WatchedResources(
            functions=tuple(functions),
            script_functions=tuple(execution.script_functions),
            lanes={lane_queue.name: lane_queue.lane for lane_queue in scheduling.lanes},
            tables=_table_names(data),
            api=api.gateway.api.ref,
        )
        alarms = self._create_alarms(stage, watched) if stage.alarms else None
        if stage.dashboard:
            link_dashboard(self, stage.prefix)
            shown_alarms = alarms.alarms if alarms else []
            create_dashboard(self, "Dashboard", stage=stage, watched=watched, alarms=shown_alarms)
        dollars, email = stage.budget_dollars, stage.alarm_email
        if dollars is not None and email is not None:
            Budget(self, "Budget", stage=stage, dollars=dollars, email=email)
        Queries(self, "Queries", stage=stage, functions=watched.functions)
        link_saved_queries(self, stage.prefix)

    def _create_alarms(self, stage: Stage, watched: WatchedResources) -> Alarms:
        topic = self._create_topic(stage)
        if stage.alarm_email is not None:
            subscription = topic.add_subscription(
                subscriptions.EmailSubscription(stage.alarm_email)
            )
            acknowledge(
                subscription,
                "A failed mail needs no queue, because the console shows the alarm too.",
                "Serverless-SNSRedrivePolicy",
            )
        CfnOutput(
            self,
            "AlarmTopic",
            value=topic.topic_arn,
            description="The topic of the alarms. Subscribe the engineer on call",
        )
        return Alarms(self, "Alarms", stage=stage, watched=watched, topic=topic)

    def _create_topic(self, stage: Stage) -> sns.Topic:
        key = kms.Key(
            self,
            "Key",
            description=f"Encrypts the messages of the alarms of Punctual ({stage.name})",
            # The policy of the SNS managed key is fixed and does not allow CloudWatch.
            enable_key_rotation=True,
            # All messages encrypted with the key are delivered by then.
            removal_policy=RemovalPolicy.DESTROY,
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(CLOUDWATCH_PRINCIPAL)],
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=["*"],
            )
        )
        topic = sns.Topic(
            self,
            "Topic",
            topic_name=stage.resource_name("alarms"),
            display_name=f"Punctual ({stage.name})",
            master_key=key,
            enforce_ssl=True,
        )
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal(CLOUDWATCH_PRINCIPAL)],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={
                    "StringEquals": {"aws:SourceAccount": self.account},
                    "ArnLike": {
                        "aws:SourceArn": self.format_arn(
                            service="cloudwatch",
                            resource="alarm",
                            resource_name=stage.resource_name("*"),
                            arn_format=ArnFormat.COLON_RESOURCE_NAME,
                        )
                    },
                },
            )
        )
        return topic


def _table_names(data: Data) -> dict[str, str]:
    tables = {
        "jobs": data.jobs,
        "timers": data.timers,
        "runs": data.runs,
        "control": data.control,
        "audit": data.audit,
        "lists": data.lists,
    }
    return {name: table.table.table_name for name, table in tables.items()}
