"""What a swap left to be sent is sent, whoever died or did not answer."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.domain.events import Evaluate
from punctual.domain.run import RunStatus
from punctual.engine.changes.change import Change, Result
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.rows import RunKey
from punctual.engine.ports.run_queue import Message
from tests.support.simulation.hand import NOON, Hand, a_finish
from tests.support.simulation.torn import Fault, Plan, Tear, torn

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_timers_of_a_batch_that_failed_are_looked_at_again() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    down = torn(hand.memory.ports, Plan((Fault(1, Tear.BEFORE),)), "poller")
    hand.poller = hand.new_poller()
    hand.poller._evaluator = Evaluator(hand.steps(down), hand.new_id)
    hand.tick()
    hand.now = NOON + seconds(5)
    with pytest.raises(Unavailable):
        hand.step()
    hand.wait(1)
    hand.step()
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]


def test_a_store_that_does_not_answer_is_asked_after_pauses_that_double_up_to_15_seconds() -> None:
    hand = Hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    down = torn(
        hand.memory.ports, Plan(tuple(Fault(n, Tear.BEFORE) for n in range(1, 8))), "poller"
    )
    hand.poller._evaluator = Evaluator(hand.steps(down), hand.new_id)
    hand.tick()
    hand.now = NOON + seconds(5)
    asked = []
    while not hand.head(key).runs:
        try:
            hand.step()
        except Unavailable:
            asked.append((hand.now - NOON).total_seconds())
        hand.wait(1)
    assert asked == [5, 6, 8, 12, 20, 35, 50]


def test_a_timer_that_stands_in_for_an_api_call_is_not_taken_ahead_of_its_time() -> None:
    hand = Hand()
    hand.poller = hand.new_poller(ahead=60)
    hand.tick()
    hand.plan.before("run_queue.send", _die)
    with pytest.raises(_Dead):
        hand.submit()
    (key,) = hand.memory.heads.rows
    assert hand.memory.queue.entries == []
    hand.step()
    assert len(hand.timers()) == 1, "looked at ahead, it stays"
    hand.step_until(16, every=1)
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
    hand.step_until(6, every=1)
    hand.memory.queue.send = real  # type: ignore[method-assign]
    assert hand.head(key).runs[0].status is RunStatus.QUEUED
    assert hand.memory.queue.entries == []
    hand.step_until(19, every=1)
    assert hand.memory.queue.entries == []
    hand.step_until(21, every=1)
    assert hand.message().run_id == hand.head(key).runs[0].run_id
    hand.step_until(22, every=1)
    assert hand.timers() == []


def test_a_watch_looked_at_ahead_asks_for_nothing_until_its_time() -> None:
    hand = Hand()
    hand.poller = hand.new_poller(ahead=60)
    hand.tick()
    key = hand.submit()
    held = hand.claim()
    hand.wait(4)
    hand.executor().renew([(key, held.run.run_id, held.run.token)], is_first=True)
    plan = Plan()
    counted = torn(hand.memory.ports, plan, "poller")
    hand.poller._evaluator = Evaluator(hand.steps(counted), hand.new_id)
    for _ in range(20):
        hand.wait(0.1)
        hand.poller.add_timers(hand.memory.wake.nudges)
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
    hand.plan.before("run_queue.send", _die)
    with pytest.raises(_Dead):
        hand.executor("e1", plan).finish([a_finish(first, RunStatus.SUCCESS)])
    hand.wait(1)
    hand.poller = hand.new_poller()
    handed = hand.executor("e2").claim([delivery])
    assert list(handed.done) == [delivery]
    hand.memory.queue.entries.clear()

    hand.tick("again")
    hand.wait(31)
    hand.tick("and again")
    hand.step_until(95, every=1)
    sent = [message.run_id for message in hand.memory.queue.sent]
    assert waiting in sent


def test_a_message_that_is_delivered_twice_stays_until_its_holder_is_done() -> None:
    """The second receiver looks before the holder's end, and reads the job once more after it."""
    hand = Hand()
    key = hand.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    hand.jobs.run_now(*key)
    first = hand.claim("e1")
    delivery = hand.message()
    hand.jobs.run_now(*key)  # waits for room
    dying = hand.executor("e1", hand.interrupted("e1"))

    def end_and_die() -> None:
        hand.plan.before("run_queue.send", _die)
        with pytest.raises(_Dead):
            dying.finish([a_finish(first, RunStatus.SUCCESS)])

    other = hand.executor("e2")
    looked = other._applier.apply

    def look_and_stand(changes: list[Change], **how: Any) -> list[Result]:
        results = looked(changes, **how)
        if isinstance(changes[0].event, Evaluate):
            end_and_die()
        return results

    other._applier.apply = look_and_stand  # type: ignore[method-assign,assignment]
    handed = other.claim([delivery])
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED], "let in, and not sent"
    assert list(handed.done) == []
    assert [message for message, _ in handed.retry_later] == [delivery]
    hand.wait(31)
    handed = hand.executor("e3").claim([delivery])
    assert list(handed.done) == [delivery]
    sent = [message.run_id for message in hand.memory.queue.sent]
    assert hand.head(key).runs[0].run_id in sent


def test_a_run_that_waits_as_long_as_the_safety_timer_keeps_its_own_timer() -> None:
    """Both are for 15 s later, and only the safety timer goes when the effects are done."""
    hand = Hand()
    hand.tick()
    key = hand.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    hand.jobs.run_now(*key)
    hand.jobs.run_now(*key)
    hand.executor().finish([a_finish(hand.claim(), RunStatus.SUCCESS)])
    message = hand.memory.queue.entries[-1].message
    (held,) = hand.executor().claim([message]).claimed
    hand.memory.history.rows.clear()  # the row is written again: an effect to secure
    hand.executor().return_claim(
        key, held.run.run_id, held.run.token, work_begun=False, with_delay=True
    )
    assert hand.head(key).timer_at == hand.now + seconds(15)
    assert hand.now + seconds(15) in [timer.at for timer in hand.timers()]
    hand.step_until(16, every=1)
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]


def test_a_poisonous_message_ends_its_run_and_what_follows_is_sent() -> None:
    hand = Hand()
    hand.tick()
    key = hand.submit(schedule_type="CRON", cron_expression="* * * * *")
    hand.jobs.run_now(*key)
    message = hand.message()
    waiting = hand.jobs.run_now(*key).run.run_id
    hand.memory.queue.entries.clear()
    hand.plan.before("run_queue.send", _die)
    with pytest.raises(_Dead):
        hand.executor("dead letters", hand.interrupted("dead letters")).dead_letter([message])
    assert hand.laws.ended[_key(message)].status is RunStatus.FAILED
    assert hand.laws.ended[_key(message)].reason == "POISON"
    hand.step_until(20, every=1)
    assert [entry.message.run_id for entry in hand.memory.queue.entries] == [waiting]


def _key(message: Message) -> RunKey:
    return RunKey(message.tenant, message.job_id, message.run_id)
