"""The first deployment of a stage: new stacks are not protected, so that they can roll back.

CloudFormation leaves a stack that it could not create in ROLLBACK_COMPLETE. The stack must be
deleted and created again. Protection would forbid the deletion and the rollback of a table. So a
second pass protects the stacks.
"""

from collections.abc import Collection, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.config.stage import Stage
from infra.operations.account import NotReady
from infra.operations.output import Say

STACK_SUFFIXES = ("Data", "Scheduling", "Execution", "Api", "Observability")
FAILED_STACK_STATES = (
    "CREATE_FAILED",
    "ROLLBACK_COMPLETE",
    "ROLLBACK_FAILED",
    "REVIEW_IN_PROGRESS",
)
BUSY_STACK_STATES = ("CREATE_IN_PROGRESS", "ROLLBACK_IN_PROGRESS", "DELETE_IN_PROGRESS")
FAILED_DEPLOYMENT_PAGE = "docs/runbook.md, *A first deployment that failed*"

FUNCTIONS_BY_STACK = {
    "Scheduling": ("planner", "poller", "reconciler", "operations"),
    "Execution": ("executor-quick", "executor-long", "dead-letters", "status"),
    "Api": ("authorizer", "job-service", "job-search", "claims"),
}
"""Functions by stack. The names of their log groups must be free in the account."""


def stack_name(stage: Stage, stack: str) -> str:
    return f"Punctual-{stage.name}-{stack}"


def missing_stacks(session: Any, stage: Stage, say: Say) -> tuple[str, ...]:
    """Return the stacks that do not exist; remove the protection of failed stacks.

    The CDK's command line deletes a failed stack before it creates it again.
    """
    client = session.client("cloudformation")
    missing = []
    for stack in STACK_SUFFIXES:
        name = stack_name(stage, stack)
        description = _describe_stack(client, name)
        if description is None:
            missing.append(stack)
        elif description["StackStatus"] in FAILED_STACK_STATES:
            missing.append(stack)
            say(
                f"{name} could not be created before ({description['StackStatus']}). "
                "It is created again."
            )
            if description.get("EnableTerminationProtection"):
                client.update_termination_protection(
                    StackName=name, EnableTerminationProtection=False
                )
                say(f"{name} was never complete. Its protection from deletion is removed.")
        elif description["StackStatus"] in BUSY_STACK_STATES:
            raise NotReady(f"{name} is busy ({description['StackStatus']}). Wait until it is done")
    return tuple(missing)


def check_log_groups(session: Any, stage: Stage, missing: Collection[str]) -> None:
    """Raise if log groups of an earlier stage have the names of the missing stacks.

    CloudFormation would fail on them one by one, with a rollback each time.
    """
    client = session.client("logs")
    existing = {
        group["logGroupName"]
        for prefix in _log_prefixes(stage)
        for page in client.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
        for group in page["logGroups"]
    }
    conflicting = [name for name in log_groups(stage, missing) if name in existing]
    if conflicting:
        commands = "\n".join(
            f"  aws logs delete-log-group --log-group-name {log_group}" for log_group in conflicting
        )
        raise NotReady(
            f"log groups of an earlier stage {stage.name} exist, and a new stack cannot use their "
            f"names. Export the logs that you need, then delete them:\n{commands}"
        )


def log_groups(stage: Stage, stacks: Collection[str]) -> list[str]:
    names = [
        stage.function_log_group(name)
        for stack in STACK_SUFFIXES
        if stack in stacks
        for name in FUNCTIONS_BY_STACK.get(stack, ())
    ]
    return names + ([stage.api_log_group] if "Api" in stacks else [])


def unprotected_option(missing: Sequence[str]) -> list[str]:
    """Return the option that creates the missing stacks without protection."""
    return [f"--context=unprotected={','.join(missing)}"] if missing else []


def _describe_stack(client: Any, name: str) -> dict[str, Any] | None:
    try:
        (description,) = client.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if "does not exist" in str(error):
            return None
        raise
    return dict(description)


def _log_prefixes(stage: Stage) -> tuple[str, str]:
    return stage.function_log_group(""), stage.api_log_group
