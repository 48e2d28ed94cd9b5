"""Least privilege, proved: whole lives' calls against the policies in the templates."""

from dataclasses import replace

import pytest

from tests.support.deployed.privilege import Statement, allowed, listed
from tests.support.deployed.rights import (
    DOCUMENT,
    LIVED,
    UNUSED,
    WIDE,
    document,
    granted,
    seen,
    used,
    wide,
)
from tests.support.deployed.world import MINUTE, OVER_TLS, a_world


def _growing_without_a_right() -> None:
    """The planner may not write down how many shards there are, and goes on without."""
    with a_world() as world:
        policies = dict(world.deployed.policies)
        name = world.name("planner")
        policies[name] = [_without(one, "dynamodb:UpdateItem") for one in policies[name]]
        world.deployed = replace(world.deployed, policies=policies)
        world.put_knob("shards", "2")
        world.run(2 * MINUTE)


def test_a_test_in_which_a_function_calls_what_it_may_not_fails() -> None:
    said = r"punctual-dev-planner may not dynamodb:UpdateItem on arn:aws:dynamodb:.*ControlTable"
    with pytest.raises(AssertionError, match=said):
        _growing_without_a_right()


@pytest.mark.parametrize("stage", LIVED)
def test_every_function_lives(stage: str) -> None:
    assert {right.role for right in seen(stage).rights} == set(seen(stage).policies)


@pytest.mark.parametrize("stage", LIVED)
def test_a_right_that_is_missing_is_found(stage: str) -> None:
    """Each action that was used, taken away, denies something."""
    for role, statements in seen(stage).policies.items():
        mine = {right for right in seen(stage).rights if right.role == role}
        for action in {right.action for right in mine}:
            short = [_without(one, action) for one in statements]
            found = {one.action for one in mine if not allowed(one, short, OVER_TLS)}
            assert found == {action}, role


def test_what_is_granted_is_used_or_there_is_a_reason() -> None:
    left = granted().keys() - used()
    assert sorted(left - UNUSED.keys()) == [], "these have no reason"
    assert sorted(UNUSED.keys() & used()) == [], "these are used"
    assert sorted(UNUSED.keys() - granted().keys()) == [], "these are not granted any more"


def test_what_is_granted_on_more_than_one_thing_has_a_reason() -> None:
    assert {(one.action, one.what) for one in wide()} == WIDE.keys()


def test_docs_rights_is_what_make_rights_writes() -> None:
    assert DOCUMENT.read_text() == document(), "make rights writes it anew"


def _without(statement: Statement, action: str) -> Statement:
    kept = [name for name in listed(statement["Action"]) if name != action]
    return {**statement, "Action": kept}
