"""make rights: what each function may do, why what nobody used, and why on so much."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from infra.stage import FUNCTIONS
from tests.life.everything import lived
from tests.life.granted import Grant, Named, grants, is_wide, named, unused
from tests.life.privilege import Right, Statement, needed
from tests.life.world import a_world

DOCUMENT = Path(__file__).parents[2] / "docs" / "rights.md"
STAGES = ("dev", "rehearsal", "prod")
LIVED = ("dev", "rehearsal")  # with one queue a lane, and with one for each priority and limits

MADE = "Lambda asks it when it begins to take from the queue: without, it takes nothing"
TRACED = "Lambda sends what it traced, and no code of ours: without, this function has no traces"
UNUSED: Mapping[Named, str] = {
    Named("poller", "sqs:GetQueueAttributes", "wake"): MADE,
    **{
        Named("executor-quick", "sqs:GetQueueAttributes", queue): MADE
        for queue in ("quick.fifo", "quick-high.fifo", "quick-normal.fifo", "quick-low.fifo")
    },
    Named("executor-long", "sqs:GetQueueAttributes", "long.fifo"): MADE,
    Named("reconciler", "dynamodb:UpdateItem", "control, rows *#totals"): (
        "to correct a count that is wrong: no life has a tenant that rests for an hour"
    ),
    Named("status", "dynamodb:ListStreams", "*"): (
        "Lambda asks it when it begins to read the stream: without, it reads nothing"
    ),
    **{
        Named(function, f"xray:{action}", "*"): TRACED
        for function in FUNCTIONS
        for action in ("PutTraceSegments", "PutTelemetryRecords")
    },
}
"""Granted, not used in these lives, and needed all the same."""

OBJECTS = "named by tenant and job, of which one function serves all: "
WIDE: Mapping[tuple[str, str], str] = {
    ("s3:GetObject", "outputs/*"): f"{OBJECTS}what a run left, and what a holder that died packed",
    ("s3:GetObject", "logs/*"): f"{OBJECTS}what a run printed",
    ("s3:GetObject", "payloads/*"): f"{OBJECTS}a payload too large for its row",
    ("s3:PutObject", "outputs/*"): f"{OBJECTS}what runs leave",
    ("s3:PutObject", "payloads/*"): f"{OBJECTS}a payload too large for its row",
    ("s3:DeleteObject", "payloads/*"): f"{OBJECTS}those of a job that is gone",
    ("logs:CreateLogStream", "its log group, *"): "streams of its own log group, named by Lambda",
    ("logs:PutLogEvents", "its log group, *"): "streams of its own log group, named by Lambda",
    ("dynamodb:ListStreams", "*"): "AWS lists the streams of all tables or none",
    ("xray:PutTraceSegments", "*"): "X-Ray has no resources",
    ("xray:PutTelemetryRecords", "*"): "X-Ray has no resources",
    ("lambda:InvokeFunction", "function:task-*"): "`tasksMayReach` names functions by prefix",
    ("sqs:SendMessage", "task-*"): "`tasksMayReach` names queues by prefix",
    ("secretsmanager:GetSecretValue", "secret:punctual/STAGE/*"): (
        "tasks name secrets; each tenant's begin with its own name, which the function sees to"
    ),
    ("ssm:GetParameter", "parameter/punctual/STAGE/secrets/*"): (
        "tasks name secrets; each tenant's begin with its own name, which the function sees to"
    ),
}
"""Granted on more than one thing: what is in it, or what bounds it."""


class Stage(NamedTuple):
    policies: Mapping[str, Sequence[Statement]]
    granted: Mapping[Named, Grant]
    rights: frozenset[Right]  # that a life took; none where it was not lived


@cache
def seen(stage: str) -> Stage:
    with a_world(stage) as world:
        if stage in LIVED:
            lived(world)
        policies = world.deployed.policies
        calls = [call for call in world.meter.calls if call.role in policies]
    granted = [one for role, some in policies.items() for one in grants(role, some)]
    return Stage(
        policies,
        {named(one, stage): one for one in granted},
        frozenset(right for call in calls for right in needed(call)),
    )


@cache
def granted() -> Mapping[Named, Sequence[str]]:
    """Where, of all stages."""
    found: dict[Named, list[str]] = {}
    for stage in STAGES:
        for one in seen(stage).granted:
            found.setdefault(one, []).append(stage)
    return found


@cache
def used() -> frozenset[Named]:
    """In any of the lives: what a function does is not the stage's to say."""
    return frozenset(
        name
        for stage in LIVED
        for name, grant in seen(stage).granted.items()
        if not unused([grant], seen(stage).rights)
    )


@cache
def wide() -> frozenset[Named]:
    return frozenset(
        name for stage in STAGES for name, one in seen(stage).granted.items() if is_wide(one)
    )


def document() -> str:
    return "\n".join([*_head(), *(line for name in FUNCTIONS for line in _about(name))]) + "\n"


def _head() -> Iterator[str]:
    yield "# What each function may do"
    yield ""
    yield (
        "Generated by `make rights` from the policies in the templates of the stages "
        f"{', '.join(f'`{one}`' for one in STAGES)}; a test compares it. Two lives with everything "
        "in it that a deployment does, crashes and what they leave included, are lived on "
        f"{' and '.join(f'`{one}`' for one in LIVED)} "
        "(`tests/life/everything.py`); what a function calls is recorded at the boto3 boundary, "
        "and batches and transactions count as the actions that they need. Every test in which a "
        "function calls what its policies deny fails (`tests/life/world.py`)."
    )
    yield ""
    left, on_many = granted().keys() - used(), wide()
    yield (
        f"Of {len(granted())} grants, an action on a resource each, {len(left)} were not used in "
        f"these lives: what for is said beside them. {len(on_many)} are on more than one thing, "
        "each with what bounds it. Nothing else is allowed to anybody; what is denied besides, "
        "whatever a stage says, is in `infra/rights.py`."
    )


def _about(function: str) -> Iterator[str]:
    yield ""
    yield f"## {function}"
    yield ""
    yield "| on | may | where | not used, because | on so much, because |"
    yield "|---|---|---|---|---|"
    mine = [one for one in granted() if one.function == function]
    for (what, *notes), some in groupby(sorted(mine, key=_row), key=_row):
        may = ", ".join(one.action for one in some)
        yield f"| {what} | {may} | {' | '.join(notes)} |"


def _row(one: Named) -> tuple[str, ...]:
    """What grants have in common that are told together."""
    where = granted()[one]
    return (
        one.what.replace("*", "\\*"),
        "" if len(where) == len(STAGES) else ", ".join(where),
        "" if one in used() else UNUSED[one],
        WIDE[one.action, one.what] if one in wide() else "",
    )


if __name__ == "__main__":
    DOCUMENT.write_text(document())
    print(f"{DOCUMENT.name} is written")
