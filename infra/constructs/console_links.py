"""Links into the AWS console, as outputs of the stacks.

They hold for the commercial regions. AWS has other host names in China and GovCloud.
"""

from aws_cdk import CfnOutput, Stack

from infra.iam import OUTPUTS_PREFIX


def link_dashboard(stack: Stack, name: str) -> None:
    """Add an output that leads to a CloudWatch dashboard."""
    url = f"{_cloudwatch_url(stack)}#dashboards/dashboard/{name}"
    CfnOutput(stack, "DashboardLink", value=url, description="The CloudWatch dashboard")


def link_saved_queries(stack: Stack, folder: str) -> None:
    """Add an output that leads to CloudWatch Logs Insights, where the queries are saved."""
    CfnOutput(
        stack,
        "SavedQueriesLink",
        value=f"{_cloudwatch_url(stack)}#logsV2:logs-insights",
        description=f"Logs Insights: the saved queries are in the folder {folder}",
    )


def link_outputs(stack: Stack, bucket: str) -> None:
    """Add an output that leads to the outputs of runs in S3."""
    query = f"region={stack.region}&prefix={OUTPUTS_PREFIX}"
    CfnOutput(
        stack,
        "OutputsLink",
        value=f"https://{stack.region}.console.aws.amazon.com/s3/buckets/{bucket}?{query}",
        description="The outputs of runs in S3: tenant, job, run, attempt",
    )


def _cloudwatch_url(stack: Stack) -> str:
    region = stack.region
    return f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
