"""A planner whose clock ran ahead has closed minutes that are still to come."""

from datetime import timedelta

from punctual.domain.run import RunStatus
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner
from punctual.engine.ports.partitions import TimerPartition
from tests.support.simulation.hand import NOON, Hand

MINUTE = timedelta(minutes=1)


def is_queued(hand: Hand) -> bool:
    (stored,) = hand.memory.heads.rows.values()
    return [run.status for run in stored.state.runs] == [RunStatus.QUEUED]


def test_a_planner_that_hands_out_minutes_opens_them_again() -> None:
    hand = Hand()
    hand.tick()
    hand.now = NOON + timedelta(hours=1)
    for _ in range(3):
        hand.tick()
        hand.step()
    mark = hand.memory.buckets.watermark()
    assert mark is not None
    assert mark > NOON + timedelta(minutes=30)

    hand.now = NOON + MINUTE
    hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:30Z")
    hand.tick()
    hand.step_until(95)
    assert is_queued(hand)


def test_a_planner_that_looks_before_it_hands_out_opens_them_again() -> None:
    hand = Hand()
    memory = hand.memory
    lookout = PeekingPlanner(memory.timers, memory.buckets, memory.buckets)
    lookout.tick(NOON, 1, 5)
    seen = lookout.tick(NOON + timedelta(hours=1), 1, 5)
    assert seen.watermark > NOON + timedelta(minutes=30)

    hand.now = NOON + MINUTE
    hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:30Z")
    seen = lookout.tick(hand.now, 1, 5)
    assert seen.watermark <= hand.now
    assert [place for call in seen.wakeups for place in call.partitions] == [
        TimerPartition(NOON + MINUTE, 0)
    ]
