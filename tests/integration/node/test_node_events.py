"""Events are fired ahead of their time. One commit claims, publishes and ends them."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.rows import JobKey
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        yield world


def submit_and_fire_ahead(world: World, **fields: object) -> str:
    """Submit an event for a minute past noon, and stop a moment before it."""
    job = world.submit(schedule_type="FUTURE", schedule_time="2026-11-18T12:01:00Z", **fields)
    world.until(59.5)
    assert state_summary(world, job)[1] == 1
    return job


def state_summary(world: World, job: str) -> tuple[int, int, str]:
    head = world.store.job_states.load([JobKey(T, job)])[JobKey(T, job)].state
    return head.version, len(head.runs), head.status.value


def events(world: World) -> list[object]:
    return [event["detail"]["job_id"] for _, event in world.store.feed.read(0, 100)]


def timers(world: World) -> int:
    minute = NOON + timedelta(minutes=1)
    return len(world.store.timers.due(minute, 0, NOON + timedelta(hours=1), None, 10).timers)


def test_event_is_queued_ahead_and_published_on_time(world: World) -> None:
    job = submit_and_fire_ahead(world)
    assert state_summary(world, job) == (2, 1, "SCHEDULED")
    assert (world.statuses(job), timers(world), events(world)) == ([], 0, [])
    world.until(60)
    (view,) = world.runs(job)
    assert (view.run.status, view.run.lateness) == (RunStatus.SUCCESS, timedelta(0))
    assert state_summary(world, job) == (4, 0, "COMPLETED")
    assert (timers(world), events(world)) == (0, [job])


def test_job_cancelled_after_firing_ahead_publishes_no_event(world: World) -> None:
    job = submit_and_fire_ahead(world)
    world.do(lambda: world.node.jobs.cancel(T, job))
    world.until(120)
    assert world.statuses(job) == []
    assert world.do(lambda: world.node.search.job(T, job)).state.status is JobStatus.CANCELLED
    assert (timers(world), events(world)) == (0, [])


def test_job_paused_after_firing_ahead_publishes_after_resume_only(world: World) -> None:
    job = submit_and_fire_ahead(world)
    world.do(lambda: world.node.jobs.pause(T, job))
    world.until(120)
    assert events(world) == []
    world.do(lambda: world.node.jobs.resume(T, job, None))
    world.until(130)
    assert events(world) == [job]


def test_run_now_and_run_fired_ahead_each_run_once(world: World) -> None:
    job = submit_and_fire_ahead(world)
    world.do(lambda: world.node.jobs.run_now(T, job, "now"))
    world.until(120)
    assert world.statuses(job) == ["SUCCESS", "SUCCESS"]
    assert (timers(world), events(world)) == (0, [job, job])


def test_run_fired_ahead_by_a_crashed_node_runs_after_restart(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    with a_world(tmp_path, clock) as first:
        job = submit_and_fire_ahead(first)
    with a_world(tmp_path, clock) as second:
        second.until(61)
        assert second.statuses(job) == ["SUCCESS"]
        assert events(second) == [job]


def test_rolled_back_transaction_loses_and_repeats_no_event(world: World) -> None:
    job = submit_and_fire_ahead(world)
    publish = world.store.feed.publish

    def broken(_events: object) -> list[str]:
        raise Unavailable("no disk")

    world.store.feed.publish = broken  # type: ignore[method-assign, assignment]
    world.clock.set(NOON + timedelta(seconds=60))
    with pytest.raises(Unavailable):
        world.node.step()
    assert state_summary(world, job) == (2, 1, "SCHEDULED")
    world.store.feed.publish = publish  # type: ignore[method-assign]
    world.until(62)
    assert (world.statuses(job), events(world), timers(world)) == (["SUCCESS"], [job], 0)


def test_event_that_cannot_be_published_fails_without_retry(world: World) -> None:
    job = submit_and_fire_ahead(
        world, task={"type": "event", "detail_type": "{{payload.absent}}"}, payload={}
    )
    world.until(60)
    (view,) = world.runs(job)
    assert (view.run.status, view.run.attempt, events(world)) == (RunStatus.FAILED, 1, [])
    assert "absent" in view.detail.error


def test_recurring_event_sets_its_next_timer_when_a_run_ends(world: World) -> None:
    job = world.submit(schedule_type="CRON", cron_expression="* * * * *", max_runs=3)
    world.until(600)
    assert world.statuses(job) == ["SUCCESS"] * 3
    assert events(world) == [job] * 3
    assert world.do(lambda: world.node.search.job(T, job)).state.status is JobStatus.COMPLETED


def test_events_run_once_each_with_a_small_state_cache(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        world.store.job_states._cache._max_cached = 10
        document = {
            "name": "an event",
            "schedule_type": "FUTURE",
            "schedule_time": "2026-11-18T12:01:00Z",
        }
        submissions = [Submission(dict(document)) for _ in range(1_200)]
        world.do(lambda: world.node.jobs.submit(T, "me", submissions))
        world.until(62)
        assert world.store.count_runs(T) == {"SUCCESS": 1_200}
        assert len(set(map(str, [e for _, e in world.store.feed.read(0, 2_000)]))) == 1_200
        assert timers(world) == 0
