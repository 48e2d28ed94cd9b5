"""A node with a wall clock that is set forward and back. Its steady clock goes on."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from punctual.node.background import maintenance
from punctual.node.event_loop import EventLoop
from tests.support.builders import ManualClock
from tests.support.node.node_world import NOON, T, World, a_world

HOUR = timedelta(hours=1)
AHEAD = timedelta(hours=2)
SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        yield world


def pass_time(world: World, seconds: float) -> None:
    """Step at each time that the node asks for, for `seconds`."""
    world.until((world.clock.now - NOON).total_seconds() + seconds)


def run_clock_ahead(world: World) -> None:
    """Set the clock two hours ahead until buckets are closed, and set it back."""
    world.clock.jump(AHEAD)
    pass_time(world, 30)
    mark = world.store.partitions.watermark()
    assert mark is not None
    assert mark > NOON + HOUR, "future buckets were closed"
    world.clock.jump(-AHEAD)


def submit_soon(world: World, seconds: float = 30) -> str:
    at = world.clock.now + timedelta(seconds=seconds)
    return world.submit(schedule_type="FUTURE", schedule_time=at.isoformat())


def test_job_accepted_after_the_clock_ran_ahead_runs_on_time(world: World) -> None:
    run_clock_ahead(world)
    job = submit_soon(world)
    pass_time(world, 31)
    assert world.statuses(job) == ["SUCCESS"]


def test_job_accepted_before_the_next_step_reopens_its_bucket(world: World) -> None:
    """The request itself opens the bucket again, not the step after it."""
    run_clock_ahead(world)
    job = submit_soon(world)
    (timer,) = stored_timers(world, job)
    assert not world.store.partitions.is_done(timer.bucket, 0)


def test_recurring_job_accepted_after_the_clock_ran_ahead_runs_each_minute(world: World) -> None:
    run_clock_ahead(world)
    begin = world.clock.now
    job = world.submit(schedule_type="CRON", cron_expression="* * * * *")
    pass_time(world, 300)
    latenesses = [view.run.lateness for view in world.runs(job)]
    assert len(latenesses) == 5
    assert max(value for value in latenesses if value is not None) < timedelta(seconds=1)
    assert all(view.run.due_at > begin for view in world.runs(job))


def test_start_reopens_buckets_closed_by_a_clock_ahead(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)):
        pass
    with a_world(tmp_path, ManualClock(NOON + AHEAD)) as ahead:
        ahead.until(AHEAD.total_seconds() + 30)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        job = submit_soon(world)
        pass_time(world, 31)
        assert world.statuses(job) == ["SUCCESS"]


def test_buckets_are_reopened_while_an_older_one_holds_the_watermark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The buckets close one by one, and the watermark stays."""
    key = JobKey(T, submit_soon(world, 5))
    real = world.store.job_states.load

    def load(keys: Sequence[JobKey]) -> object:
        if key in keys:
            raise ValueError("It cannot be read.")
        return real(keys)

    with monkeypatch.context() as patched:
        patched.setattr(world.store.job_states, "load", load)
        pass_time(world, 250)
    assert world.store.partitions.watermark() == NOON, "its timer is still stored"
    assert world.store.partitions.is_done(NOON + timedelta(minutes=2), 0)
    world.clock.jump(-timedelta(seconds=125))
    job = submit_soon(world, 10)
    pass_time(world, 60)
    assert world.statuses(job) == ["SUCCESS"]
    assert world.statuses(key.job_id) == ["SUCCESS"]


def stored_timers(world: World, job: str) -> list[Timer]:
    rows = world.store._db.execute(
        "SELECT bucket, shard, at, version FROM timers WHERE job_id = ?", (job,)
    )
    minute = timedelta(minutes=1)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        Timer(epoch + bucket * minute, shard, epoch + timedelta(microseconds=at), T, job, version)
        for bucket, shard, at, version in rows
    ]


# The reconciler's walk over all job states


def lose_timers(world: World) -> None:
    with world.store.transaction():
        world.store._transaction.begin()
        world.store._db.execute("DELETE FROM timers")


def test_start_adds_missing_timers(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        pass_time(world, 5)
        jobs = [submit_soon(world, 600) for _ in range(3)]
        lose_timers(world)
    with a_world(tmp_path, ManualClock(NOON + timedelta(seconds=10))) as world:
        pass_time(world, 5)
        assert world.events.count("reconciler_mended") == 1
        assert all(stored_timers(world, job) for job in jobs)
        pass_time(world, 600)
        assert [world.statuses(job) for job in jobs] == [["SUCCESS"]] * 3


def test_reconciler_walks_in_small_pages_without_delaying_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "WALK_PAGE_SIZE", 2)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for _ in range(9):
            submit_soon(world, 3_000)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        pages: list[tuple[float, int]] = []
        real = world.store.job_states.walk

        def walk(cursor: str | None, limit: int) -> object:
            pages.append((world.clock.monotonic(), limit))
            return real(cursor, limit)

        monkeypatch.setattr(world.store.job_states, "walk", walk)
        due = submit_soon(world, 0.25)
        pass_time(world, 10)
        (view,) = world.runs(due)
        assert view.run.lateness == timedelta(0)
    page_times = [at for at, _ in pages]
    assert len(pages) == 6, "ten jobs on pages of two, and an empty page"
    assert {limit for _, limit in pages} == {2}
    assert all(b - a >= maintenance.WALK_PAUSE_SECONDS * 0.99 for a, b in pairwise(page_times))


def test_reconciler_walks_each_day(world: World) -> None:
    pass_time(world, 10)
    submit_soon(world, 3 * 86_400)
    lose_timers(world)
    pass_time(world, 86_000)
    assert "reconciler_mended" not in world.events
    pass_time(world, 500)
    assert world.events.count("reconciler_mended") == 1


def test_unreadable_state_is_reported_and_the_walk_goes_on(
    tmp_path: Path,
) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = sorted(submit_soon(world, 600) for _ in range(3))
        lose_timers(world)
        with world.store.transaction():
            world.store._transaction.begin()
            world.store._db.execute(
                "UPDATE heads SET head = x'00ff00' WHERE job_id = ?", (jobs[0],)
            )
    with a_world(tmp_path, ManualClock(NOON)) as world:
        pass_time(world, 5)
        assert world.store.warnings()
        assert [bool(stored_timers(world, job)) for job in jobs] == [False, True, True]


# Running attempts while the clock is set


def start_running(world: World, **fields: object) -> str:
    job = world.submit(task=SCRIPT, **fields)
    world.node.step()
    assert world.gate.begun.acquire(timeout=10)
    return job


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
@pytest.mark.parametrize("by", [-AHEAD, AHEAD, timedelta(seconds=25), timedelta(seconds=-25)])
def test_running_attempt_goes_on_when_the_clock_is_set(
    world: World, by: timedelta, delivery: str
) -> None:
    job = start_running(world, delivery=delivery)
    pass_time(world, 9)  # one heartbeat was sent
    world.clock.jump(by)
    world.node.step()
    pass_time(world, 90)
    assert world.statuses(job) == ["RUNNING"]
    world.gate.open.set()
    world.settle()
    (view,) = world.runs(job)
    assert (view.run.status.value, view.run.attempt, view.run.past_attempts) == ("SUCCESS", 1, "")
    assert world.gate.attempts == [1]


def test_claimed_run_goes_on_when_the_clock_is_set_forward(world: World) -> None:
    """The clock is set before the first heartbeat, so the lease has ended by the new time."""
    job = start_running(world, delivery="AT_MOST_ONCE")
    world.clock.jump(HOUR)
    world.do(lambda: world.node.jobs.run_now(T, job))  # an evaluation of the whole state
    pass_time(world, 60)
    assert "RUNNING" in world.statuses(job)
    assert world.gate.attempts[0] == 1


def test_heartbeats_follow_the_steady_clock(world: World) -> None:
    job = start_running(world)
    world.clock.jump(-HOUR)
    world.node.step()
    begin = world.clock.now
    pass_time(world, 30)
    leases = world.store.job_states.load([JobKey(T, job)])[JobKey(T, job)].leases.values()
    assert [renewed.until > begin + timedelta(seconds=30) for renewed in leases] == [True]


# Waiting jobs while the clock is set


def test_run_due_after_a_clock_jump_starts_in_the_next_step(world: World) -> None:
    job = submit_soon(world, 600)
    pass_time(world, 1)
    world.clock.jump(HOUR)
    assert world.node.has_clock_change
    world.node.step()
    assert not world.node.has_clock_change
    pass_time(world, 1)
    assert world.statuses(job) == ["SUCCESS"]


def test_job_runs_on_time_after_a_clock_jump_forward_and_back(world: World) -> None:
    world.clock.jump(HOUR)
    world.node.step()
    world.clock.jump(-HOUR)
    world.node.step()
    assert world.node.next_step_steady() - world.clock.monotonic() < 21, (
        "the planner's tick at the latest"
    )
    job = submit_soon(world, 2)
    pass_time(world, 3)
    assert world.statuses(job) == ["SUCCESS"]


def test_retry_pause_begun_on_a_clock_ahead_ends_with_the_correction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job with an incomplete evaluation is evaluated again after a pause."""
    submit_soon(world, 4)
    pass_time(world, 0.5)
    world.clock.jump(HOUR)
    with monkeypatch.context() as patched:
        patched.setattr(world.node.queue, "send", refuse_all)
        world.node.step()
    assert [at > NOON + HOUR for at, _ in world.node.poller._delayed_timers] == [True]
    world.clock.jump(-HOUR)
    world.node.step()
    assert all(at < NOON + timedelta(seconds=5) for at, _ in world.node.poller._delayed_timers)


def refuse_all(messages: list[object]) -> list[bool]:
    return [False] * len(messages)


def test_drifting_clock_is_not_reported_as_set(world: World) -> None:
    for _ in range(1_000):
        world.clock.advance(timedelta(seconds=1))
        world.clock.jump(timedelta(milliseconds=2))
        assert not world.node.has_clock_change
        world.node.step()
    assert "clock_was_set" not in world.events


class SettableClock(ManualClock):
    """The real clocks. The test may set the wall clock."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return time.monotonic()


def test_event_loop_notices_a_set_clock_within_seconds(tmp_path: Path) -> None:
    """Otherwise the loop sleeps until the planner's next tick, or for as long as the jump."""
    clock = SettableClock()

    async def play(world: World) -> None:
        loop = EventLoop(world.node, time.monotonic, lambda *_, **__: None)
        loop.start()
        try:
            await asyncio.sleep(0.5)  # the walk of the start is over, and nothing is due for 19 s
            clock.ahead = HOUR
            await until(lambda: world.events.count("clock_was_set") == 1)
            clock.ahead = timedelta(0)
            await until(lambda: world.events.count("clock_was_set") == 2)
        finally:
            loop.stop()

    with a_world(tmp_path, clock) as world:
        asyncio.run(play(world))
        set_by = [facts["seconds"] for event, facts in world.lines if event == "clock_was_set"]
    assert [round(seconds / 60) for seconds in set_by] == [60, -60]


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        await asyncio.sleep(0.05)
