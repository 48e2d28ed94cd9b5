"""Least privilege, proved: a whole life's calls against the policies in the templates."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from bench.meter import Call, short
from tests.life.everything import lived
from tests.life.privilege import Grant, Right, Statement, allowed, grants, is_wide, needed, unused
from tests.life.world import World, a_world

ABOUT = {"aws:SecureTransport": "true"}

MADE = "Lambda asks it once, when an event source is made"
LOOKED = (
    "whoever looks at a job takes all four steps with it: a timer, the head, history and what a "
    "holder that died left of it, messages of any lane; which of them a look needs is the job's "
    "to say"
)
TWIN = "the code is executor-quick's, which uses it; which lane a task waits in is its timeout's"
LOGS = "what a task writes is a log; none of `event`, `http`, `lambda`, `sqs` writes any yet"

STEPS = frozenset(
    {
        ("dynamodb:BatchGetItem", "jobs"),
        ("dynamodb:PutItem", "jobs"),
        ("dynamodb:UpdateItem", "jobs"),
        ("dynamodb:BatchWriteItem", "timers"),
        ("dynamodb:UpdateItem", "timers"),
        ("dynamodb:BatchGetItem", "runs"),
        ("dynamodb:BatchWriteItem", "runs"),
        ("dynamodb:Query", "runs"),
        ("dynamodb:BatchGetItem", "control"),
        ("sqs:SendMessage", "quick.fifo"),
        ("sqs:SendMessage", "long.fifo"),
        ("sqs:SendMessage", "wake"),
        ("s3:GetObject", "outputs"),
        ("s3:ListBucket", "bucket"),
    }
)
STEPPING = (
    "poller",
    "reconciler",
    "executor-quick",
    "executor-long",
    "dead-letters",
    "job-service",
)

UNUSED: Mapping[tuple[str, str, str], str] = {
    **{(name, *step): LOOKED for name in STEPPING for step in STEPS},
    **{
        (name, "sqs:GetQueueAttributes", queue): MADE
        for name, queue in (
            ("poller", "wake"),
            ("executor-quick", "quick.fifo"),
            ("executor-long", "long.fifo"),
        )
    },
    ("status", "dynamodb:ListStreams", "*"): MADE,
    **{
        ("executor-long", action, what): TWIN
        for action, what in (
            ("sqs:SendMessage", "task-*"),
            ("lambda:InvokeFunction", "task-*"),
            ("secretsmanager:GetSecretValue", "secrets"),
            ("ssm:GetParameter", "secrets"),
            ("s3:PutObject", "outputs"),
            ("s3:GetObject", "payloads"),
        )
    },
    ("executor-long", "sqs:ChangeMessageVisibility", "long.fifo"): "what is early is handed back",
    ("executor-quick", "sqs:ChangeMessageVisibility", "quick.fifo"): "what is early is handed back",
    ("executor-quick", "s3:PutObject", "logs"): LOGS,
    ("executor-long", "s3:PutObject", "logs"): LOGS,
    ("job-search", "s3:GetObject", "logs"): LOGS,
    ("job-search", "s3:ListBucket", "bucket"): "else a blob that is gone would be a 500, not a 404",
    ("status", "dynamodb:Query", "runs"): "attempts, for an end whose line of history is late",
}
"""Granted, not used in this life, and needed all the same: by function, action and resource."""

WIDE: Mapping[tuple[str, str], str] = {
    ("status", "dynamodb:ListStreams"): "AWS knows no resource for it",
    ("executor-quick", "lambda:InvokeFunction"): "`tasksMayReach` names functions by prefix",
    ("executor-long", "lambda:InvokeFunction"): "`tasksMayReach` names functions by prefix",
    ("executor-quick", "sqs:SendMessage"): "`tasksMayReach` names queues by prefix",
    ("executor-long", "sqs:SendMessage"): "`tasksMayReach` names queues by prefix",
    ("executor-quick", "secretsmanager:GetSecretValue"): "secrets of the stage, named in tasks",
    ("executor-long", "secretsmanager:GetSecretValue"): "secrets of the stage, named in tasks",
    ("executor-quick", "ssm:GetParameter"): "secrets of the stage, named in tasks",
    ("executor-long", "ssm:GetParameter"): "secrets of the stage, named in tasks",
}
"""Granted on more than one resource: by function and action, and what bounds it."""


class Life:
    """What was called in it, by whom, and what they may do."""

    def __init__(self, world: World) -> None:
        self._prefix = f"punctual-{world.stage}-"
        self.calls: Sequence[Call] = list(world.meter.calls)
        self.policies = world.deployed.policies

    def rights(self) -> set[Right]:
        return {
            right for call in self.calls if call.role in self.policies for right in needed(call)
        }

    def denied(self, policies: Mapping[str, Sequence[Statement]]) -> list[Right]:
        return sorted(
            right for right in self.rights() if not allowed(right, policies[right.role], ABOUT)
        )

    def granted(self) -> list[Grant]:
        return [one for role, some in self.policies.items() for one in grants(role, some)]

    def short(self, grant: Grant) -> tuple[str, str]:
        return grant.role.removeprefix(self._prefix), grant.action

    def named(self, grant: Grant) -> tuple[str, str, str]:
        """With its resource as the table above names it."""
        last = grant.resource.removesuffix("/*").rsplit(":", 1)[-1].rsplit("/", 1)[-1]
        if grant.action.startswith("dynamodb:") and last != "*":
            last = short(grant.resource.rsplit("/", 1)[-1])
        elif grant.action == "s3:ListBucket":
            last = "bucket"
        elif "secret" in grant.resource:
            last = "secrets"
        return *self.short(grant), last.removeprefix(self._prefix)


@pytest.fixture(scope="module")
def life() -> Iterator[Life]:
    with a_world() as world:
        lived(world)
        yield Life(world)


def test_nothing_that_a_function_calls_is_denied(life: Life) -> None:
    assert {right.role for right in life.rights()} == set(life.policies)
    assert life.denied(life.policies) == []


def test_a_right_that_is_missing_is_found(life: Life) -> None:
    """Each action that was used, taken away, denies something."""
    for role in life.policies:
        used = {right.action for right in life.rights() if right.role == role}
        assert used
        for action in used:
            short = [
                {**one, "Action": [name for name in _actions(one) if name != action]}
                for one in life.policies[role]
            ]
            found = life.denied({**life.policies, role: short})
            assert {right.action for right in found} == {action}, (role, action)


def test_what_is_granted_is_used_or_there_is_a_reason(life: Life) -> None:
    left = {life.named(one) for one in unused(life.granted(), life.rights())}
    unreasoned = sorted(left - UNUSED.keys())
    assert unreasoned == [], "\n".join(" ".join(one) for one in unreasoned)
    granted = {life.named(one) for one in life.granted()}
    assert sorted(UNUSED.keys() - granted) == [], "these are not granted any more"


def test_what_is_granted_on_more_than_one_thing_has_a_reason(life: Life) -> None:
    wide = [one for one in life.granted() if is_wide(one)]
    assert {life.short(one) for one in wide} == set(WIDE)


def _actions(statement: Statement) -> list[str]:
    actions = statement["Action"]
    return list(actions) if isinstance(actions, list) else [actions]
