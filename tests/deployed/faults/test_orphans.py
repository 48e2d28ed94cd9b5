"""A submission whose function dies before it writes the head leaves nothing for ever."""

from datetime import timedelta

import pytest

from punctual.aws.dynamodb import keys
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.mending import lost_before_its_head, orphans_removed
from tests.support.deployed.world import SECOND, World


@pytest.mark.parametrize(("operation", "rows"), [("PutObject", 0), ("BatchWriteItem", 1)])
def test_what_a_submission_left_that_died_is_gone_after_the_walk(
    world: World, api: Gateway, operation: str, rows: int
) -> None:
    lost_before_its_head(world, api, operation)
    world.ticks = False
    assert (len(world.payloads()), len(world.rows(keys.JOBS_TABLE))) == (1, rows)
    world.clock.advance(timedelta(days=2) - SECOND)
    orphans_removed(world)
    assert (len(world.payloads()), len(world.rows(keys.JOBS_TABLE))) == (1, rows)
    world.clock.advance(2 * SECOND)
    orphans_removed(world)
    assert (world.payloads(), world.rows(keys.JOBS_TABLE)) == ([], [])
    assert [name for name, _ in world.failures] == [world.name("job-service")]
