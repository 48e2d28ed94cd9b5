"""Checks of the AWS account before a deployment; each failure is one line."""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from infra.config.concurrency import PERCENT_LEAST
from infra.config.stage import Stage

BOOTSTRAP = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_LEAST = 6
UNRESERVED_LEAST = 100
"""Executions that Lambda keeps free for functions without a reservation."""

CONCURRENT_EXECUTIONS = "L-B99A9384"
"""Lambda's limit of executions at a time, as Service Quotas names it."""


class NotReady(RuntimeError):
    """The account is not ready: the reason and the remedy, in one line."""


def account_of(session: Any) -> tuple[str, str]:
    """Return the account and region of the credentials; raise if they do not work."""
    region = session.region_name
    if not region:
        raise NotReady("no region is set: AWS_REGION=eu-central-1, or `aws configure`")
    try:
        account = str(session.client("sts").get_caller_identity()["Account"])
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"no working AWS credentials: {_line(error)}") from error
    return account, str(region)


def check_bootstrap(session: Any, account: str, region: str) -> None:
    """Raise unless the CDK's bucket and roles exist in the account."""
    mend = f"run: node_modules/.bin/cdk bootstrap aws://{account}/{region}"
    try:
        found = parameter(session.client("ssm"), BOOTSTRAP)
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"{BOOTSTRAP} could not be read: {_line(error)}") from error
    if found is None:
        raise NotReady(f"account {account} is not bootstrapped in {region}; {mend}")
    if int(found) < BOOTSTRAP_LEAST:
        raise NotReady(f"account {account} has an old bootstrap ({found}) in {region}; {mend}")


def check_concurrency(session: Any, stage: Stage, account: str, region: str) -> str:
    """Return a warning or nothing; raise if the account cannot reserve the executions.

    CloudFormation would fail only at the last function, and roll back.
    """
    client = session.client("lambda")
    try:
        limits = client.get_account_settings()["AccountLimit"]
        ours = _reserved_now(client, stage)
    except (BotoCoreError, ClientError) as error:
        raise NotReady(f"Lambda's limits could not be read: {_line(error)}") from error
    limit, unreserved = limits["ConcurrentExecutions"], limits["UnreservedConcurrentExecutions"]
    others = max(0, limit - unreserved - ours)
    free = max(0, limit - others - UNRESERVED_LEAST)
    if stage.concurrency.total > free:
        raise NotReady(_too_few(stage, f"account {account} in {region}", limit, others, free))
    return _crowded(stage, limit - others - stage.concurrency.total)


def _reserved_now(client: Any, stage: Stage) -> int:
    """Return the executions that the deployed functions of the stage reserve."""
    found = 0
    for name in stage.memory:
        try:
            answer = client.get_function_concurrency(FunctionName=stage.physical(name))
        except client.exceptions.ResourceNotFoundException:
            continue
        found += answer.get("ReservedConcurrentExecutions", 0)
    return found


def _too_few(stage: Stage, where: str, limit: int, others: int, free: int) -> str:
    total = stage.concurrency.total
    smaller = stage.concurrency.fitting(free)
    wanted = total + UNRESERVED_LEAST + others
    lower = (
        f"set `concurrencyPercent` of {stage.name} to {smaller.percent} in cdk.json, which "
        f"reserves {smaller.total}"
        if smaller
        else f"reserve nothing: even `concurrencyPercent` {PERCENT_LEAST} is too much here, so set "
        "`reservedConcurrency` to {} and `lanes` as in dev"
    )
    return (
        f"stage {stage.name} reserves {total} executions of Lambda, and Lambda keeps "
        f"{UNRESERVED_LEAST} free. {where} has a limit of {limit}, of which other functions "
        f"reserve {others}: {free} can be reserved. Ask AWS for a limit of {wanted} (an answer may "
        "take days): aws service-quotas request-service-quota-increase --service-code lambda "
        f"--quota-code {CONCURRENT_EXECUTIONS} --desired-value {wanted}. Or {lower}"
    )


def _crowded(stage: Stage, free: int) -> str:
    """Return a warning if executors and pollers may take all unreserved executions."""
    asked = 0 if "poller" in stage.reserved else stage.pollers
    asked += sum(
        sum(queues.values())
        for lane, queues in stage.lanes.items()
        if f"executor-{lane}" not in stage.reserved
    )
    if asked < free:
        return ""
    return (
        f"Warning: executors and pollers of {stage.name} may take {asked} executions at a time, "
        f"and {free} are free in this account. While all of them work, the planner and the API "
        "wait: ask AWS for a higher limit, or lower `lanes` in cdk.json"
    )


def parameter(ssm: Any, name: str) -> str | None:
    try:
        return str(ssm.get_parameter(Name=name)["Parameter"]["Value"])
    except ssm.exceptions.ParameterNotFound:
        return None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
