"""Buckets, leases, nudges and the watermark: no minute closes over a timer."""

from datetime import timedelta

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.run import Status
from punctual.engine.looker import Looker
from punctual.engine.ports import Message, RunKey, Timer
from punctual.engine.reconciler import Reconciler
from punctual.engine.window import Place
from tests.simulation.hand import NOON, Hand, a_finish
from tests.simulation.torn import Fault, Plan, Tear, torn

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def step_until(hand: Hand, at: float, every: float = 5) -> None:
    while hand.now < NOON + seconds(at):
        hand.wait(every)
        hand.step()


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
    assert run.status is Status.QUEUED
    hand.wait(1)
    hand.step()
    assert hand.memory.buckets.is_done(NOON, 0)


def test_the_watermark_never_passes_a_minute_that_is_not_done_in_every_shard() -> None:
    hand = Hand()
    hand.memory.buckets.grow(4)
    planned = hand.planner().tick(NOON)
    started = planned.watermark
    for lease in planned.leases:
        if (lease.bucket, lease.shard) != (NOON, 2):
            assert hand.memory.buckets.done(lease)
    hand.now = NOON + seconds(200)
    later = hand.planner("later").tick(hand.now)
    assert (started, later.watermark) == (NOON - MINUTE, NOON)
    (last,) = [one for one in later.leases if one.bucket == NOON]
    assert last.shard == 2
    assert hand.memory.buckets.done(last)
    assert hand.planner("again").tick(hand.now).watermark == NOON + 3 * MINUTE


def test_the_first_tick_three_hours_late_finds_what_was_put_before_it() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:01:00Z")
    hand.now = NOON + seconds(3 * 3600 + 7)
    assert hand.tick() > 180
    hand.step()

    (run,) = hand.head(key).runs
    assert (run.status, run.scheduled_at) == (Status.QUEUED, NOON + MINUTE)
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
    step_until(hand, 170)
    assert hand.memory.buckets.is_done(NOON + MINUTE, 0)
    assert not hand.memory.buckets.is_done(NOON + 3 * MINUTE, 0)
    hand.now = NOON + seconds(250)
    hand.tick("after the lost one")
    hand.step()
    mark = hand.head(key).mark
    assert mark is not None
    assert mark >= NOON + 4 * MINUTE


def test_a_lease_that_ended_is_handed_out_again_and_the_former_holder_is_fenced() -> None:
    hand = Hand()
    (former,) = [one for one in hand.planner("one").tick(NOON).leases if one.bucket == NOON]
    later = NOON + seconds(90)
    (present,) = [one for one in hand.planner("two").tick(later).leases if one.bucket == NOON]
    assert present.token > former.token
    assert hand.memory.buckets.done(former) is False
    assert hand.memory.buckets.renew(former, later + MINUTE) is None
    assert hand.memory.buckets.done(present) is True


def test_a_poller_that_was_nudged_reads_again_and_goes_on() -> None:
    hand = Hand()
    hand.tick()
    hand.step()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:50Z")
    assert hand.memory.buckets.nudge(NOON, 0) is not None
    hand.memory.wake.nudges.clear()  # it came as a raised number alone
    step_until(hand, 51, every=1)

    assert Place(NOON, 0) in hand.poller.places, "nobody else could take it for a minute"
    assert [run.status for run in hand.head(key).runs] == [Status.QUEUED]


def test_a_nudge_while_a_minute_closes_is_not_lost() -> None:
    hand = Hand()
    hand.tick()
    hand.now = NOON + seconds(74)
    hand.step()
    hand.memory.buckets.nudge(NOON, 0)
    hand.wait(1)
    hand.step()
    assert not hand.memory.buckets.is_done(NOON, 0), "it reads once more first"
    hand.step()
    assert hand.memory.buckets.is_done(NOON, 0)


def test_a_poller_whose_place_another_took_lets_it_go() -> None:
    hand = Hand()
    hand.tick("one")
    assert Place(NOON, 0) in hand.poller.places
    hand.now = NOON + seconds(61)
    taken = hand.memory.buckets.acquire(NOON, 0, "two", hand.now, hand.now + MINUTE)
    assert taken is not None
    hand.step()
    assert Place(NOON, 0) not in hand.poller.places
    assert Place(NOON + MINUTE, 0) in hand.poller.places
    assert hand.memory.buckets.renew(taken, hand.now + MINUTE) is not None


def test_timers_of_a_batch_that_failed_are_looked_at_again() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    down = torn(hand.memory.ports, Plan((Fault(1, Tear.BEFORE),)), "poller")
    hand.poller = hand.new_poller()
    hand.poller._looker = Looker(hand.steps(down), hand.new_id)
    hand.tick()
    hand.now = NOON + seconds(5)
    with pytest.raises(Unavailable):
        hand.step()
    hand.wait(1)
    hand.step()
    assert [run.status for run in hand.head(key).runs] == [Status.QUEUED]


def test_a_timer_that_stands_in_for_an_api_call_is_not_taken_ahead_of_its_time() -> None:
    hand = Hand()
    hand.poller = hand.new_poller(ahead=60)
    hand.tick()
    hand.plan.before("messages.send", _die)
    with pytest.raises(_Dead):
        hand.submit()
    (key,) = hand.memory.heads.rows
    assert hand.memory.queue.entries == []
    hand.step()
    assert len(hand.timers()) == 1, "looked at ahead, it stays"
    step_until(hand, 16, every=1)
    assert hand.message().run_id == hand.head(key).runs[0].run_id
    assert hand.timers() == []


class _Dead(BaseException):
    pass


def _die() -> None:
    raise _Dead


def test_what_a_refused_message_left_queued_is_sent_fifteen_seconds_later() -> None:
    hand = Hand()
    hand.tick()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    real = hand.memory.queue.send
    hand.memory.queue.send = lambda messages: [False] * len(messages)  # type: ignore[method-assign]
    step_until(hand, 6, every=1)
    hand.memory.queue.send = real  # type: ignore[method-assign]
    assert hand.head(key).runs[0].status is Status.QUEUED
    assert hand.memory.queue.entries == []
    step_until(hand, 19, every=1)
    assert hand.memory.queue.entries == []
    step_until(hand, 21, every=1)
    assert hand.message().run_id == hand.head(key).runs[0].run_id
    step_until(hand, 22, every=1)
    assert hand.timers() == []


def test_a_watch_looked_at_ahead_asks_for_nothing_until_its_time() -> None:
    hand = Hand()
    hand.poller = hand.new_poller(ahead=60)
    hand.tick()
    key = hand.submit()
    held = hand.claim()
    hand.wait(4)
    hand.executor().beat([(key, held.run.run_id, held.run.token)], first=True)
    plan = Plan()
    counted = torn(hand.memory.ports, plan, "poller")
    hand.poller._looker = Looker(hand.steps(counted), hand.new_id)
    for _ in range(20):
        hand.wait(0.1)
        hand.poller.nudge(hand.memory.wake.nudges)
        hand.memory.wake.nudges.clear()
        hand.step()
    assert len(plan.calls) <= 2, plan.calls


def test_a_run_let_in_by_a_finish_that_died_before_sending_is_sent() -> None:
    hand = Hand()
    hand.tick()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    hand.jobs.run_now(*key)
    first = hand.claim()
    waiting = hand.jobs.run_now(*key).run.run_id
    delivery = hand.message()
    hand.wait(29)
    plan = hand.interrupted("e1")
    hand.plan.before("messages.send", _die)
    with pytest.raises(_Dead):
        hand.executor("e1", plan).finish([a_finish(first, Status.SUCCESS)])
    hand.wait(1)
    hand.poller = hand.new_poller()
    handed = hand.executor("e2").claim([delivery])
    assert list(handed.settled) == [delivery]
    hand.memory.queue.entries.clear()

    hand.tick("again")
    hand.wait(31)
    hand.tick("and again")
    step_until(hand, 95, every=1)
    sent = [message.run_id for message in hand.memory.queue.sent]
    assert waiting in sent


def test_a_poisonous_message_ends_its_run_and_what_follows_is_sent() -> None:
    hand = Hand()
    hand.tick()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    hand.jobs.run_now(*key)
    message = hand.message()
    waiting = hand.jobs.run_now(*key).run.run_id
    hand.memory.queue.entries.clear()
    hand.plan.before("messages.send", _die)
    with pytest.raises(_Dead):
        hand.executor("dead letters", hand.interrupted("dead letters")).poison([message])
    assert hand.laws.ended[_key(message)].status is Status.FAILED
    assert hand.laws.ended[_key(message)].reason == "POISON"
    step_until(hand, 20, every=1)
    assert [entry.message.run_id for entry in hand.memory.queue.entries] == [waiting]


def _key(message: Message) -> RunKey:
    return RunKey(message.tenant, message.job_id, message.run_id)


def test_shards_that_grow_keep_the_timers_of_before_and_alarm_nobody() -> None:
    hand = Hand()
    keys = [
        hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z") for _ in range(8)
    ]
    hand.memory.buckets.grow(4)
    hand.jobs = hand.api()
    keys += [
        hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:30Z") for _ in range(8)
    ]
    assert {timer.shard for timer in hand.timers()} == {0, 1, 2, 3}
    steps = hand.steps()
    reconciler = Reconciler(hand.memory.ports, steps, Looker(steps, hand.new_id))
    assert reconciler.step(hand.now).mended == ()
    hand.tick()
    hand.now = NOON + seconds(30)
    hand.step()
    assert all(hand.head(key).runs[0].status is Status.QUEUED for key in keys)
    assert len(hand.memory.queue.entries) == 16


def test_the_reconciler_mends_a_job_without_a_timer_and_says_so() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:30:00Z")
    hand.memory.timers.delete(hand.timers())
    steps = hand.steps()
    reconciler = Reconciler(hand.memory.ports, steps, Looker(steps, hand.new_id))
    assert reconciler.step(hand.now).mended == (key,)
    hand.look()
    assert [timer.at for timer in hand.timers()] == [NOON + 30 * MINUTE]
    assert reconciler.step(hand.now).mended == ()


def test_the_reconciler_believes_no_page_that_is_out_of_date() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    stale = hand.memory.heads.walk(None, 10)
    hand.tick()
    hand.now = NOON + MINUTE
    hand.step()
    assert hand.head(key).version > stale.heads[0].version
    hand.memory.heads.walk = lambda cursor, limit: stale  # type: ignore[method-assign]
    steps = hand.steps()
    reconciler = Reconciler(hand.memory.ports, steps, Looker(steps, hand.new_id))
    assert reconciler.step(NOON + seconds(3600)).mended == ()


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
