"""Timers, messages and versions that a decision produces outside its job state."""

from datetime import datetime

import msgspec
import pytest

from punctual.domain.decide import Verdict, decide
from punctual.domain.events import (
    Backfill,
    Cancel,
    CancelRun,
    Claim,
    DeadLetter,
    Evaluate,
    Event,
    Finish,
    Pause,
    Resume,
    ReturnClaim,
    Started,
    StartRun,
)
from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.run import RunStatus
from tests.support.builders_jobs import NOON, Story, a_job, after, an_update, every

EVENTS: list[Event] = [
    Evaluate(),
    Claim("x", "e", "n"),
    Started("x", 1),
    Finish("x", 1, RunStatus.SUCCESS),
    ReturnClaim("x", 1),
    DeadLetter("x"),
    Pause(),
    Resume(),
    Cancel(),
    CancelRun("x"),
    StartRun("x"),
    Backfill((("x", NOON),)),
    an_update(a_job(), max_concurrency=3),
]


def test_first_evaluation_puts_the_timer() -> None:
    decision = decide(a_job(every(60)), Evaluate(), NOON, "w")
    assert decision.timer_at == decision.state.timer_at == after(60)


def test_timer_is_not_put_again_while_an_equal_one_stands() -> None:
    story = Story(a_job(every(60))).at(10)
    assert story.request_run("mine").timer_at is None
    assert story.finish(story.claim()).timer_at is None
    assert story.timers == {after(60)}


def test_timer_that_triggers_early_is_kept() -> None:
    story = Story(a_job(every(60))).at(30)
    decision = story.evaluate(trigger_times=[after(60)])
    assert (decision.changed, decision.timer_at) == (False, None)
    assert story.state.timer_at == after(60)
    assert story.timers == {after(60)}


def test_timer_that_fired_ahead_is_replaced_by_the_next() -> None:
    story = Story(a_job(every(60))).at(30)
    decision = story.evaluate(horizon=60, trigger_times=[after(60)])
    assert decision.timer_at == after(120)
    assert story.timers == {after(120)}


def test_unknown_trigger_time_changes_nothing() -> None:
    story = Story(a_job(every(60))).at(30)
    decision = story.evaluate(trigger_times=[after(17)])
    assert (decision.changed, decision.timer_at) == (False, None)


def test_timer_is_the_earliest_of_all_next_times() -> None:
    story = Story(a_job(every(60), deadline_seconds=45, max_concurrency=2)).evaluate_at(60)
    assert story.state.timer_at == after(105)
    story.at(61).fail(story.claim())
    next_at = story.state.runs[0].next_at
    assert story.state.timer_at == next_at
    story.request_run("mine")
    assert story.state.timer_at == next_at


@pytest.mark.parametrize("state", [JobStatus.PAUSED, JobStatus.CANCELLED, JobStatus.COMPLETED])
def test_job_without_next_times_has_no_timer(state: JobStatus) -> None:
    story = Story(a_job(every(60, end_at=after(100))))
    if state is JobStatus.PAUSED:
        story.pause()
    elif state is JobStatus.CANCELLED:
        story.cancel()
    else:
        story.drain_at(60)
    assert story.state.status is state
    assert story.state.timer_at is None


def test_unclaimed_run_is_sent_again_with_backoff() -> None:
    story = Story(a_job(every(86_400)))
    story.request_run("mine")
    sent: list[float] = []
    for second in range(1, 2_000):
        if story.at(second).evaluate().runs_to_send:
            sent.append(second)
    assert [later - earlier for earlier, later in zip([0, *sent], sent, strict=False)][:8] == [
        15,
        30,
        60,
        120,
        240,
        300,
        300,
        300,
    ]


def test_run_fired_ahead_is_not_sent_again_before_its_time() -> None:
    story = Story(a_job(every(86_400))).at(86_340)
    assert len(story.evaluate(horizon=60).runs_to_send) == 1
    for second in (86_350, 86_399, 86_400, 86_414):
        assert story.at(second).evaluate().runs_to_send == ()
    assert len(story.at(86_415).evaluate().runs_to_send) == 1


def test_running_or_waiting_run_is_not_sent_again() -> None:
    story = Story(a_job(every(86_400))).evaluate_at(86_400)
    run = story.claim()
    story.wait(1000)
    assert story.evaluate().runs_to_send == ()
    story.fail(run)
    assert story.evaluate().runs_to_send == ()


def test_swap_raises_the_version_by_one_and_adds_its_write_id() -> None:
    job = a_job(every(60))
    job_state, write_ids = job, []
    for number in range(1, 12):
        decision = decide(job_state, StartRun(f"r{number}"), after(number), f"w{number}")
        assert decision.state.version == job_state.version + 1
        job_state = decision.state
        write_ids.append(f"w{number}")
        assert job_state.write_ids[-1] == f"w{number}"
        assert list(job_state.write_ids) == write_ids[-len(job_state.write_ids) :]
    assert 2 <= len(job_state.write_ids) <= 8


def test_unchanged_decision_returns_the_same_state_object() -> None:
    job_state = Story(a_job(every(60))).state
    decision = decide(job_state, Evaluate(), after(1), "w")
    assert decision.state is job_state
    assert not decision.changed


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_blank_job_state_answers_gone(event: Event) -> None:
    for state in JobStatus:
        blank = JobState(
            tenant="t",
            job_id="j",
            version=7,
            edition=0,
            definition=0,
            status=state,
            kind=ScheduleKind.IMMEDIATE,
            created_at=NOON,
            updated_at=NOON,
            schedule=None,
            rules={},
            ended_at=NOON,
            is_blank=True,
        )
        decision = decide(blank, event, after(100), "w")
        assert (decision.verdict, decision.changed) == (Verdict.GONE, False)
        assert decision.timer_at is None


def test_catch_up_sets_a_timer_for_now() -> None:
    story = Story(a_job(every(1))).at(10_000)
    decision = story.evaluate()
    assert decision.timer_at == story.now
    repeated = story.do(Claim("x", "e", "n"))
    assert not repeated.changed


def test_claim_of_an_unknown_run_during_a_catch_up_changes_nothing() -> None:
    story = Story(a_job(every(1))).at(10_000)
    story.evaluate()
    assert not story.wait(1).do(Claim("x", "e", "n")).changed


@pytest.mark.parametrize("size", [100, 1000])
def test_full_job_state_fits_a_row(size: int) -> None:
    job = a_job(every(1), max_waiting=size, max_concurrency=100, misfire_grace_seconds=86_400)
    story = Story(job).at(4_000).drain_evaluations()
    assert len(story.wait_queue) == size
    assert len(msgspec.json.encode(story.state)) < 400_000
    story.cancel()
    assert len(msgspec.json.encode(story.state)) < 400_000


def test_quiet_job_state_is_small() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    story.claim()
    assert len(msgspec.json.encode(story.state)) < 1_024


def test_live_run_adds_few_bytes() -> None:
    sizes = []
    for limit in (1, 11):
        story = Story(a_job(every(1), max_concurrency=limit, max_waiting=1)).evaluate_at(11)
        while story.queued:
            story.claim(executor_id="executor-1234")
        sizes.append(len(msgspec.json.encode(story.state)))
    assert (sizes[1] - sizes[0]) / 10 < 330


def test_timer_is_never_later_than_the_next_occurrence() -> None:
    story = Story(a_job(every(60)))
    timer_times: list[datetime | None] = []
    for second in (60, 120, 180):
        story.evaluate_at(second)
        timer_times.append(story.state.timer_at)
    assert timer_times == [after(120), after(180), after(240)]
