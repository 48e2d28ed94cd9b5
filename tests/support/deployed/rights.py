"""Write docs/rights.md for `make rights`: each function's rights, with reasons for unusual ones."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from infra.config.stage import FUNCTION_NAMES
from infra.stacks.containers import CONTAINERS_FUNCTION
from punctual.lambdas.containers.start_files import START_FILES
from tests.support.deployed.full_scenario import play_all_features
from tests.support.deployed.grants import Grant, Named, grants, is_wide, named, unused
from tests.support.deployed.privilege import Right, Statement, needed
from tests.support.deployed.world import a_world

DOCUMENT = Path(__file__).parents[3] / "docs" / "rights.md"
ALL_FUNCTIONS = (*FUNCTION_NAMES, CONTAINERS_FUNCTION)
STAGES = ("dev", "rehearsal", "prod")
PLAYED_STAGES = ("dev", "rehearsal")  # without limits, and with limits and two shards

SOURCE_SETUP = "Lambda needs it to start the event source of the queue"
UNUSED_REASONS: Mapping[Named, str] = {
    Named("poller", "sqs:GetQueueAttributes", "wake"): SOURCE_SETUP,
    Named("operations", "sqs:GetQueueAttributes", "operations"): SOURCE_SETUP,
    **{
        Named("executor-quick", "sqs:GetQueueAttributes", queue): SOURCE_SETUP
        for queue in ("quick-high.fifo", "quick-normal.fifo", "quick-low.fifo")
    },
    Named("executor-long", "sqs:GetQueueAttributes", "long.fifo"): SOURCE_SETUP,
    **{
        Named(function, "dynamodb:BatchWriteItem", "control, rows *#artifact_uses#*"): (
            "script jobs note that they use an artifact, and the walk removes the notes"
        )
        for function in ("job-service", "reconciler")
    },
    **{
        Named("containers", f"dynamodb:{action}", "runs"): (
            "an end that is recorded again first looks for its history row"
        )
        for action in ("BatchGetItem", "Query")
    },
    Named("operations", "dynamodb:UpdateItem", "timers"): (
        "a slice that fails in part removes some of the timers that share a row"
    ),
    Named("operations", "dynamodb:Query", "runs"): (
        "an end that is recorded again first looks for its history row"
    ),
    Named("executor-long", "s3:GetObject", "artifacts/*"): (
        "a script's link to its artifact has the rights of its signer"
    ),
    Named("executor-long", "s3:ListBucket", "the bucket"): (
        "parts of lost attempts are listed, and S3 answers 403 for a missing object without it"
    ),
    Named("reconciler", "dynamodb:BatchWriteItem", "lists, rows *#runs#*"): (
        "the walk writes the entries of runs that live longer than an hour again"
    ),
    Named("job-service", "dynamodb:BatchGetItem", "lists, rows *#jobcounts#*"): (
        "the jobs of a tenant with a limit of jobs are counted"
    ),
    **{
        Named(function, "dynamodb:PutItem", "lists, rows *#jobcounts#*"): (
            "a job that a crashed batch has not counted is counted alone"
        )
        for function in ("reconciler", "status")
    },
    Named("status", "dynamodb:ListStreams", "*"): (
        "Lambda needs it to start the event source of the stream"
    ),
}
"""Rights that these scenes do not use, with the reason they are granted."""

OBJECT_KEYS = "keys begin with tenant and job, and one function serves all: "
CONTENT_KEYS = "keys begin with tenant and content, and one function serves all: "
WIDE_REASONS: Mapping[tuple[str, str], str] = {
    ("s3:GetObject", "outputs/*"): f"{OBJECT_KEYS}outputs of runs",
    ("s3:GetObject", "logs/*"): f"{OBJECT_KEYS}logs of runs",
    ("s3:GetObject", "payloads/*"): f"{OBJECT_KEYS}payloads too large for their row",
    ("s3:PutObject", "outputs/*"): f"{OBJECT_KEYS}outputs of runs",
    ("s3:PutObject", "logs/*"): f"{OBJECT_KEYS}logs of runs",
    ("s3:DeleteObject", "outputs/*"): f"{OBJECT_KEYS}uploads of jobs that discard their output",
    ("s3:DeleteObject", "logs/*"): f"{OBJECT_KEYS}parts of logs that are merged",
    **{
        ("s3:DeleteObject", f"outputs/*/{name}"): f"{OBJECT_KEYS}what a task of ECS read"
        for name in START_FILES
    },
    ("s3:PutObject", "payloads/*"): f"{OBJECT_KEYS}payloads too large for their row",
    ("s3:DeleteObject", "payloads/*"): f"{OBJECT_KEYS}payloads of a deleted job",
    ("s3:GetObject", "artifacts/*"): f"{CONTENT_KEYS}whether an upload has arrived",
    ("s3:PutObject", "artifacts/*"): f"{CONTENT_KEYS}presigned uploads",
    ("s3:DeleteObject", "artifacts/*"): f"{CONTENT_KEYS}deleted artifacts",
    ("ecs:RunTask", "task-definition/*"): "each image and size has a definition of its own",
    ("ecs:RegisterTaskDefinition", "*"): "AWS has no resource for a registration",
    ("ecs:DeregisterTaskDefinition", "*"): "AWS has no resource for a deregistration",
    ("ecs:DescribeTasks", "task/punctual-STAGE/*"): "the tasks of the stage's cluster",
    ("ecs:StopTask", "task/punctual-STAGE/*"): "the tasks of the stage's cluster",
    ("ecs:ListTasks", "*"): "the condition names the stage's cluster",
    ("logs:GetLogEvents", "its log group, *"): "the streams of all containers",
    ("logs:CreateLogStream", "its log group, *"): "streams of its own log group, named by Lambda",
    ("logs:PutLogEvents", "its log group, *"): "streams of its own log group, named by Lambda",
    ("dynamodb:ListStreams", "*"): "AWS lists the streams of all tables or none",
    ("lambda:InvokeFunction", "function:task-*"): "`tasksMayReach` names functions by prefix",
    ("lambda:InvokeFunction", "function:acme-answers:*"): "a function's versions and aliases",
    ("sqs:SendMessage", "task-*"): "`tasksMayReach` names queues by prefix",
    ("secretsmanager:GetSecretValue", "secret:punctual/STAGE/*"): (
        "tasks name secrets; the function allows only names with the tenant's prefix"
    ),
    **{
        (action, "parameter/punctual/STAGE/secrets/*"): (
            "tenants name secrets; the function writes only below the caller's tenant"
        )
        for action in ("ssm:PutParameter", "ssm:DeleteParameter")
    },
    ("ssm:GetParameter", "parameter/punctual/STAGE/secrets/*"): (
        "tasks name secrets; the function allows only names with the tenant's prefix"
    ),
}
"""Rights on more than one resource, with the contents or the bound of the resource."""


class Stage(NamedTuple):
    policies: Mapping[str, Sequence[Statement]]
    granted: Mapping[Named, Grant]
    rights: frozenset[Right]  # rights that a scene used; empty if the stage was not played


@cache
def observed(stage: str) -> Stage:
    with a_world(stage) as world:
        if stage in PLAYED_STAGES:
            play_all_features(world)
        policies = world.deployed.policies
        calls = [call for call in world.meter.calls if call.role in policies]
    granted = [grant for role, statements in policies.items() for grant in grants(role, statements)]
    return Stage(
        policies,
        {named(grant, stage): grant for grant in granted},
        frozenset(right for call in calls for right in needed(call)),
    )


@cache
def all_grants() -> Mapping[Named, Sequence[str]]:
    """Return each grant with its stages."""
    stages_of: dict[Named, list[str]] = {}
    for stage in STAGES:
        for grant in observed(stage).granted:
            stages_of.setdefault(grant, []).append(stage)
    return stages_of


@cache
def used_grants() -> frozenset[Named]:
    """Return the grants that any stage's scenes used.

    A function's work does not depend on the stage.
    """
    return frozenset(
        name
        for stage in PLAYED_STAGES
        for name, grant in observed(stage).granted.items()
        if not unused([grant], observed(stage).rights)
    )


@cache
def wide_grants() -> frozenset[Named]:
    return frozenset(
        name
        for stage in STAGES
        for name, grant in observed(stage).granted.items()
        if is_wide(grant)
    )


def build_document() -> str:
    return "\n".join([*_head(), *(line for name in ALL_FUNCTIONS for line in _about(name))]) + "\n"


def _head() -> Iterator[str]:
    yield "# What each function may do"
    yield ""
    yield (
        "Generated by `make rights` from the policies in the templates of the stages "
        f"{', '.join(f'`{stage}`' for stage in STAGES)}; a test compares it. A scenario uses every "
        "feature, with crashes and their repair, on "
        f"{' and '.join(f'`{stage}`' for stage in PLAYED_STAGES)} "
        "(`tests/support/deployed/full_scenario.py`). The meter records the calls of each function "
        "at the boto3 boundary. Batches and transactions count as the actions that they need. "
        "Every test fails in which a function calls what its policies deny "
        "(`tests/support/deployed/world.py`)."
    )
    yield ""
    unused_grants, on_many = all_grants().keys() - used_grants(), wide_grants()
    yield (
        f"There are {len(all_grants())} grants of an action on a resource. "
        f"The scenario did not use {len(unused_grants)} of them, and {len(on_many)} cover more "
        "than one resource. The tables give a reason for each of these. Everything else is denied; "
        "`infra/iam.py` has explicit denials for all stages."
    )


def _about(function: str) -> Iterator[str]:
    yield ""
    yield f"## {function}"
    yield ""
    yield "| on | may | where | not used, because | on so much, because |"
    yield "|---|---|---|---|---|"
    mine = [grant for grant in all_grants() if grant.function == function]
    for (resource, *notes), row_grants in groupby(sorted(mine, key=_row), key=_row):
        may = ", ".join(grant.action for grant in row_grants)
        yield f"| {resource} | {may} | {' | '.join(notes)} |"


def _row(grant: Named) -> tuple[str, ...]:
    """Return the table cells of a grant. Grants with equal cells share a row."""
    where = all_grants()[grant]
    return (
        grant.resource.replace("*", "\\*"),
        "" if len(where) == len(STAGES) else ", ".join(where),
        "" if grant in used_grants() else UNUSED_REASONS[grant],
        WIDE_REASONS[grant.action, grant.resource] if grant in wide_grants() else "",
    )


if __name__ == "__main__":
    DOCUMENT.write_text(build_document())
    print(f"{DOCUMENT.name} is written")
