"""Buckets, leases, signals and the watermark: no bucket closes over a timer."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import JobKey
from tests.support.simulation.manual_engine import NOON, ManualEngine

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_bucket_closes_fifteen_seconds_after_its_end() -> None:
    engine = ManualEngine()
    engine.tick()
    for after, closed in ((74.9, False), (75, True)):
        engine.now = NOON + seconds(after)
        engine.step()
        assert engine.memory.partitions.is_done(NOON, 0) is closed


def test_late_timer_put_is_found_before_the_bucket_closes() -> None:
    engine = ManualEngine()
    engine.tick()
    engine.step()
    engine.now = NOON + seconds(58)
    keys = []

    def slow() -> None:
        engine.now = NOON + seconds(67)

    engine.plan.before("timers.put", slow)
    keys.append(engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:59Z"))
    engine.memory.wakeups.new_timers.clear()  # the wake-up is lost
    assert [timer.bucket for timer in engine.timers()] == [NOON]

    engine.now = NOON + seconds(75)
    engine.step()
    assert not engine.memory.partitions.is_done(NOON, 0)
    engine.step()
    (run,) = engine.state(keys[0]).runs
    assert run.status is RunStatus.QUEUED
    engine.wait(1)
    engine.step()
    assert engine.memory.partitions.is_done(NOON, 0)


# A put begun 1.1 s before the bucket's end may take 10 s, and clocks differ by 5 s.
SLOW_PUT = seconds(10)
SKEW = seconds(5)


def submit_slowly(
    engine: ManualEngine, step: Callable[[datetime], object], skew: timedelta
) -> JobKey:
    """Submit a job while `step` runs twice a second. Its timer is stored 10 s late."""
    began = NOON + seconds(58.9)

    def step_while_waiting() -> None:
        while engine.now < began + SLOW_PUT:
            step(engine.now + skew)
            engine.wait(0.5)
        engine.now = began + SLOW_PUT

    engine.now = began
    engine.plan.before("timers.put", step_while_waiting)
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:59.500Z")
    engine.memory.wakeups.new_timers.clear()  # the wake-up is lost
    assert [timer.bucket for timer in engine.timers()] == [NOON]
    return key


@pytest.mark.parametrize("skew", [timedelta(0), SKEW])
def test_poller_does_not_close_a_bucket_over_a_timer_being_put(
    skew: timedelta,
) -> None:
    engine = ManualEngine()
    engine.tick()
    key = submit_slowly(engine, engine.poller.step, skew)
    for _ in range(20):
        engine.poller.step(engine.now + skew)
        engine.wait(1)
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]
    assert engine.timers() == []
    assert engine.memory.partitions.is_done(NOON, 0)


@pytest.mark.parametrize("skew", [timedelta(0), SKEW])
def test_planner_does_not_skip_a_bucket_over_a_timer_being_put(
    skew: timedelta,
) -> None:
    engine = ManualEngine()
    planner = PeekingPlanner(
        engine.memory.timers, engine.memory.partitions, engine.memory.partitions
    )

    def tick(now: datetime) -> list[TimerPartition]:
        return [
            partition
            for wake_up in planner.tick(now, 1, 10).wakeups
            for partition in wake_up.partitions
        ]

    tick(NOON)
    submit_slowly(engine, tick, skew)
    partitions: list[TimerPartition] = []
    for _ in range(3):
        engine.wait(60)
        partitions += tick(engine.now + skew)
    assert TimerPartition(NOON, 0) in partitions, (
        "a poller is woken for the bucket, or the timer is lost"
    )


def test_watermark_stops_at_a_bucket_with_an_open_shard() -> None:
    engine = ManualEngine()
    engine.memory.partitions.raise_shard_count(4)
    planned = engine.planner().tick(NOON)
    started = planned.watermark
    for lease in planned.leases:
        if (lease.bucket, lease.shard) != (NOON, 2):
            assert engine.memory.partitions.mark_done(lease)
    engine.now = NOON + seconds(200)
    later = engine.planner("later").tick(engine.now)
    assert (started, later.watermark) == (NOON - MINUTE, NOON)
    (last,) = [lease_of_plan for lease_of_plan in later.leases if lease_of_plan.bucket == NOON]
    assert last.shard == 2
    assert engine.memory.partitions.mark_done(last)
    assert engine.planner("again").tick(engine.now).watermark == NOON + 3 * MINUTE


def test_first_tick_three_hours_late_finds_earlier_timers() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:00Z")
    engine.now = NOON + seconds(3 * 3600 + 7)
    assert engine.tick() > 180
    engine.step()

    (run,) = engine.state(key).runs
    assert (run.status, run.scheduled_at) == (RunStatus.QUEUED, NOON + MINUTE)
    engine.step()
    assert engine.planner("next").tick(engine.now).watermark >= NOON + 178 * MINUTE


def test_repeated_ticks_lease_no_partition_twice() -> None:
    engine = ManualEngine()
    first = engine.planner("one").tick(NOON).leases
    second_leases = engine.planner("two").tick(NOON).leases
    late = engine.planner("three").tick(NOON + seconds(59)).leases
    assert len(first) == 4
    assert list(second_leases) == []
    assert list(late) == []


def test_tick_after_a_lost_one_leases_the_missed_buckets() -> None:
    engine = ManualEngine()
    engine.tick()
    key = engine.submit(schedule_type="CRON", cron_expression="* * * * *")
    engine.step_until(170)
    assert engine.memory.partitions.is_done(NOON + MINUTE, 0)
    assert not engine.memory.partitions.is_done(NOON + 3 * MINUTE, 0)
    engine.now = NOON + seconds(250)
    engine.tick("after the lost one")
    engine.step()
    mark = engine.state(key).planned_until
    assert mark is not None
    assert mark >= NOON + 4 * MINUTE


def test_ended_lease_is_granted_again_and_the_former_owner_fenced() -> None:
    engine = ManualEngine()
    (former,) = [lease for lease in engine.planner("one").tick(NOON).leases if lease.bucket == NOON]
    later = NOON + seconds(90)
    (present,) = [
        lease for lease in engine.planner("two").tick(later).leases if lease.bucket == NOON
    ]
    assert present.token > former.token
    assert engine.memory.partitions.mark_done(former) is False
    assert engine.memory.partitions.renew(former, later + MINUTE) is None
    assert engine.memory.partitions.mark_done(present) is True


def test_signalled_poller_reads_again_and_keeps_its_lease() -> None:
    engine = ManualEngine()
    engine.tick()
    engine.step()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:50Z")
    assert engine.memory.partitions.signal_new_timers(NOON, 0) is not None
    engine.memory.wakeups.new_timers.clear()  # only the raised signal count arrives
    engine.step_until(51, every=1)

    assert TimerPartition(NOON, 0) in engine.poller.leased_partitions, (
        "no other poller could take it for a minute"
    )
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]


def test_signal_while_a_bucket_closes_is_not_lost() -> None:
    engine = ManualEngine()
    engine.tick()
    engine.now = NOON + seconds(74)
    engine.step()
    engine.memory.partitions.signal_new_timers(NOON, 0)
    engine.wait(1)
    engine.step()
    assert not engine.memory.partitions.is_done(NOON, 0), "the poller reads once more first"
    engine.step()
    assert engine.memory.partitions.is_done(NOON, 0)


def test_poller_releases_a_partition_taken_by_another() -> None:
    engine = ManualEngine()
    engine.tick("one")
    assert TimerPartition(NOON, 0) in engine.poller.leased_partitions
    engine.now = NOON + seconds(61)
    other_lease = engine.memory.partitions.acquire(NOON, 0, "two", engine.now, engine.now + MINUTE)
    assert other_lease is not None
    engine.step()
    assert TimerPartition(NOON, 0) not in engine.poller.leased_partitions
    assert TimerPartition(NOON + MINUTE, 0) in engine.poller.leased_partitions
    assert engine.memory.partitions.renew(other_lease, engine.now + MINUTE) is not None
