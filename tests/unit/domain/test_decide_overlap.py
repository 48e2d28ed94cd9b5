"""The overlap policies, for an occurrence that is due while the limit of runs is reached."""

from typing import Any

import pytest

from punctual.domain.decide import Verdict
from punctual.domain.events import Claim, DeadLetter
from punctual.domain.job_state import MisfirePolicy, OverlapPolicy
from punctual.domain.run import RunStatus
from tests.support.builders_jobs import Story, a_job, after, every

LIMITS = [1, 2, 3]


def a_full_job(limit: int, overlap: OverlapPolicy, **fields: Any) -> Story:
    """Return a story with `limit` held runs, of the occurrences at 60, 120, ..."""
    story = Story(a_job(every(60), max_concurrency=limit, overlap=overlap, **fields))
    for number in range(1, limit + 1):
        story.evaluate_at(60 * number).claim()
    return story


@pytest.mark.parametrize("limit", LIMITS)
def test_queue_policy_starts_waiting_runs_in_order(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.QUEUE)
    for number in range(limit + 1, limit + 4):
        assert story.at(60 * number).evaluate().runs_to_send == ()
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [
        after(60 * number) for number in range(limit + 1, limit + 4)
    ]
    decision = story.finish(story.held[-1])
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(60 * (limit + 1))]
    assert len(story.state.runs) == limit


def test_run_from_the_wait_queue_records_its_admission_time() -> None:
    story = a_full_job(1, OverlapPolicy.QUEUE)
    assert story.held[0].admitted_at is None
    story.at(120).evaluate()
    (sent,) = story.at(150).finish(story.held[0]).runs_to_send
    assert sent.admitted_at == after(150)
    story.claim()
    assert story.held[0].admitted_at == after(150)
    assert story.held[0].sent_at is None
    assert story.held[0].wait_queue_time == after(150) - after(120)


@pytest.mark.parametrize("limit", LIMITS)
def test_skip_policy_records_a_skipped_occurrence(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.SKIP)
    number = limit + 1
    story.evaluate_at(60 * number)
    assert story.outcomes() == [(60 * number, "SKIPPED", "OVERLAP", 1)]
    assert story.wait_queue == ()
    story.finish(story.held[0])
    story.evaluate_at(60 * (number + 1))
    assert [run.scheduled_at for run in story.queued] == [after(60 * (number + 1))]


@pytest.mark.parametrize("limit", LIMITS)
def test_replace_policy_cancels_the_oldest_and_starts_after_its_end(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.REPLACE)
    oldest = story.held[0]
    decision = story.at(60 * (limit + 1)).evaluate()
    assert decision.run_ids_to_stop == (oldest.run_id,)
    assert decision.runs_to_send == ()
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [after(60 * (limit + 1))]
    ended = story.finish(oldest, RunStatus.CANCELLED)
    assert [run.scheduled_at for run in ended.runs_to_send] == [after(60 * (limit + 1))]
    assert (60, "CANCELLED", "REPLACED", 1) in story.outcomes()


@pytest.mark.parametrize("limit", LIMITS)
def test_replace_policy_with_hanging_runs_keeps_the_newest(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.REPLACE)
    held_run_ids = [run.run_id for run in story.held]
    last_number = limit + 7
    for number in range(limit + 1, last_number + 1):
        story.evaluate_at(60 * number)
    assert [run.run_id for run in story.held] == held_run_ids
    newest = [after(60 * number) for number in range(last_number - limit + 1, last_number + 1)]
    assert [waiting.scheduled_at for waiting in story.wait_queue] == newest
    assert all(outcome[1:3] == ("CANCELLED", "REPLACED") for outcome in story.outcomes())
    for run in list(story.held):
        story.finish(run, RunStatus.CANCELLED)
    assert [run.scheduled_at for run in story.queued] == newest


def test_replace_policy_starts_at_once_if_no_executor_has_the_run() -> None:
    story = Story(a_job(every(60), overlap=OverlapPolicy.REPLACE)).evaluate_at(60)
    decision = story.at(120).evaluate()
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120)]
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]


def test_replace_policy_ends_a_wait_for_the_next_attempt() -> None:
    story = Story(a_job(every(60), overlap=OverlapPolicy.REPLACE)).evaluate_at(60)
    story.at(119).fail(story.claim())
    story.evaluate_at(120)
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]
    assert [run.scheduled_at for run in story.queued] == [after(120)]


def test_replaced_run_is_not_retried() -> None:
    story = a_full_job(1, OverlapPolicy.REPLACE).evaluate_at(120)
    story.fail(story.held[0])
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]


def test_replace_policy_does_not_cancel_a_requested_run() -> None:
    story = Story(a_job(every(60), overlap=OverlapPolicy.REPLACE)).at(50)
    story.request_run("mine")
    story.claim("mine")
    story.evaluate_at(60, 70)
    story.evaluate_at(120)
    assert not story.killed
    assert story.held[0].run_id == "mine"
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [after(120)]
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]


def test_replace_policy_with_a_lowered_limit_starts_the_newest() -> None:
    story = a_full_job(3, OverlapPolicy.REPLACE)
    story.change(max_concurrency=1)
    assert len(story.held) == 3
    story.evaluate_at(240)
    assert set(story.killed) == {run.run_id for run in story.held}
    for run in list(story.held):
        story.finish(run, RunStatus.CANCELLED)
    assert [run.scheduled_at for run in story.queued] == [after(240)]


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
def test_requested_run_of_a_full_job_waits(overlap: OverlapPolicy) -> None:
    story = a_full_job(1, overlap)
    decision = story.request_run("mine")
    assert decision.runs_to_send == ()
    assert decision.run_ids_to_stop == ()
    assert [waiting.run_id for waiting in story.wait_queue] == ["mine"]
    story.finish(story.held[0])
    assert [run.run_id for run in story.queued] == ["mine"]


def test_full_wait_queue_skips_occurrences() -> None:
    story = a_full_job(1, OverlapPolicy.QUEUE, max_waiting=2)
    for number in (2, 3, 4, 5):
        story.evaluate_at(60 * number)
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [after(120), after(180)]
    assert story.outcomes() == [
        (240, "SKIPPED", "QUEUE_FULL", 1),
        (300, "SKIPPED", "QUEUE_FULL", 1),
    ]


@pytest.mark.parametrize(
    ("overlap", "reason"), [(OverlapPolicy.SKIP, "OVERLAP"), (OverlapPolicy.QUEUE, "QUEUE_FULL")]
)
def test_occurrences_skipped_together_are_few_ledger_entries(
    overlap: OverlapPolicy, reason: str
) -> None:
    job = a_job(every(1), overlap=overlap, max_waiting=2, misfire_grace_seconds=86_400)
    story = Story(job).at(5_000)
    story.drain_evaluations()
    ran = 1 if overlap is OverlapPolicy.SKIP else 3
    assert {outcome[1:3] for outcome in story.outcomes()} == {("SKIPPED", reason)}
    assert sum(outcome[3] for outcome in story.outcomes()) == 5_000 - ran
    assert len(story.ledger) == 3  # one for each evaluation


def test_occurrences_replaced_together_leave_a_small_job_state() -> None:
    job = a_job(every(1), overlap=OverlapPolicy.REPLACE, misfire_grace_seconds=86_400)
    story = Story(job).at(3_000).drain_evaluations()
    assert [run.scheduled_at for run in story.queued] == [after(3_000)]
    assert sum(run.occurrence_count for run in story.ledger.values()) == 2_999
    assert len(story.state.unrecorded) < 10


def test_lowered_limit_stops_no_running_run() -> None:
    story = a_full_job(3, OverlapPolicy.QUEUE)
    decision = story.change(max_concurrency=1)
    assert decision.run_ids_to_stop == ()
    assert len(story.held) == 3
    story.evaluate_at(240)
    for held_count in (2, 1):
        story.finish(story.held[0])
        assert (len(story.held), story.queued) == (held_count, [])
    story.finish(story.held[0])
    assert [run.scheduled_at for run in story.queued] == [after(240)]


def test_lowered_limit_returns_queued_runs_to_the_front_of_the_wait_queue() -> None:
    story = Story(a_job(every(10), max_concurrency=3)).evaluate_at(10, 20, 30, 40)
    assert len(story.queued) == 3
    story.change(max_concurrency=1)
    assert [run.scheduled_at for run in story.state.runs] == [after(10)]
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [
        after(20),
        after(30),
        after(40),
    ]


def test_message_of_a_requeued_run_cannot_claim_it() -> None:
    story = Story(a_job(every(10), max_concurrency=2)).evaluate_at(10, 20)
    requeued_run_id = story.queued[1].run_id
    story.change(max_concurrency=1)
    decision = story.do(Claim(requeued_run_id, "e", "n"))
    assert decision.verdict in (Verdict.GONE, Verdict.NOT_QUEUED)
    assert not story.held


def test_raised_limit_admits_waiting_runs_at_once() -> None:
    story = a_full_job(1, OverlapPolicy.QUEUE).evaluate_at(120)
    story.evaluate_at(180)
    decision = story.change(max_concurrency=3)
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120), after(180)]


def test_resume_admits_held_runs_first_and_skips_no_run_that_fits() -> None:
    job = a_job(every(60), overlap=OverlapPolicy.SKIP, max_concurrency=2)
    story = Story(job).evaluate_at(60)
    story.pause()
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [after(60)]
    story.at(130).resume()
    assert [run.scheduled_at for run in story.queued] == [after(60), after(120)]
    assert story.outcomes() == []


def test_retries_over_a_lowered_limit_wait() -> None:
    story = a_full_job(3, OverlapPolicy.QUEUE, max_retries=5)
    story.change(max_concurrency=1)
    first, second, third = story.held
    story.return_claim(second)
    story.return_claim(third)
    for run in (second, third):
        assert story.do(Claim(run.run_id, "e2", "x")).verdict is Verdict.NOT_QUEUED
        assert len(story.held) == 1
    story.finish(first)
    assert [run.run_id for run in story.queued] == [second.run_id]
    story.finish(story.claim(second.run_id))
    assert [run.run_id for run in story.queued] == [third.run_id]
    story.finish(story.claim(third.run_id))
    assert story.outcomes() == [(60 * number, "SUCCESS", "", 1) for number in (1, 2, 3)]


def test_run_between_attempts_keeps_its_place() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    story.fail(story.claim())
    story.at(62).request_run("mine")
    assert [waiting.run_id for waiting in story.wait_queue] == ["mine"]


def test_dead_letter_ends_the_run_and_admits_the_next() -> None:
    story = Story(a_job(every(60))).evaluate_at(60, 120)
    decision = story.do(DeadLetter(story.queued[0].run_id))
    assert story.outcomes() == [(60, "FAILED", "POISON", 1)]
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120)]


def test_catch_up_does_not_count_towards_max_waiting() -> None:
    job = a_job(every(10), misfire=MisfirePolicy.RUN_ALL, misfire_grace_seconds=0, max_waiting=1)
    story = Story(job).at(101).drain_evaluations()
    assert len(story.wait_queue) == 9
    story.evaluate_at(110)
    assert len(story.wait_queue) == 10
    story.change(max_concurrency=5)
    story.change(max_concurrency=1)
    assert not [outcome for outcome in story.outcomes() if outcome[2] == "QUEUE_FULL"]
    story.evaluate_at(120)
    assert [outcome for outcome in story.outcomes() if outcome[2] == "QUEUE_FULL"] == [
        (120, "SKIPPED", "QUEUE_FULL", 1)
    ]
