"""A node whose wall clock is set, forward and back, while the clock that only goes on goes on."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from punctual.node import maintenance
from punctual.node.clock import ManualClock
from punctual.node.event_loop import EventLoop
from tests.support.node.node_world import NOON, T, World, a_world

HOUR = timedelta(hours=1)
AHEAD = timedelta(hours=2)
SCRIPT = {"type": "script", "runtime": "bash", "code": "true"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with a_world(tmp_path, ManualClock(NOON)) as made:
        yield made


def pass_time(world: World, seconds: float) -> None:
    """Step at each moment that the node asks for, for so long."""
    world.until((world.clock.now - NOON).total_seconds() + seconds)


def was_ahead(world: World) -> None:
    """The clock is two hours ahead for a while, in which minutes are closed, and is corrected."""
    world.clock.jump(AHEAD)
    pass_time(world, 30)
    mark = world.store.partitions.watermark()
    assert mark is not None
    assert mark > NOON + HOUR, "minutes that are still to come were closed"
    world.clock.jump(-AHEAD)


def soon(world: World, seconds: float = 30) -> str:
    at = world.clock.now + timedelta(seconds=seconds)
    return world.submit(schedule_type="FUTURE", schedule_time=at.isoformat())


def test_a_job_accepted_after_the_clock_ran_ahead_runs_at_its_time(world: World) -> None:
    was_ahead(world)
    job = soon(world)
    pass_time(world, 31)
    assert world.statuses(job) == ["SUCCESS"]


def test_a_job_accepted_before_the_next_step_runs_at_its_time(world: World) -> None:
    """Its minute is opened again by the request itself, not by the step that follows."""
    was_ahead(world)
    job = soon(world)
    (timer,) = standing(world, job)
    assert not world.store.partitions.is_done(timer.bucket, 0)


def test_a_recurring_job_accepted_after_the_clock_ran_ahead_runs_each_minute(world: World) -> None:
    was_ahead(world)
    begin = world.clock.now
    job = world.submit(schedule_type="CRON", cron_expression="* * * * *")
    pass_time(world, 300)
    late = [view.run.lateness for view in world.runs(job)]
    assert len(late) == 5
    assert max(one for one in late if one is not None) < timedelta(seconds=1)
    assert all(view.run.due_at > begin for view in world.runs(job))


def test_a_start_opens_the_minutes_that_a_clock_ahead_has_closed(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)):
        pass
    with a_world(tmp_path, ManualClock(NOON + AHEAD)) as ahead:
        ahead.until(AHEAD.total_seconds() + 30)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        job = soon(world)
        pass_time(world, 31)
        assert world.statuses(job) == ["SUCCESS"]


def test_minutes_are_opened_again_though_an_older_one_holds_up_the_watermark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are then closed one by one, and the watermark says nothing of it."""
    key = JobKey(T, soon(world, 5))
    real = world.store.job_states.load

    def load(keys: Sequence[JobKey]) -> object:
        if key in keys:
            raise ValueError("It cannot be read.")
        return real(keys)

    with monkeypatch.context() as patched:
        patched.setattr(world.store.job_states, "load", load)
        pass_time(world, 250)
    assert world.store.partitions.watermark() == NOON, "its timer still stands"
    assert world.store.partitions.is_done(NOON + timedelta(minutes=2), 0)
    world.clock.jump(-timedelta(seconds=125))
    job = soon(world, 10)
    pass_time(world, 60)
    assert world.statuses(job) == ["SUCCESS"]
    assert world.statuses(key.job_id) == ["SUCCESS"]


def standing(world: World, job: str) -> list[Timer]:
    rows = world.store._db.execute(
        "SELECT bucket, shard, at, version FROM timers WHERE job_id = ?", (job,)
    )
    minute = timedelta(minutes=1)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return [
        Timer(epoch + bucket * minute, shard, epoch + timedelta(microseconds=at), T, job, version)
        for bucket, shard, at, version in rows
    ]


# The walk over all heads


def lose_timers(world: World) -> None:
    with world.store.transaction():
        world.store._transaction.begin()
        world.store._db.execute("DELETE FROM timers")


def test_a_start_puts_the_timers_that_are_missing(tmp_path: Path) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        pass_time(world, 5)
        jobs = [soon(world, 600) for _ in range(3)]
        lose_timers(world)
    with a_world(tmp_path, ManualClock(NOON + timedelta(seconds=10))) as world:
        pass_time(world, 5)
        assert world.events.count("reconciler_mended") == 1
        assert all(standing(world, job) for job in jobs)
        pass_time(world, 600)
        assert [world.statuses(job) for job in jobs] == [["SUCCESS"]] * 3


def test_the_walk_of_a_start_goes_on_in_small_slices_beside_what_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "WALK_PAGE_SIZE", 2)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        for _ in range(9):
            soon(world, 3_000)
    with a_world(tmp_path, ManualClock(NOON)) as world:
        taken: list[tuple[float, int]] = []
        real = world.store.job_states.walk

        def walk(cursor: str | None, limit: int) -> object:
            taken.append((world.clock.monotonic(), limit))
            return real(cursor, limit)

        monkeypatch.setattr(world.store.job_states, "walk", walk)
        due = soon(world, 0.25)
        pass_time(world, 10)
        (view,) = world.runs(due)
        assert view.run.lateness == timedelta(0)
    moments = [at for at, _ in taken]
    assert len(taken) == 6, "ten jobs, two at a time, and that there are no more"
    assert {limit for _, limit in taken} == {2}
    assert all(b - a >= maintenance.WALK_PAUSE_SECONDS * 0.99 for a, b in pairwise(moments))


def test_the_walk_comes_again_each_day(world: World) -> None:
    pass_time(world, 10)
    soon(world, 3 * 86_400)
    lose_timers(world)
    pass_time(world, 86_000)
    assert "reconciler_mended" not in world.events
    pass_time(world, 500)
    assert world.events.count("reconciler_mended") == 1


def test_a_head_that_cannot_be_read_is_told_and_keeps_no_other_from_the_walk(
    tmp_path: Path,
) -> None:
    with a_world(tmp_path, ManualClock(NOON)) as world:
        jobs = sorted(soon(world, 600) for _ in range(3))
        lose_timers(world)
        with world.store.transaction():
            world.store._transaction.begin()
            world.store._db.execute(
                "UPDATE heads SET head = x'00ff00' WHERE job_id = ?", (jobs[0],)
            )
    with a_world(tmp_path, ManualClock(NOON)) as world:
        pass_time(world, 5)
        assert world.store.warnings()
        assert [bool(standing(world, job)) for job in jobs] == [False, True, True]


# What runs while the clock is set


def running(world: World, **fields: object) -> str:
    job = world.submit(task=SCRIPT, **fields)
    world.node.step()
    assert world.gate.begun.acquire(timeout=10)
    return job


@pytest.mark.parametrize("delivery", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
@pytest.mark.parametrize("by", [-AHEAD, AHEAD, timedelta(seconds=25), timedelta(seconds=-25)])
def test_what_runs_goes_on_when_the_clock_is_set(
    world: World, by: timedelta, delivery: str
) -> None:
    job = running(world, delivery=delivery)
    pass_time(world, 9)  # it has beaten
    world.clock.jump(by)
    world.node.step()
    pass_time(world, 90)
    assert world.statuses(job) == ["RUNNING"]
    world.gate.open.set()
    world.settle()
    (view,) = world.runs(job)
    assert (view.run.status.value, view.run.attempt, view.run.past_attempts) == ("SUCCESS", 1, "")
    assert world.gate.attempts == [1]


def test_what_was_just_claimed_goes_on_when_the_clock_is_set_forward(world: World) -> None:
    """Before its first beat; its lease is over by the new time."""
    job = running(world, delivery="AT_MOST_ONCE")
    world.clock.jump(HOUR)
    world.do(lambda: world.node.jobs.run_now(T, job))  # a look at the whole head
    pass_time(world, 60)
    assert "RUNNING" in world.statuses(job)
    assert world.gate.attempts[0] == 1


def test_beats_go_on_by_the_steady_clock(world: World) -> None:
    job = running(world)
    world.clock.jump(-HOUR)
    world.node.step()
    begin = world.clock.now
    pass_time(world, 30)
    lease = world.store.job_states.load([JobKey(T, job)])[JobKey(T, job)].leases.values()
    assert [one.until > begin + timedelta(seconds=30) for one in lease] == [True]


# What waits while the clock is set


def test_what_is_due_after_a_jump_forward_starts_in_the_next_step(world: World) -> None:
    job = soon(world, 600)
    pass_time(world, 1)
    world.clock.jump(HOUR)
    assert world.node.has_clock_change
    world.node.step()
    assert not world.node.has_clock_change
    pass_time(world, 1)
    assert world.statuses(job) == ["SUCCESS"]


def test_nothing_waits_after_a_jump_forward_and_back(world: World) -> None:
    world.clock.jump(HOUR)
    world.node.step()
    world.clock.jump(-HOUR)
    world.node.step()
    assert world.node.next_at() - world.clock.monotonic() < 21, "the planner's tick at the latest"
    job = soon(world, 2)
    pass_time(world, 3)
    assert world.statuses(job) == ["SUCCESS"]


def test_a_pause_that_began_while_the_clock_was_ahead_ends_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job whose evaluation left something undone is looked at again after a pause."""
    soon(world, 4)
    pass_time(world, 0.5)
    world.clock.jump(HOUR)
    with monkeypatch.context() as patched:
        patched.setattr(world.node.queue, "send", refuse)
        world.node.step()
    assert [at > NOON + HOUR for at, _ in world.node.poller._delayed_timers] == [True]
    world.clock.jump(-HOUR)
    world.node.step()
    assert all(at < NOON + timedelta(seconds=5) for at, _ in world.node.poller._delayed_timers)


def refuse(messages: list[object]) -> list[bool]:
    return [False] * len(messages)


def test_a_clock_that_only_drifts_is_not_taken_for_set(world: World) -> None:
    for _ in range(1_000):
        world.clock.advance(timedelta(seconds=1))
        world.clock.jump(timedelta(milliseconds=2))
        assert not world.node.has_clock_change
        world.node.step()
    assert "clock_was_set" not in world.events


class SetByHand(ManualClock):
    """The real clocks, of which the test may set the one of the wall."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))
        self.ahead = timedelta(0)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def monotonic(self) -> float:
        return time.monotonic()


def test_the_loop_notices_within_seconds_that_the_clock_was_set(tmp_path: Path) -> None:
    """Without that it sleeps on to the next tick of the planner, or for as long as the jump."""
    clock = SetByHand()

    async def play(world: World) -> None:
        loop = EventLoop(world.node, time.monotonic, lambda *_, **__: None)
        loop.start()
        try:
            await asyncio.sleep(0.5)  # beyond the walk of the start; now nothing is due for 19 s
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


async def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < end, "it was not noticed"
        await asyncio.sleep(0.05)
