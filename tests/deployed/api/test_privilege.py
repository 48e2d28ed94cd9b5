"""Least privilege: the recorded calls against the policies of the templates."""

from dataclasses import replace

import pytest

from tests.support.deployed.privilege import Statement, allowed, listed
from tests.support.deployed.rights import (
    DOCUMENT,
    PLAYED_STAGES,
    UNUSED_REASONS,
    WIDE_REASONS,
    all_grants,
    build_document,
    observed,
    used_grants,
    wide_grants,
)
from tests.support.deployed.world import MINUTE, a_world, conditions

SCRIPT_RUNTIMES = {"python", "node", "bash"}


def _growing_without_a_right() -> None:
    """Run a planner without the right to store the shard count. It continues without."""
    with a_world() as world:
        policies = dict(world.deployed.policies)
        name = world.name("planner")
        policies[name] = [
            _without(statement, "dynamodb:UpdateItem") for statement in policies[name]
        ]
        world.deployed = replace(world.deployed, policies=policies)
        world.put_knob("shards", "2")
        world.run(2 * MINUTE)


def test_world_fails_if_function_makes_denied_call() -> None:
    message = r"punctual-dev-planner may not dynamodb:UpdateItem on arn:aws:dynamodb:.*ControlTable"
    with pytest.raises(AssertionError, match=message):
        _growing_without_a_right()


@pytest.mark.parametrize("stage", PLAYED_STAGES)
def test_every_function_makes_calls_but_those_that_run_scripts(stage: str) -> None:
    policies = observed(stage).policies
    without_statements = {role for role, statements in policies.items() if not statements}
    assert {role.partition("-script-")[2] for role in without_statements} == SCRIPT_RUNTIMES
    assert {right.role for right in observed(stage).rights} == set(policies) - without_statements


@pytest.mark.parametrize("stage", PLAYED_STAGES)
def test_each_used_action_is_denied_without_its_grant(stage: str) -> None:
    """Without an action, exactly the calls that need it are denied."""
    about = conditions(stage)
    for role, statements in observed(stage).policies.items():
        mine = {right for right in observed(stage).rights if right.role == role}
        for action in {right.action for right in mine}:
            short = [_without(statement, action) for statement in statements]
            denied = {right.action for right in mine if not allowed(right, short, about)}
            assert denied == {action}, role


def test_each_grant_is_used_or_has_a_reason() -> None:
    left = all_grants().keys() - used_grants()
    assert sorted(left - UNUSED_REASONS.keys()) == [], "these have no reason"
    assert sorted(UNUSED_REASONS.keys() & used_grants()) == [], "these are used"
    assert sorted(UNUSED_REASONS.keys() - all_grants().keys()) == [], (
        "these are not granted any more"
    )


def test_each_wildcard_grant_has_a_reason() -> None:
    assert {(grant.action, grant.resource) for grant in wide_grants()} == WIDE_REASONS.keys()


def test_rights_page_is_current() -> None:
    assert DOCUMENT.read_text() == build_document(), "run make rights"


def _without(statement: Statement, action: str) -> Statement:
    kept = [name for name in listed(statement["Action"]) if name != action]
    return {**statement, "Action": kept}
