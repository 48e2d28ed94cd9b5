"""Checks of the AWS account before a deployment; each failure is one line."""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.config.concurrency import MIN_CONCURRENCY_PERCENT
from infra.config.stage import SCRIPT_FUNCTION_NAMES, Stage
from infra.operations.output import one_line

BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
MIN_BOOTSTRAP_VERSION = 6
MIN_UNRESERVED_EXECUTIONS = 100
"""Executions that Lambda keeps free for functions without a reservation."""

CONCURRENT_EXECUTIONS_QUOTA = "L-B99A9384"
"""Lambda's limit of executions at a time, as Service Quotas names it."""

MAX_DELETED_PARAMETERS = 10
"""Parameters that SSM deletes in one call."""


class NotReady(RuntimeError):
    """The account is not ready: the reason and the remedy, in one line."""


def account_of(session: Any) -> tuple[str, str]:
    """Return the account and region of the credentials; raise if they do not work."""
    region = session.region_name
    if not region:
        raise NotReady("no region is set. Set AWS_REGION=eu-central-1, or run `aws configure`")
    try:
        account = str(session.client("sts").get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"no working AWS credentials: {one_line(error)}") from error
    return account, str(region)


def check_bootstrap(session: Any, account: str, region: str) -> None:
    """Raise unless the CDK's bucket and roles exist in the account."""
    advice = f"run: node_modules/.bin/cdk bootstrap aws://{account}/{region}"
    try:
        version = read_parameter(session.client("ssm"), BOOTSTRAP_PARAMETER)
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"{BOOTSTRAP_PARAMETER} could not be read: {one_line(error)}") from error
    if version is None:
        raise NotReady(f"account {account} is not bootstrapped in {region}; {advice}")
    if int(version) < MIN_BOOTSTRAP_VERSION:
        raise NotReady(f"account {account} has an old bootstrap ({version}) in {region}; {advice}")


def check_concurrency(session: Any, stage: Stage, account: str, region: str) -> str:
    """Return a warning or nothing; raise if the account cannot reserve the executions.

    CloudFormation would fail only at the last function, and roll back.
    """
    client = session.client("lambda")
    try:
        limits = client.get_account_settings()["AccountLimit"]
        reserved_here = _reserved_by_stage(client, stage)
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"Lambda's limits could not be read: {one_line(error)}") from error
    limit, unreserved = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
    reserved_by_others = max(0, limit - unreserved - reserved_here)
    free_executions = max(0, limit - reserved_by_others - MIN_UNRESERVED_EXECUTIONS)
    if stage.concurrency.total_reserved > free_executions:
        raise NotReady(
            _reservation_problem(
                stage, f"account {account} in {region}", limit, reserved_by_others, free_executions
            )
        )
    return _crowding_warning(stage, limit - reserved_by_others - stage.concurrency.total_reserved)


def _reserved_by_stage(client: Any, stage: Stage) -> int:
    """Return the executions that the deployed functions of the stage reserve."""
    total = 0
    for name in (*stage.memory, *SCRIPT_FUNCTION_NAMES):
        try:
            answer = client.get_function_concurrency(FunctionName=stage.resource_name(name))
        except client.exceptions.ResourceNotFoundException:
            continue
        total += answer.get("ReservedConcurrentExecutions", 0)
    return total


def _reservation_problem(
    stage: Stage, account_text: str, limit: int, reserved_by_others: int, free_executions: int
) -> str:
    total = stage.concurrency.total_reserved
    smaller_concurrency = stage.concurrency.largest_fitting(free_executions)
    wanted_limit = total + MIN_UNRESERVED_EXECUTIONS + reserved_by_others
    alternative = (
        f"set `concurrencyPercent` of {stage.name} to {smaller_concurrency.percent} in "
        f"cdk.json, which reserves {smaller_concurrency.total_reserved}"
        if smaller_concurrency
        else f"reserve nothing, because even `concurrencyPercent` {MIN_CONCURRENCY_PERCENT} is too "
        "much here: set `reservedConcurrency` to {} and `lanes` as in dev"
    )
    return (
        f"stage {stage.name} reserves {total} executions of Lambda, and Lambda keeps "
        f"{MIN_UNRESERVED_EXECUTIONS} free. {account_text} has a limit of {limit}, of which "
        f"other functions reserve {reserved_by_others}: {free_executions} can be reserved. "
        f"Ask AWS for a limit of {wanted_limit} (an answer may take days): aws service-quotas "
        "request-service-quota-increase --service-code lambda "
        f"--quota-code {CONCURRENT_EXECUTIONS_QUOTA} --desired-value {wanted_limit}. "
        f"Or {alternative}"
    )


def _crowding_warning(stage: Stage, free_executions: int) -> str:
    """Return a warning if executors and pollers may take all unreserved executions."""
    max_used = 0 if "poller" in stage.reserved else stage.pollers
    max_used += sum(
        sum(queues.values())
        for lane, queues in stage.lanes.items()
        if f"executor-{lane}" not in stage.reserved
    )
    if max_used < free_executions:
        return ""
    return (
        f"Warning: executors and pollers of {stage.name} may take {max_used} executions at a "
        f"time, and {free_executions} are free in this account. While all of them work, the "
        "planner and the API wait. Ask AWS for a higher limit, or lower `lanes` in cdk.json"
    )


def read_parameter(ssm: Any, name: str) -> str | None:
    try:
        return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None


def delete_parameters_below(ssm: Any, path: str) -> int:
    """Delete all parameters below a path, and return their number."""
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=path, Recursive=True)
    names = [parameter["Name"] for page in pages for parameter in page["Parameters"]]
    for start in range(0, len(names), MAX_DELETED_PARAMETERS):
        ssm.delete_parameters(Names=names[start : start + MAX_DELETED_PARAMETERS])
    return len(names)


def delete_parameter(ssm: Any, name: str) -> None:
    try:
        ssm.delete_parameter(Name=name)
    except ssm.exceptions.ParameterNotFound:
        return  # an earlier destroy has removed it
