"""Runs that a swap queued are sent, also after crashes and outages."""

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
from tests.support.simulation.manual_engine import NOON, ManualEngine, a_finish
from tests.support.simulation.port_faults import Fault, FaultKind, Plan, with_faults

MINUTE = timedelta(minutes=1)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def test_timers_of_a_failed_batch_are_evaluated_again() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    down = with_faults(engine.memory.ports, Plan((Fault(1, FaultKind.BEFORE),)), "poller")
    engine.poller = engine.new_poller()
    engine.poller._evaluator = Evaluator(engine.applier(down), engine.new_id)
    engine.tick()
    engine.now = NOON + seconds(5)
    with pytest.raises(Unavailable):
        engine.step()
    engine.wait(1)
    engine.step()
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]


def test_pauses_during_an_outage_of_the_store_double_up_to_15_seconds() -> None:
    engine = ManualEngine()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    down = with_faults(
        engine.memory.ports, Plan(tuple(Fault(n, FaultKind.BEFORE) for n in range(1, 8))), "poller"
    )
    engine.poller._evaluator = Evaluator(engine.applier(down), engine.new_id)
    engine.tick()
    engine.now = NOON + seconds(5)
    failed_at = []
    while not engine.state(key).runs:
        try:
            engine.step()
        except Unavailable:
            failed_at.append((engine.now - NOON).total_seconds())
        engine.wait(1)
    assert failed_at == [5, 6, 8, 12, 20, 35, 50]


def test_fallback_timer_of_an_api_call_is_not_consumed_early() -> None:
    engine = ManualEngine()
    engine.poller = engine.new_poller(ahead=60)
    engine.tick()
    engine.plan.before("run_queue.send", crash)
    with pytest.raises(Crash):
        engine.submit()
    (key,) = engine.memory.job_states.rows
    assert engine.memory.run_queue.entries == []
    engine.step()
    assert len(engine.timers()) == 1, "an early evaluation keeps it"
    engine.step_until(16, every=1)
    assert engine.message().run_id == engine.state(key).runs[0].run_id
    assert engine.timers() == []


class Crash(BaseException):
    pass


def crash() -> None:
    raise Crash


def test_run_of_a_refused_message_is_sent_fifteen_seconds_later() -> None:
    engine = ManualEngine()
    engine.tick()
    key = engine.submit(schedule_type="FUTURE", schedule_time="2026-03-02T12:00:05Z")
    real = engine.memory.run_queue.send
    engine.memory.run_queue.send = lambda messages: [False] * len(messages)  # type: ignore[method-assign]
    engine.step_until(6, every=1)
    engine.memory.run_queue.send = real  # type: ignore[method-assign]
    assert engine.state(key).runs[0].status is RunStatus.QUEUED
    assert engine.memory.run_queue.entries == []
    engine.step_until(19, every=1)
    assert engine.memory.run_queue.entries == []
    engine.step_until(21, every=1)
    assert engine.message().run_id == engine.state(key).runs[0].run_id
    engine.step_until(22, every=1)
    assert engine.timers() == []


def test_lease_timer_evaluated_early_makes_no_calls_until_its_time() -> None:
    engine = ManualEngine()
    engine.poller = engine.new_poller(ahead=60)
    engine.tick()
    key = engine.submit()
    assignment = engine.claim()
    engine.wait(4)
    engine.executor().renew([(key, assignment.run.run_id, assignment.run.token)], is_first=True)
    plan = Plan()
    counted = with_faults(engine.memory.ports, plan, "poller")
    engine.poller._evaluator = Evaluator(engine.applier(counted), engine.new_id)
    for _ in range(20):
        engine.wait(0.1)
        engine.poller.add_timers(engine.memory.wakeups.new_timers)
        engine.memory.wakeups.new_timers.clear()
        engine.step()
    assert len(plan.calls) <= 2, plan.calls


def test_run_admitted_by_a_crashed_finish_is_sent() -> None:
    engine = ManualEngine()
    engine.tick()
    key = engine.submit(schedule_type="CRON", cron_expression="* * * * *")
    engine.jobs.run_now(*key)
    first = engine.claim()
    waiting = engine.jobs.run_now(*key).run.run_id
    delivery = engine.message()
    engine.wait(29)
    plan = engine.interrupted("e1")
    engine.plan.before("run_queue.send", crash)
    with pytest.raises(Crash):
        engine.executor("e1", plan).finish([a_finish(first, RunStatus.SUCCESS)])
    engine.wait(1)
    engine.poller = engine.new_poller()
    claim_result = engine.executor("e2").claim([delivery])
    assert list(claim_result.done) == [delivery]
    engine.memory.run_queue.entries.clear()

    engine.tick("again")
    engine.wait(31)
    engine.tick("and again")
    engine.step_until(95, every=1)
    sent = [message.run_id for message in engine.memory.run_queue.sent]
    assert waiting in sent


def test_message_delivered_twice_stays_until_its_executor_is_done() -> None:
    """The second receiver evaluates before the end of the run, and reads the job again after it."""
    engine = ManualEngine()
    key = engine.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    engine.jobs.run_now(*key)
    first = engine.claim("e1")
    delivery = engine.message()
    engine.jobs.run_now(*key)  # waits for room
    crashing = engine.executor("e1", engine.interrupted("e1"))

    def finish_and_crash() -> None:
        engine.plan.before("run_queue.send", crash)
        with pytest.raises(Crash):
            crashing.finish([a_finish(first, RunStatus.SUCCESS)])

    other = engine.executor("e2")
    apply = other._applier.apply

    def evaluate_and_crash(changes: list[Change], **kwargs: Any) -> list[Result]:
        results = apply(changes, **kwargs)
        if isinstance(changes[0].event, Evaluate):
            finish_and_crash()
        return results

    other._applier.apply = evaluate_and_crash  # type: ignore[method-assign,assignment]
    claim_result = other.claim([delivery])
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED], (
        "admitted, and not sent"
    )
    assert list(claim_result.done) == []
    assert [message for message, _ in claim_result.retry_later] == [delivery]
    engine.wait(31)
    claim_result = engine.executor("e3").claim([delivery])
    assert list(claim_result.done) == [delivery]
    sent = [message.run_id for message in engine.memory.run_queue.sent]
    assert engine.state(key).runs[0].run_id in sent


def test_run_that_waits_as_long_as_the_fallback_timer_keeps_its_timer() -> None:
    """Both are due in 15 s. Only the fallback timer is removed after the effects."""
    engine = ManualEngine()
    engine.tick()
    key = engine.submit(schedule_type="CRON", cron_expression="0 0 * * *")
    engine.jobs.run_now(*key)
    engine.jobs.run_now(*key)
    engine.executor().finish([a_finish(engine.claim(), RunStatus.SUCCESS)])
    message = engine.memory.run_queue.entries[-1].message
    (assignment,) = engine.executor().claim([message]).claimed
    engine.memory.history.rows.clear()  # the row is written again, which needs the fallback timer
    engine.executor().return_claim(
        key, assignment.run.run_id, assignment.run.token, work_begun=False, with_delay=True
    )
    assert engine.state(key).timer_at == engine.now + seconds(15)
    assert engine.now + seconds(15) in [timer.at for timer in engine.timers()]
    engine.step_until(16, every=1)
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]


def test_dead_letter_ends_its_run_and_the_next_run_is_sent() -> None:
    engine = ManualEngine()
    engine.tick()
    key = engine.submit(schedule_type="CRON", cron_expression="* * * * *")
    engine.jobs.run_now(*key)
    message = engine.message()
    waiting = engine.jobs.run_now(*key).run.run_id
    engine.memory.run_queue.entries.clear()
    engine.plan.before("run_queue.send", crash)
    with pytest.raises(Crash):
        engine.executor("dead letters", engine.interrupted("dead letters")).dead_letter([message])
    assert engine.invariants.ended[_key(message)].status is RunStatus.FAILED
    assert engine.invariants.ended[_key(message)].reason == "POISON"
    engine.step_until(20, every=1)
    assert [entry.message.run_id for entry in engine.memory.run_queue.entries] == [waiting]


def _key(message: Message) -> RunKey:
    return RunKey(message.tenant, message.job_id, message.run_id)
