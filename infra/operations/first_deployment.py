"""The first deployment of a stage: new stacks are not protected, so that they can roll back.

CloudFormation leaves a stack that it could not create in ROLLBACK_COMPLETE. The stack must be
deleted and created again. Protection would forbid the deletion and the rollback of a table. So a
second pass protects the stacks.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.config.stage import Stage
from infra.operations.account import NotReady

STACKS = ("Data", "Scheduling", "Execution", "Api", "Observability")
FAILED_STACK_STATES = (
    "CREATE_FAILED",
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "REVIEW_IN_PROGRESS",
)
BUSY_STACK_STATES = ("CREATE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS", "DELETE_IN_PROGRESS")
FAILED_DEPLOYMENT_PAGE = "docs/runbook.md, *A first deployment that failed*"

LOGS = {
    "Scheduling": ("planner", "poller", "reconciler"),
    "Execution": ("executor-quick", "executor-long", "dead-letters", "status"),
    "Api": ("authorizer", "job-service", "job-search"),
}
"""Functions by stack. The names of their log groups must be free in the account."""

Say = Callable[[str], None]


def stack_name(stage: Stage, stack: str) -> str:
    return f"Punctual-{stage.name}-{stack}"


def missing_stacks(session: Any, stage: Stage, say: Say) -> tuple[str, ...]:
    """Return the stacks that do not exist; remove the protection of failed stacks.

    The CDK's command line deletes a failed stack before it creates it again.
    """
    client = session.client("cloudformation")
    found = []
    for stack in STACKS:
        name = stack_name(stage, stack)
        state = _state(client, name)
        if state is None:
            found.append(stack)
        elif state["StackStatus"] in FAILED_STACK_STATES:
            found.append(stack)
            say(f"{name} could not be created before ({state['StackStatus']}): it is made anew.")
            if state.get("EnableTerminationProtection"):
                client.update_termination_protection(
                    StackName=name, EnableTerminationProtection=False
                )
                say(f"{name} was protected from deletion; it never stood, so it is not any more.")
        elif state["StackStatus"] in BUSY_STACK_STATES:
            raise NotReady(f"{name} is still at work ({state['StackStatus']}): wait for its end")
    return tuple(found)


def check_logs(session: Any, stage: Stage, missing: Collection[str]) -> None:
    """Raise if log groups of an earlier stage have the names of the missing stacks.

    CloudFormation would fail on them one by one, with a rollback each time.
    """
    client = session.client("logs")
    standing = {
        group["logGroupName"]
        for prefix in _log_prefixes(stage)
        for page in client.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
        for group in page["logGroups"]
    }
    left = [name for name in log_groups(stage, missing) if name in standing]
    if left:
        commands = "\n".join(f"  aws logs delete-log-group --log-group-name {one}" for one in left)
        raise NotReady(
            f"an earlier stage {stage.name} left its logs, and a new stack cannot take their "
            f"names. Export what you want to keep, then delete them:\n{commands}"
        )


def log_groups(stage: Stage, stacks: Collection[str]) -> list[str]:
    names = [
        f"/aws/lambda/{stage.physical(name)}"
        for stack in STACKS
        if stack in stacks
        for name in LOGS.get(stack, ())
    ]
    return names + ([f"/aws/vendedlogs/{stage.physical('api')}"] if "Api" in stacks else [])


def unprotected(missing: Sequence[str]) -> list[str]:
    """Return the option that creates the missing stacks without protection."""
    return [f"--context=unprotected={','.join(missing)}"] if missing else []


def _state(client: Any, name: str) -> dict[str, Any] | None:
    try:
        (state,) = client.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return dict(state)


def _log_prefixes(stage: Stage) -> tuple[str, str]:
    return f"/aws/lambda/{stage.prefix}-", f"/aws/vendedlogs/{stage.prefix}-"
