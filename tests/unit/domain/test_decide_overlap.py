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
    for n in range(1, limit + 1):
        story.fires(60 * n).claim()
    return story


@pytest.mark.parametrize("limit", LIMITS)
def test_queue_waits_in_line_and_goes_in_order(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.QUEUE)
    for n in range(limit + 1, limit + 4):
        assert story.at(60 * n).look().runs_to_send == ()
    assert [w.scheduled_at for w in story.line] == [
        after(60 * n) for n in range(limit + 1, limit + 4)
    ]
    decision = story.finish(story.held[-1])
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(60 * (limit + 1))]
    assert len(story.head.runs) == limit


def test_who_stood_in_line_knows_when_it_was_let_in() -> None:
    story = a_full_job(1, OverlapPolicy.QUEUE)
    assert story.held[0].admitted_at is None
    story.at(120).look()
    (sent,) = story.at(150).finish(story.held[0]).runs_to_send
    assert sent.admitted_at == after(150)
    story.claim()
    assert story.held[0].admitted_at == after(150)
    assert story.held[0].sent_at is None
    assert story.held[0].wait_queue_time == after(150) - after(120)


@pytest.mark.parametrize("limit", LIMITS)
def test_skip_records_what_does_not_fit(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.SKIP)
    n = limit + 1
    story.fires(60 * n)
    assert story.outcomes() == [(60 * n, "SKIPPED", "OVERLAP", 1)]
    assert story.line == ()
    story.finish(story.held[0])
    story.fires(60 * (n + 1))
    assert [run.scheduled_at for run in story.queued] == [after(60 * (n + 1))]


@pytest.mark.parametrize("limit", LIMITS)
def test_replace_cancels_the_oldest_and_starts_when_it_has_ended(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.REPLACE)
    oldest = story.held[0]
    decision = story.at(60 * (limit + 1)).look()
    assert decision.run_ids_to_stop == (oldest.run_id,)
    assert decision.runs_to_send == ()
    assert [w.scheduled_at for w in story.line] == [after(60 * (limit + 1))]
    ended = story.finish(oldest, RunStatus.CANCELLED)
    assert [run.scheduled_at for run in ended.runs_to_send] == [after(60 * (limit + 1))]
    assert (60, "CANCELLED", "REPLACED", 1) in story.outcomes()


@pytest.mark.parametrize("limit", LIMITS)
def test_replace_of_what_hangs_keeps_the_newest(limit: int) -> None:
    story = a_full_job(limit, OverlapPolicy.REPLACE)
    held = [run.run_id for run in story.held]
    last = limit + 7
    for n in range(limit + 1, last + 1):
        story.fires(60 * n)
    assert [run.run_id for run in story.held] == held
    newest = [after(60 * n) for n in range(last - limit + 1, last + 1)]
    assert [w.scheduled_at for w in story.line] == newest
    assert all(o[1:3] == ("CANCELLED", "REPLACED") for o in story.outcomes())
    for run in list(story.held):
        story.finish(run, RunStatus.CANCELLED)
    assert [run.scheduled_at for run in story.queued] == newest


def test_replace_of_a_run_that_nobody_holds_starts_at_once() -> None:
    story = Story(a_job(every(60), overlap=OverlapPolicy.REPLACE)).fires(60)
    decision = story.at(120).look()
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120)]
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]


def test_replace_ends_a_wait_for_the_next_attempt() -> None:
    story = Story(a_job(every(60), overlap=OverlapPolicy.REPLACE)).fires(60)
    story.at(119).fail(story.claim())
    story.fires(120)
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]
    assert [run.scheduled_at for run in story.queued] == [after(120)]


def test_what_is_being_replaced_is_not_tried_again() -> None:
    story = a_full_job(1, OverlapPolicy.REPLACE).fires(120)
    story.fail(story.held[0])
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]


def test_replace_never_touches_what_a_person_ordered() -> None:
    story = Story(a_job(every(60), overlap=OverlapPolicy.REPLACE)).at(50)
    story.order("mine")
    story.claim("mine")
    story.fires(60, 70)
    story.fires(120)
    assert not story.killed
    assert story.held[0].run_id == "mine"
    assert [w.scheduled_at for w in story.line] == [after(120)]
    assert story.outcomes() == [(60, "CANCELLED", "REPLACED", 1)]


def test_replace_with_a_lowered_limit_makes_room_for_the_newest() -> None:
    story = a_full_job(3, OverlapPolicy.REPLACE)
    story.change(max_concurrency=1)
    assert len(story.held) == 3
    story.fires(240)
    assert set(story.killed) == {run.run_id for run in story.held}
    for run in list(story.held):
        story.finish(run, RunStatus.CANCELLED)
    assert [run.scheduled_at for run in story.queued] == [after(240)]


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
def test_what_a_person_ordered_waits_in_line(overlap: OverlapPolicy) -> None:
    story = a_full_job(1, overlap)
    decision = story.order("mine")
    assert decision.runs_to_send == ()
    assert decision.run_ids_to_stop == ()
    assert [w.run_id for w in story.line] == ["mine"]
    story.finish(story.held[0])
    assert [run.run_id for run in story.queued] == ["mine"]


def test_the_line_has_an_end() -> None:
    story = a_full_job(1, OverlapPolicy.QUEUE, max_waiting=2)
    for n in (2, 3, 4, 5):
        story.fires(60 * n)
    assert [w.scheduled_at for w in story.line] == [after(120), after(180)]
    assert story.outcomes() == [
        (240, "SKIPPED", "QUEUE_FULL", 1),
        (300, "SKIPPED", "QUEUE_FULL", 1),
    ]


@pytest.mark.parametrize(
    ("overlap", "reason"), [(OverlapPolicy.SKIP, "OVERLAP"), (OverlapPolicy.QUEUE, "QUEUE_FULL")]
)
def test_many_that_are_skipped_at_once_are_few_entries(overlap: OverlapPolicy, reason: str) -> None:
    job = a_job(every(1), overlap=overlap, max_waiting=2, misfire_grace_seconds=86_400)
    story = Story(job).at(5_000)
    story.drain_looks()
    ran = 1 if overlap is OverlapPolicy.SKIP else 3
    assert {o[1:3] for o in story.outcomes()} == {("SKIPPED", reason)}
    assert sum(o[3] for o in story.outcomes()) == 5_000 - ran
    assert len(story.ledger) == 3  # one for each evaluation


def test_many_that_are_replaced_at_once_leave_a_small_head() -> None:
    job = a_job(every(1), overlap=OverlapPolicy.REPLACE, misfire_grace_seconds=86_400)
    story = Story(job).at(3_000).drain_looks()
    assert [run.scheduled_at for run in story.queued] == [after(3_000)]
    assert sum(run.occurrence_count for run in story.ledger.values()) == 2_999
    assert len(story.head.unrecorded) < 10


def test_a_lowered_limit_stops_nothing_that_runs() -> None:
    story = a_full_job(3, OverlapPolicy.QUEUE)
    decision = story.change(max_concurrency=1)
    assert decision.run_ids_to_stop == ()
    assert len(story.held) == 3
    story.fires(240)
    for left in (2, 1):
        story.finish(story.held[0])
        assert (len(story.held), story.queued) == (left, [])
    story.finish(story.held[0])
    assert [run.scheduled_at for run in story.queued] == [after(240)]


def test_a_lowered_limit_puts_what_is_queued_back_to_the_front_of_the_line() -> None:
    story = Story(a_job(every(10), max_concurrency=3)).fires(10, 20, 30, 40)
    assert len(story.queued) == 3
    story.change(max_concurrency=1)
    assert [run.scheduled_at for run in story.head.runs] == [after(10)]
    assert [w.scheduled_at for w in story.line] == [after(20), after(30), after(40)]


def test_a_message_of_what_went_back_in_line_claims_nothing() -> None:
    story = Story(a_job(every(10), max_concurrency=2)).fires(10, 20)
    back = story.queued[1].run_id
    story.change(max_concurrency=1)
    answer = story.do(Claim(back, "e", "n"))
    assert answer.verdict in (Verdict.GONE, Verdict.NOT_QUEUED)
    assert not story.held


def test_a_raised_limit_lets_those_in_line_in_at_once() -> None:
    story = a_full_job(1, OverlapPolicy.QUEUE).fires(120)
    story.fires(180)
    decision = story.change(max_concurrency=3)
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120), after(180)]


def test_on_resume_what_was_held_goes_first_and_what_fits_is_not_skipped() -> None:
    job = a_job(every(60), overlap=OverlapPolicy.SKIP, max_concurrency=2)
    story = Story(job).fires(60)
    story.pause()
    assert [w.scheduled_at for w in story.line] == [after(60)]
    story.at(130).resume()
    assert [run.scheduled_at for run in story.queued] == [after(60), after(120)]
    assert story.outcomes() == []


def test_retries_beyond_a_lowered_limit_wait_for_room() -> None:
    story = a_full_job(3, OverlapPolicy.QUEUE, max_retries=5)
    story.change(max_concurrency=1)
    one, two, three = story.held
    story.release(two)
    story.release(three)
    for run in (two, three):
        assert story.do(Claim(run.run_id, "e2", "x")).verdict is Verdict.NOT_QUEUED
        assert len(story.held) == 1
    story.finish(one)
    assert [run.run_id for run in story.queued] == [two.run_id]
    story.finish(story.claim(two.run_id))
    assert [run.run_id for run in story.queued] == [three.run_id]
    story.finish(story.claim(three.run_id))
    assert story.outcomes() == [(60 * n, "SUCCESS", "", 1) for n in (1, 2, 3)]


def test_a_run_between_attempts_keeps_its_place() -> None:
    story = Story(a_job(every(60))).fires(60)
    story.fail(story.claim())
    story.at(62).order("mine")
    assert [w.run_id for w in story.line] == ["mine"]


def test_ending_what_is_poisoned_lets_the_next_in() -> None:
    story = Story(a_job(every(60))).fires(60, 120)
    decision = story.do(DeadLetter(story.queued[0].run_id))
    assert story.outcomes() == [(60, "FAILED", "POISON", 1)]
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120)]


def test_catching_up_does_not_count_as_waiting() -> None:
    job = a_job(every(10), misfire=MisfirePolicy.RUN_ALL, misfire_grace_seconds=0, max_waiting=1)
    story = Story(job).at(101).drain_looks()
    assert len(story.line) == 9
    story.fires(110)
    assert len(story.line) == 10
    story.change(max_concurrency=5)
    story.change(max_concurrency=1)
    assert not [o for o in story.outcomes() if o[2] == "QUEUE_FULL"]
    story.fires(120)
    assert [o for o in story.outcomes() if o[2] == "QUEUE_FULL"] == [
        (120, "SKIPPED", "QUEUE_FULL", 1)
    ]
