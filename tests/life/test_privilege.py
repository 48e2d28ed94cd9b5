"""Least privilege, proved: a whole life's calls against the policies in the templates."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from bench.meter import Call
from tests.life.everything import lived
from tests.life.privilege import Grant, Right, Statement, allowed, grants, is_wide, needed, unused
from tests.life.world import World, a_world

ABOUT = {"aws:SecureTransport": "true"}

UNUSED: Mapping[tuple[str, str], str] = {
    ("*", "sqs:GetQueueAttributes"): "Lambda's poller asks it when an event source is made",
    ("status", "dynamodb:ListStreams"): "Lambda's poller asks it when an event source is made",
}
"""Granted and not used in this life: by function and action, and why it is needed all the same."""

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
    left = unused(life.granted(), life.rights())
    unreasoned = [one for one in left if not _reasoned(UNUSED, *life.short(one))]
    assert unreasoned == [], "\n".join(" ".join(one) for one in unreasoned)
    stale = {one for one in UNUSED if not any(_reasoned({one: ""}, *life.short(g)) for g in left)}
    assert stale == set(), "these are used by now, or not granted"


def test_what_is_granted_on_more_than_one_thing_has_a_reason(life: Life) -> None:
    wide = [one for one in life.granted() if is_wide(one)]
    unreasoned = [one for one in wide if not _reasoned(WIDE, *life.short(one))]
    assert unreasoned == [], "\n".join(" ".join(one) for one in unreasoned)
    assert set(WIDE) == {life.short(one) for one in wide}


def _reasoned(reasons: Mapping[tuple[str, str], str], function: str, action: str) -> bool:
    return (function, action) in reasons or ("*", action) in reasons


def _actions(statement: Statement) -> list[str]:
    actions = statement["Action"]
    return list(actions) if isinstance(actions, list) else [actions]
