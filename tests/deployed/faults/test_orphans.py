"""The daily walk deletes what a submission leaves that crashed before its job state."""

from datetime import timedelta

import pytest

from punctual.aws.dynamodb import keys
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.repairs import crash_submission, remove_orphans
from tests.support.deployed.world import SECOND, World


@pytest.mark.parametrize(("operation", "rows"), [("PutObject", 0), ("BatchWriteItem", 1)])
def test_payload_of_crashed_submission_is_deleted_by_walk(
    world: World, api: Gateway, operation: str, rows: int
) -> None:
    crash_submission(world, api, operation)
    world.ticks = False
    assert (len(world.payloads()), len(world.rows(keys.JOBS_TABLE))) == (1, rows)
    world.clock.advance(timedelta(days=2) - SECOND)
    remove_orphans(world)
    assert (len(world.payloads()), len(world.rows(keys.JOBS_TABLE))) == (1, rows)
    world.clock.advance(2 * SECOND)
    remove_orphans(world)
    assert (world.payloads(), world.rows(keys.JOBS_TABLE)) == ([], [])
    assert [name for name, _ in world.failures] == [world.name("job-service")]
