"""Intervals that count from completion. Every outcome sets the next time."""

import pytest
from msgspec.structs import replace

from punctual.domain.events import DeadLetter
from punctual.domain.job_state import MisfirePolicy
from punctual.domain.run import RunStatus
from tests.support.builders_jobs import Story, a_job, after, every, seconds

EVERY_END = ["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "LOST", "POISON", "DEADLINE", "CANCEL"]


@pytest.mark.parametrize("end", EVERY_END)
def test_every_outcome_sets_the_next_time_of_an_interval_from_completion(end: str) -> None:
    job = a_job(every(100, from_completion=True), max_retries=0, deadline_seconds=50)
    story = Story(replace(job, rules={1: replace(job.rules[1], at_most_once=end == "LOST")}))
    story.fires(100)
    assert story.head.next_at is None
    story.at(130)
    if end == "POISON":
        story.do(DeadLetter(story.queued[0].run_id))
    elif end == "DEADLINE":
        story.at(150).look()
    elif end == "CANCEL":
        story.cancel_run(story.queued[0])
    else:
        run = story.claim()
        story.release(run) if end == "LOST" else story.finish(run, RunStatus(end))
    assert story.head.runs == ()
    assert story.head.next_at == story.now + seconds(100)
    assert story.head.timer_at == story.head.next_at


def test_a_run_that_is_cancelled_before_its_time_does_not_come_again_at_that_time() -> None:
    story = Story(a_job(every(100, from_completion=True))).at(50)
    story.look(horizon=60)
    story.cancel_run(story.queued[0])
    assert story.head.next_at == after(200)


def test_a_missed_time_of_an_interval_from_completion_sets_the_next() -> None:
    job = a_job(every(100, from_completion=True), misfire=MisfirePolicy.SKIP)
    story = Story(job).fires(1_000)
    assert story.outcomes() == [(100, "MISSED", "OUTAGE", 1)]
    assert story.head.next_at == after(1_100)


def test_what_a_person_ordered_does_not_move_an_interval_from_completion() -> None:
    story = Story(a_job(every(100, from_completion=True))).at(10)
    story.order("mine")
    story.at(20).finish(story.claim())
    assert story.head.next_at == after(100)


def test_an_interval_from_completion_has_one_run_after_a_change_of_schedule() -> None:
    story = Story(a_job(every(60))).fires(60)
    old = story.claim()
    story.at(70).change(every(10, from_completion=True, anchor_at=after(70)))
    story.fires(80)
    assert len(story.line) == 1
    story.at(85).finish(old)
    assert story.head.next_at is None
    new = story.claim()
    story.fires(200)
    assert not story.line
    story.finish(new)
    assert story.head.next_at == after(210)


@pytest.mark.parametrize(("before", "after_it"), [(9, 5), (1, 5), (1, None)])
def test_a_change_of_max_runs_adds_no_time_while_a_run_is_alive(
    before: int, after_it: int | None
) -> None:
    """Only the outcome of the run sets the next time."""
    story = Story(a_job(every(100, from_completion=True), max_runs=before)).fires(100)
    run = story.claim()
    story.at(110).change(max_runs=after_it)
    assert story.head.next_at is None
    story.at(350).finish(run)
    assert story.head.next_at == after(450)


def test_an_interval_from_completion_ends_with_end_time_and_max_runs() -> None:
    story = Story(a_job(every(100, from_completion=True, end_at=after(250))))
    story.drain_at(100).at(200).drain()
    assert story.state() == "COMPLETED"
    story = Story(a_job(every(100, from_completion=True), max_runs=2))
    story.drain_at(100).drain_at(200)
    assert story.state() == "COMPLETED"
    assert [o[0] for o in story.outcomes()] == [100, 200]
