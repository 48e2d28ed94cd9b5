"""A log group of a stage, with the retention that the stage sets."""

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.config.stage import Stage


def create_log_group(scope: Construct, construct_id: str, name: str, stage: Stage) -> logs.LogGroup:
    group = logs.LogGroup(
        scope, construct_id, log_group_name=name, removal_policy=stage.removal_policy
    )
    cfn_log_group = group.node.default_child
    assert isinstance(cfn_log_group, logs.CfnLogGroup)
    cfn_log_group.retention_in_days = stage.log_retention_days
    return group
