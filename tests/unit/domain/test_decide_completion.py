"""Intervals that count from completion. Every outcome sets the next time."""

import pytest
from msgspec.structs import replace

from punctual.domain.events import DeadLetter
from punctual.domain.job_state import MisfirePolicy
from punctual.domain.run import RunStatus
from tests.support.builders_jobs import Story, a_job, after, every, seconds

RUN_ENDS = ["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "LOST", "POISON", "DEADLINE", "CANCEL"]


@pytest.mark.parametrize("end", RUN_ENDS)
def test_interval_from_completion_continues_after_every_outcome(end: str) -> None:
    job = a_job(every(100, from_completion=True), max_retries=0, deadline_seconds=50)
    story = Story(replace(job, rules={1: replace(job.rules[1], at_most_once=end == "LOST")}))
    story.evaluate_at(100)
    assert story.state.next_at is None
    story.at(130)
    if end == "POISON":
        story.do(DeadLetter(story.queued[0].run_id))
    elif end == "DEADLINE":
        story.at(150).evaluate()
    elif end == "CANCEL":
        story.cancel_run(story.queued[0])
    else:
        run = story.claim()
        story.return_claim(run) if end == "LOST" else story.finish(run, RunStatus(end))
    assert story.state.runs == ()
    assert story.state.next_at == story.now + seconds(100)
    assert story.state.timer_at == story.state.next_at


def test_run_cancelled_before_its_time_does_not_fire_again() -> None:
    story = Story(a_job(every(100, from_completion=True))).at(50)
    story.evaluate(horizon=60)
    story.cancel_run(story.queued[0])
    assert story.state.next_at == after(200)


def test_interval_from_completion_continues_after_a_missed_time() -> None:
    job = a_job(every(100, from_completion=True), misfire=MisfirePolicy.SKIP)
    story = Story(job).evaluate_at(1_000)
    assert story.outcomes() == [(100, "MISSED", "OUTAGE", 1)]
    assert story.state.next_at == after(1_100)


def test_run_now_does_not_move_an_interval_from_completion() -> None:
    story = Story(a_job(every(100, from_completion=True))).at(10)
    story.request_run("mine")
    story.at(20).finish(story.claim())
    assert story.state.next_at == after(100)


def test_interval_from_completion_has_one_run_after_a_change() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    first_run = story.claim()
    story.at(70).change(every(10, from_completion=True, anchor_at=after(70)))
    story.evaluate_at(80)
    assert len(story.wait_queue) == 1
    story.at(85).finish(first_run)
    assert story.state.next_at is None
    second_run = story.claim()
    story.evaluate_at(200)
    assert not story.wait_queue
    story.finish(second_run)
    assert story.state.next_at == after(210)


@pytest.mark.parametrize(("max_runs_before", "max_runs_after"), [(9, 5), (1, 5), (1, None)])
def test_change_of_max_runs_adds_no_time_while_a_run_is_live(
    max_runs_before: int, max_runs_after: int | None
) -> None:
    """Only the outcome of the run sets the next time."""
    story = Story(a_job(every(100, from_completion=True), max_runs=max_runs_before)).evaluate_at(
        100
    )
    run = story.claim()
    story.at(110).change(max_runs=max_runs_after)
    assert story.state.next_at is None
    story.at(350).finish(run)
    assert story.state.next_at == after(450)


def test_interval_from_completion_ends_with_end_time_and_max_runs() -> None:
    story = Story(a_job(every(100, from_completion=True, end_at=after(250))))
    story.drain_at(100).at(200).drain()
    assert story.status() == "COMPLETED"
    story = Story(a_job(every(100, from_completion=True), max_runs=2))
    story.drain_at(100).drain_at(200)
    assert story.status() == "COMPLETED"
    assert [outcome[0] for outcome in story.outcomes()] == [100, 200]
