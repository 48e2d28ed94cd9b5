"""A planner with a clock ahead closes future buckets, and reopens them after the correction."""

from datetime import timedelta

from punctual.domain.run import RunStatus
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner
from punctual.engine.ports.partitions import TimerPartition
from tests.support.simulation.manual_engine import NOON, ManualEngine

MINUTE = timedelta(minutes=1)


def is_queued(engine: ManualEngine) -> bool:
    (stored,) = engine.memory.job_states.rows.values()
    return [run.status for run in stored.state.runs] == [RunStatus.QUEUED]


def test_planner_reopens_buckets_closed_by_a_clock_ahead() -> None:
    engine = ManualEngine()
    engine.tick()
    engine.now = NOON + timedelta(hours=1)
    for _ in range(3):
        engine.tick()
        engine.step()
    mark = engine.memory.partitions.watermark()
    assert mark is not None
    assert mark > NOON + timedelta(minutes=30)

    engine.now = NOON + MINUTE
    engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:30Z")
    engine.tick()
    engine.step_until(95)
    assert is_queued(engine)


def test_peeking_planner_reopens_buckets_closed_by_a_clock_ahead() -> None:
    engine = ManualEngine()
    memory = engine.memory
    planner = PeekingPlanner(memory.timers, memory.partitions, memory.partitions)
    planner.tick(NOON, 1, 5)
    plan = planner.tick(NOON + timedelta(hours=1), 1, 5)
    assert plan.watermark > NOON + timedelta(minutes=30)

    engine.now = NOON + MINUTE
    engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:30Z")
    plan = planner.tick(engine.now, 1, 5)
    assert plan.watermark <= engine.now
    assert [partition for wake_up in plan.wakeups for partition in wake_up.partitions] == [
        TimerPartition(NOON + MINUTE, 0)
    ]
