"""The daily walk deletes what a submission leaves that crashed before its job state."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.jobs.names import MARK_ATTR
from tests.support.deployed.gateway import Gateway
from tests.support.deployed.repairs import crash_submission, remove_orphans
from tests.support.deployed.world import SECOND, World


def rows_of_jobs(world: World) -> list[dict[str, Any]]:
    """Return the rows without those of names. Another part of the walk removes them."""
    return [row for row in world.rows(keys.JOBS_TABLE) if MARK_ATTR not in row]


@pytest.mark.parametrize(("operation", "rows"), [("PutObject", 0), ("BatchWriteItem", 1)])
def test_payload_of_crashed_submission_is_deleted_by_walk(
    world: World, api: Gateway, operation: str, rows: int
) -> None:
    crash_submission(world, api, operation)
    world.ticks = False
    assert (len(world.payloads()), len(rows_of_jobs(world))) == (1, rows)
    world.clock.advance(timedelta(days=2) - SECOND)
    remove_orphans(world)
    assert (len(world.payloads()), len(rows_of_jobs(world))) == (1, rows)
    world.clock.advance(2 * SECOND)
    remove_orphans(world)
    assert (world.payloads(), rows_of_jobs(world)) == ([], [])
    assert [name for name, _ in world.failures] == [world.name("job-service")]
