"""The reconciler finds what is missing, and nothing else."""

from datetime import timedelta

from punctual.domain.events import Claim
from punctual.domain.run import RunStatus
from punctual.engine.changes.change import Change
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.timers import Timer
from tests.support.ports import a_reconciler, a_sweeper
from tests.support.simulation.hand import NOON, Hand

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_shards_that_grow_keep_the_timers_of_before_and_alarm_nobody() -> None:
    hand = Hand()
    keys = [
        hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z") for _ in range(8)
    ]
    hand.memory.buckets.raise_shard_count(4)
    hand.jobs = hand.api()
    keys += [
        hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z") for _ in range(8)
    ]
    assert {timer.shard for timer in hand.timers()} == {0, 1, 2, 3}
    steps = hand.steps()
    reconciler = a_reconciler(hand.memory.ports, steps, Evaluator(steps, hand.new_id))
    assert reconciler.step().repaired_keys == ()
    hand.tick()
    hand.now = NOON + seconds(30)
    hand.step()
    assert all(hand.head(key).runs[0].status is RunStatus.QUEUED for key in keys)
    assert len(hand.memory.queue.entries) == 16


def test_the_reconciler_mends_a_job_without_a_timer_and_says_so() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:30:00Z")
    hand.memory.timers.delete(hand.timers())
    steps = hand.steps()
    reconciler = a_reconciler(hand.memory.ports, steps, Evaluator(steps, hand.new_id))
    assert reconciler.step().repaired_keys == (key,)
    hand.look()
    assert [timer.at for timer in hand.timers()] == [NOON + 30 * MINUTE]
    assert reconciler.step().repaired_keys == ()


def test_a_claim_that_everybody_forgot_is_ended() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="IMMEDIATE")
    steps = hand.steps()
    (run,) = hand.head(key).runs
    steps.apply([Change(key, Claim(run.run_id, "gone", "n"), "n")])
    hand.memory.timers.delete(hand.timers())
    reconciler = a_reconciler(hand.memory.ports, steps, Evaluator(steps, hand.new_id))
    hand.now = NOON + 30 * MINUTE
    assert reconciler.step().repaired_keys == ()
    hand.now = NOON + 70 * MINUTE
    assert reconciler.step().repaired_keys == (key,)
    hand.look()
    assert [(r.status, r.past_attempts) for r in hand.head(key).runs] == [(RunStatus.QUEUED, "L")]


def test_the_reconciler_believes_no_page_that_is_out_of_date() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    stale = hand.memory.heads.walk(None, 10)
    hand.tick()
    hand.now = NOON + MINUTE
    hand.step()
    assert hand.head(key).version > stale.states[0].version
    hand.memory.heads.walk = lambda cursor, limit: stale  # type: ignore[method-assign]
    steps = hand.steps()
    reconciler = a_reconciler(hand.memory.ports, steps, Evaluator(steps, hand.new_id))
    hand.now = NOON + seconds(3600)
    assert reconciler.step().repaired_keys == ()


def test_timers_that_stand_in_a_closed_minute_do_no_harm() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:05:00Z")
    before = hand.head(key)
    stray = Timer(NOON - MINUTE, 0, NOON - MINUTE, *key, before.version)
    hand.memory.timers.put([stray, stray])
    hand.look(stray)
    hand.look(stray)
    assert hand.head(key) == before
    assert stray not in hand.timers()


def test_a_timer_behind_the_watermark_is_looked_at_and_goes() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T13:00:00Z")
    before = hand.timers()
    minute = NOON - 30 * MINUTE
    hand.memory.timers.put([Timer(minute, 0, minute, *key, hand.head(key).version)])
    hand.memory.buckets.advance_watermark(hand.memory.buckets.watermark(), NOON)
    sweeper = a_sweeper(hand.memory.ports, Evaluator(hand.steps(), hand.new_id))
    cursor, found = None, 0
    for _ in range(20):
        swept = sweeper.step(cursor)
        cursor, found = swept.cursor, found + swept.timer_count
        if cursor is None:
            break
    assert (cursor, found) == (None, 1)
    assert hand.timers() == before
