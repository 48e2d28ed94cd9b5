"""Lateness and queue of stats and health, as the status function counts them."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.run import RunStatus
from tests.support.aws.status_world import QUEUED, RUNNING, World
from tests.support.builders import (
    NOON,
    a_job_state,
    after,
)


def test_stats_show_age_of_oldest_queued_run(world: World) -> None:
    world.follow(world.stream.of(a_job_state(version=1), a_job_state(version=2, runs=(QUEUED,))))
    assert world.stats().queue == {"depth": 1, "oldest_seconds": 30}


def test_health_is_late_while_runs_are_late(world: World) -> None:
    assert world.store.ports.partitions.advance_watermark(None, NOON)
    assert world.monitor().health(world.clock.now).status == "ok"
    late = replace(RUNNING, started_at=after(20), attempt_at=after(20))
    world.follow(world.stream.of(a_job_state(version=1), a_job_state(version=2, runs=(late,))))
    health = world.monitor().health(world.clock.now)
    assert health.status == "late"
    assert health.lateness_ms_p99 == pytest.approx(20_000, rel=0.05)
    world.clock.advance(timedelta(seconds=360))
    assert world.monitor().health(world.clock.now).status == "ok"


@pytest.mark.parametrize(
    ("let_in", "sends", "status"),
    [(20, 1, "ok"), (1, 1, "late"), (20, 2, "ok"), (0, 1, "late")],
)
def test_time_in_wait_queue_is_not_lateness(
    world: World, let_in: int, sends: int, status: str
) -> None:
    assert world.store.ports.partitions.advance_watermark(None, NOON)
    queued = replace(QUEUED, admitted_at=after(let_in), changed_at=after(let_in), send_count=sends)
    claimed = replace(queued, status=RunStatus.RUNNING, send_count=0, token=9)
    claimed = replace(claimed, started_at=after(20), attempt_at=after(20))
    world.follow(
        world.stream.of(
            a_job_state(version=1, runs=(queued,)), a_job_state(version=2, runs=(claimed,))
        )
    )
    assert world.monitor().health(world.clock.now).status == status


def test_run_fired_late_is_late(world: World) -> None:
    """The run was queued when it fired. It was never in the wait queue."""
    assert world.store.ports.partitions.advance_watermark(None, NOON)
    queued = replace(QUEUED, created_at=after(20), sent_at=after(20), send_count=1)
    claimed = replace(queued, status=RunStatus.RUNNING, sent_at=None, send_count=0, token=9)
    claimed = replace(claimed, started_at=after(21), attempt_at=after(21))
    world.follow(
        world.stream.of(
            a_job_state(version=1, runs=(queued,)), a_job_state(version=2, runs=(claimed,))
        )
    )
    assert world.monitor().health(world.clock.now).status == "late"
