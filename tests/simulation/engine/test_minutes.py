"""Buckets, leases, nudges and the watermark: no minute closes over a timer."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from punctual.domain.run import RunStatus
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import JobKey
from tests.support.simulation.hand import NOON, Hand

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_a_minute_closes_fifteen_seconds_after_its_end_and_not_before() -> None:
    hand = Hand()
    hand.tick()
    for after, closed in ((74.9, False), (75, True)):
        hand.now = NOON + seconds(after)
        hand.step()
        assert hand.memory.buckets.is_done(NOON, 0) is closed


def test_a_late_put_is_found_before_the_minute_closes() -> None:
    hand = Hand()
    hand.tick()
    hand.step()
    hand.now = NOON + seconds(58)
    keys = []

    def slow() -> None:
        hand.now = NOON + seconds(67)

    hand.plan.before("timers.put", slow)
    keys.append(hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:59Z"))
    hand.memory.wake.nudges.clear()  # the nudge is lost
    assert [timer.bucket for timer in hand.timers()] == [NOON]

    hand.now = NOON + seconds(75)
    hand.step()
    assert not hand.memory.buckets.is_done(NOON, 0)
    hand.step()
    (run,) = hand.head(keys[0]).runs
    assert run.status is RunStatus.QUEUED
    hand.wait(1)
    hand.step()
    assert hand.memory.buckets.is_done(NOON, 0)


# A put that began 1.1 s before the minute's end may stand 10 s later, and clocks differ by 5 s.
SLOW_PUT = seconds(10)
SKEW = seconds(5)


def submit_slowly(hand: Hand, step: Callable[[datetime], object], skew: timedelta) -> JobKey:
    """Submit a job whose timer stands 10 s late; `step` runs each second of these meanwhile."""
    began = NOON + seconds(58.9)

    def meanwhile() -> None:
        while hand.now < began + SLOW_PUT:
            step(hand.now + skew)
            hand.wait(0.5)
        hand.now = began + SLOW_PUT

    hand.now = began
    hand.plan.before("timers.put", meanwhile)
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:59.500Z")
    hand.memory.wake.nudges.clear()  # the nudge is lost
    assert [timer.bucket for timer in hand.timers()] == [NOON]
    return key


@pytest.mark.parametrize("skew", [timedelta(0), SKEW])
def test_a_poller_does_not_close_a_minute_over_a_timer_that_is_still_being_put(
    skew: timedelta,
) -> None:
    hand = Hand()
    hand.tick()
    key = submit_slowly(hand, hand.poller.step, skew)
    for _ in range(20):
        hand.poller.step(hand.now + skew)
        hand.wait(1)
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]
    assert hand.timers() == []
    assert hand.memory.buckets.is_done(NOON, 0)


@pytest.mark.parametrize("skew", [timedelta(0), SKEW])
def test_a_planner_does_not_pass_a_minute_over_a_timer_that_is_still_being_put(
    skew: timedelta,
) -> None:
    hand = Hand()
    lookout = PeekingPlanner(hand.memory.timers, hand.memory.buckets, hand.memory.buckets)

    def tick(now: datetime) -> list[TimerPartition]:
        return [place for call in lookout.tick(now, 1, 10).wakeups for place in call.partitions]

    tick(NOON)
    submit_slowly(hand, tick, skew)
    called: list[TimerPartition] = []
    for _ in range(3):
        hand.wait(60)
        called += tick(hand.now + skew)
    assert TimerPartition(NOON, 0) in called, (
        "a poller is called for the minute, or the timer is lost"
    )


def test_the_watermark_never_passes_a_minute_that_is_not_done_in_every_shard() -> None:
    hand = Hand()
    hand.memory.buckets.raise_shard_count(4)
    planned = hand.planner().tick(NOON)
    started = planned.watermark
    for lease in planned.leases:
        if (lease.bucket, lease.shard) != (NOON, 2):
            assert hand.memory.buckets.mark_done(lease)
    hand.now = NOON + seconds(200)
    later = hand.planner("later").tick(hand.now)
    assert (started, later.watermark) == (NOON - MINUTE, NOON)
    (last,) = [one for one in later.leases if one.bucket == NOON]
    assert last.shard == 2
    assert hand.memory.buckets.mark_done(last)
    assert hand.planner("again").tick(hand.now).watermark == NOON + 3 * MINUTE


def test_the_first_tick_three_hours_late_finds_what_was_put_before_it() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:00Z")
    hand.now = NOON + seconds(3 * 3600 + 7)
    assert hand.tick() > 180
    hand.step()

    (run,) = hand.head(key).runs
    assert (run.status, run.scheduled_at) == (RunStatus.QUEUED, NOON + MINUTE)
    hand.step()
    assert hand.planner("next").tick(hand.now).watermark >= NOON + 178 * MINUTE


def test_a_duplicate_and_a_late_duplicate_tick_hand_out_nothing_twice() -> None:
    hand = Hand()
    first = hand.planner("one").tick(NOON).leases
    again = hand.planner("two").tick(NOON).leases
    late = hand.planner("three").tick(NOON + seconds(59)).leases
    assert len(first) == 4
    assert list(again) == []
    assert list(late) == []


def test_a_lost_tick_is_made_up_by_the_next() -> None:
    hand = Hand()
    hand.tick()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    hand.step_until(170)
    assert hand.memory.buckets.is_done(NOON + MINUTE, 0)
    assert not hand.memory.buckets.is_done(NOON + 3 * MINUTE, 0)
    hand.now = NOON + seconds(250)
    hand.tick("after the lost one")
    hand.step()
    mark = hand.head(key).planned_until
    assert mark is not None
    assert mark >= NOON + 4 * MINUTE


def test_a_lease_that_ended_is_handed_out_again_and_the_former_holder_is_fenced() -> None:
    hand = Hand()
    (former,) = [one for one in hand.planner("one").tick(NOON).leases if one.bucket == NOON]
    later = NOON + seconds(90)
    (present,) = [one for one in hand.planner("two").tick(later).leases if one.bucket == NOON]
    assert present.token > former.token
    assert hand.memory.buckets.mark_done(former) is False
    assert hand.memory.buckets.renew(former, later + MINUTE) is None
    assert hand.memory.buckets.mark_done(present) is True


def test_a_poller_that_was_nudged_reads_again_and_goes_on() -> None:
    hand = Hand()
    hand.tick()
    hand.step()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:50Z")
    assert hand.memory.buckets.signal_new_timers(NOON, 0) is not None
    hand.memory.wake.nudges.clear()  # it came as a raised number alone
    hand.step_until(51, every=1)

    assert TimerPartition(NOON, 0) in hand.poller.leased_partitions, (
        "nobody else could take it for a minute"
    )
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]


def test_a_nudge_while_a_minute_closes_is_not_lost() -> None:
    hand = Hand()
    hand.tick()
    hand.now = NOON + seconds(74)
    hand.step()
    hand.memory.buckets.signal_new_timers(NOON, 0)
    hand.wait(1)
    hand.step()
    assert not hand.memory.buckets.is_done(NOON, 0), "it reads once more first"
    hand.step()
    assert hand.memory.buckets.is_done(NOON, 0)


def test_a_poller_whose_place_another_took_lets_it_go() -> None:
    hand = Hand()
    hand.tick("one")
    assert TimerPartition(NOON, 0) in hand.poller.leased_partitions
    hand.now = NOON + seconds(61)
    taken = hand.memory.buckets.acquire(NOON, 0, "two", hand.now, hand.now + MINUTE)
    assert taken is not None
    hand.step()
    assert TimerPartition(NOON, 0) not in hand.poller.leased_partitions
    assert TimerPartition(NOON + MINUTE, 0) in hand.poller.leased_partitions
    assert hand.memory.buckets.renew(taken, hand.now + MINUTE) is not None
