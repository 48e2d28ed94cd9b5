"""The reconciler repairs jobs without a timer, and no others."""

from datetime import timedelta

from punctual.domain.events import Claim
from punctual.domain.run import RunStatus
from punctual.engine.changes.change import Change
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.timers import Timer
from tests.support.ports import a_reconciler, a_sweeper
from tests.support.simulation.manual_engine import NOON, ManualEngine

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_raised_shard_count_keeps_earlier_timers_without_repairs() -> None:
    engine = ManualEngine()
    keys = [
        engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z")
        for _ in range(8)
    ]
    engine.memory.partitions.raise_shard_count(4)
    engine.jobs = engine.api()
    keys += [
        engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z")
        for _ in range(8)
    ]
    assert {timer.shard for timer in engine.timers()} == {0, 1, 2, 3}
    applier = engine.applier()
    reconciler = a_reconciler(
        engine.memory.ports, applier, Evaluator(applier, engine.new_id), engine.new_id
    )
    assert reconciler.step().repaired_keys == ()
    engine.tick()
    engine.now = NOON + seconds(30)
    engine.step()
    assert all(engine.state(key).runs[0].status is RunStatus.QUEUED for key in keys)
    assert len(engine.memory.run_queue.entries) == 16


def test_reconciler_repairs_and_reports_a_job_without_a_timer() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:30:00Z")
    engine.memory.timers.delete(engine.timers())
    applier = engine.applier()
    reconciler = a_reconciler(
        engine.memory.ports, applier, Evaluator(applier, engine.new_id), engine.new_id
    )
    assert reconciler.step().repaired_keys == (key,)
    engine.evaluate()
    assert [timer.at for timer in engine.timers()] == [NOON + 30 * MINUTE]
    assert reconciler.step().repaired_keys == ()


def test_reconciler_ends_an_abandoned_claim() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="IMMEDIATE")
    applier = engine.applier()
    (run,) = engine.state(key).runs
    applier.apply([Change(key, Claim(run.run_id, "gone", "n"), "n")])
    engine.memory.timers.delete(engine.timers())
    reconciler = a_reconciler(
        engine.memory.ports, applier, Evaluator(applier, engine.new_id), engine.new_id
    )
    engine.now = NOON + 30 * MINUTE
    assert reconciler.step().repaired_keys == ()
    engine.now = NOON + 70 * MINUTE
    assert reconciler.step().repaired_keys == (key,)
    engine.evaluate()
    assert [(r.status, r.past_attempts) for r in engine.state(key).runs] == [
        (RunStatus.QUEUED, "L")
    ]


def test_reconciler_ignores_a_stale_page() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="CRON", cron_expression="* * * * *")
    stale = engine.memory.job_states.walk(None, 10)
    engine.tick()
    engine.now = NOON + MINUTE
    engine.step()
    assert engine.state(key).version > stale.states[0].version
    engine.memory.job_states.walk = lambda cursor, limit: stale  # type: ignore[method-assign]
    applier = engine.applier()
    reconciler = a_reconciler(
        engine.memory.ports, applier, Evaluator(applier, engine.new_id), engine.new_id
    )
    engine.now = NOON + seconds(3600)
    assert reconciler.step().repaired_keys == ()


def test_timer_in_a_closed_bucket_changes_nothing() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    before = engine.state(key)
    stray = Timer(NOON - MINUTE, 0, NOON - MINUTE, *key, before.version)
    engine.memory.timers.put([stray, stray])
    engine.evaluate(stray)
    engine.evaluate(stray)
    assert engine.state(key) == before
    assert stray not in engine.timers()


def test_timer_behind_the_watermark_is_evaluated_and_removed() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T13:00:00Z")
    before = engine.timers()
    minute = NOON - 30 * MINUTE
    engine.memory.timers.put([Timer(minute, 0, minute, *key, engine.state(key).version)])
    engine.memory.partitions.advance_watermark(engine.memory.partitions.watermark(), NOON)
    sweeper = a_sweeper(engine.memory.ports, Evaluator(engine.applier(), engine.new_id))
    cursor, timer_count = None, 0
    for _ in range(20):
        swept = sweeper.step(cursor)
        cursor, timer_count = swept.cursor, timer_count + swept.timer_count
        if cursor is None:
            break
    assert (cursor, timer_count) == (None, 1)
    assert engine.timers() == before
