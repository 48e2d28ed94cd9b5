"""A pause until a time on the node: its end, also over restarts of the node."""

from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.job_state import JobStatus
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world

MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *", "misfire_policy": "SKIP"}


def pause(world: World, job: str, seconds: float) -> None:
    until = NOON + timedelta(seconds=seconds)
    world.do(lambda: world.node.jobs.pause(T, job, until=until, note="a move"))


def outcomes(world: World, job: str) -> list[tuple[str, str, int]]:
    return [
        (view.run.status.value, view.run.reason.value, view.run.occurrence_count)
        for view in world.runs(job)
    ]


def test_job_resumes_at_its_time(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        job = world.submit(**MINUTELY)
        world.until(60)
        pause(world, job, 300)
        world.until(299)
        assert world.do(lambda: world.node.search.job(T, job)).state.status is JobStatus.PAUSED
        world.until(300)
        assert outcomes(world, job) == [
            ("SUCCESS", "", 1),
            ("SKIPPED", "PAUSED", 3),
            ("SUCCESS", "", 1),
        ]


@pytest.mark.parametrize("restart_at", [61, 299.5, 330])
def test_pause_and_its_end_survive_restarts(tmp_path: Path, restart_at: float) -> None:
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as first:
        job = first.submit(**MINUTELY)
        first.until(60)
        pause(first, job, 300)
        first.until(min(restart_at, 299))
    clock.set(NOON + timedelta(seconds=restart_at))
    with a_world(tmp_path, clock) as second:
        second.until(360)
        state = second.do(lambda: second.node.search.job(T, job)).state
        assert (state.status, state.pause) == (JobStatus.SCHEDULED, None)
        assert outcomes(second, job) == [
            ("SUCCESS", "", 1),
            ("SUCCESS", "", 1),
            ("SKIPPED", "PAUSED", 3),
            ("SUCCESS", "", 1),
        ]
