"""Runs on request: run now, retry and backfill."""

from typing import Any

import pytest

from punctual.domain.decide import Verdict, decide
from punctual.domain.events import Backfill, StartRun
from punctual.domain.job_state import OverlapPolicy
from punctual.domain.run import RunStatus, Trigger
from punctual.domain.schedules.schedule import Once
from punctual.domain.transitions.wait_queue import MAX_WAITING_RUNS
from tests.support.builders_jobs import Story, a_job, after, every


def a_paused_job(**fields: Any) -> Story:
    story = Story(a_job(every(60), **fields)).at(30)
    story.pause()
    return story


@pytest.mark.parametrize("state", ["SCHEDULED", "PAUSED", "COMPLETED"])
def test_run_now_starts_a_run_and_leaves_the_schedule(state: str) -> None:
    story = Story(a_job(Once(after(0)))).drain() if state == "COMPLETED" else Story(a_job())
    if state == "PAUSED":
        story.pause()
    upcoming = story.state.next_at
    decision = story.at(7).request_run("mine")
    assert decision.verdict is Verdict.OK
    assert decision.run is not None
    assert (decision.run.status, decision.run.trigger) == (RunStatus.QUEUED, Trigger.RUN_NOW)
    assert (decision.run.scheduled_at, decision.run.due_at) == (after(7), after(7))
    assert [run.run_id for run in decision.runs_to_send] == ["mine"]
    story.finish(story.claim("mine"))
    assert story.state.status.value == state
    assert story.state.next_at == upcoming
    assert story.ledger["mine"].status is RunStatus.SUCCESS


def test_repeated_run_now_makes_one_run() -> None:
    story = Story(a_job()).at(5)
    story.request_run("mine")
    repeated = story.wait(1).request_run("mine")
    assert not repeated.changed
    assert repeated.run is not None
    assert repeated.run.run_id == "mine"
    story.finish(story.claim("mine"))
    ended = story.do(StartRun("mine"), recorded=False)
    assert ended.run is not None
    assert ended.run.status is RunStatus.SUCCESS
    assert story.state.runs == ()


def test_run_now_does_not_change_the_edition() -> None:
    story = Story(a_job()).at(5)
    story.request_run("mine")
    assert story.state.edition == 1


def test_retry_keeps_the_nominal_time_and_is_due_now() -> None:
    story = Story(a_job(every(3600))).at(100)
    decision = story.do(StartRun("again", Trigger.RETRY, True, "old", after(60)))
    assert decision.run is not None
    assert (decision.run.scheduled_at, decision.run.due_at) == (after(60), after(100))
    assert (decision.run.retried_from, decision.run.has_own_payload) == ("old", True)


def test_requested_run_keeps_its_fields_in_the_wait_queue() -> None:
    story = Story(a_job()).at(5)
    story.request_run("first")
    story.do(StartRun("again", Trigger.RETRY, True, "old", after(-60)))
    story.finish(story.claim("first"))
    (run,) = story.queued
    assert (run.run_id, run.trigger, run.retried_from) == ("again", Trigger.RETRY, "old")
    assert (run.has_own_payload, run.scheduled_at, run.due_at) == (True, after(-60), after(5))


def test_backfill_runs_in_order_within_the_limit_and_once() -> None:
    story = Story(a_job(every(3600), max_concurrency=2)).at(10)
    backfill = Backfill(tuple((f"b{number}", after(-60 * (9 - number))) for number in range(9)))
    story.do(backfill)
    assert [run.run_id for run in story.queued] == ["b0", "b1"]
    assert not story.do(backfill).changed
    story.drain()
    assert len(story.ledger) == 9
    assert {run.trigger for run in story.ledger.values()} == {Trigger.BACKFILL}
    assert story.state.next_at == after(3600)


def test_run_fired_ahead_does_not_delay_a_backfill() -> None:
    story = Story(a_job(every(60), max_concurrency=2)).at(30)
    story.evaluate(horizon=60)
    story.do(Backfill((("b1", after(-60)), ("b2", after(-120)))))
    assert [run.run_id for run in story.queued] == ["b1", "b2"]
    assert story.state.next_at == after(60)


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
def test_backfill_ignores_overlap_policy_and_pause(overlap: OverlapPolicy) -> None:
    story = a_paused_job(overlap=overlap, max_waiting=1)
    story.do(Backfill(tuple((f"b{number}", after(-60 * number)) for number in range(5))))
    story.drain()
    assert [run.status for run in story.ledger.values()] == [RunStatus.SUCCESS] * 5


def test_run_now_passes_the_runs_that_a_pause_holds() -> None:
    story = Story(a_job(every(60))).evaluate_at(60, 120)
    story.pause()
    assert [run.run_id for run in story.request_run("mine").runs_to_send] == ["mine"]
    story.finish(story.claim("mine"))
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [after(60), after(120)]
    assert story.state.runs == ()


def test_full_wait_queue_refuses_run_now_and_backfill() -> None:
    story = Story(a_job()).at(5)
    story.request_run("running")
    occurrences = tuple(
        (f"old-{number}", after(-60 * number)) for number in range(1, MAX_WAITING_RUNS + 1)
    )
    full_state = decide(story.state, Backfill(occurrences), story.now, "w").state
    assert len(full_state.wait_queue) == MAX_WAITING_RUNS
    for event in (StartRun("more"), Backfill((("one", after(0)),))):
        decision = decide(full_state, event, story.now, "x")
        assert (decision.verdict, decision.changed) == (Verdict.FULL, False)
    assert decide(full_state, StartRun("old-1"), story.now, "x").verdict is Verdict.OK
