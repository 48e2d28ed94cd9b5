"""Claims that are returned because no place, memory or processor is free."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.durations import MAX_RESOURCE_WAIT, MAX_RETURNED_CLAIMS, MIN_RESOURCE_WAIT
from punctual.domain.events import CancelRun, Evaluate, ReturnClaim
from punctual.domain.job_state import Priority
from punctual.domain.run import Reason, Run, RunStatus
from punctual.domain.transitions.attempts import resource_wait
from tests.support.builders_jobs import Story, a_job, every


def a_claimed_run(**fields: Any) -> tuple[Story, Run]:
    story = Story(a_job(every(86_400), **fields)).evaluate_at(86_400).at(86_401)
    return story, story.claim()


def without_room(run: Run) -> ReturnClaim:
    return ReturnClaim(
        run.run_id, run.token, work_begun=False, never_started=True, lacks_resources=True
    )


def test_run_without_room_waits_for_resources_and_is_queued_again() -> None:
    story, run = a_claimed_run()
    decision = story.do(without_room(run))
    waiting = decision.run
    assert waiting is not None
    assert (waiting.status, waiting.reason) == (RunStatus.WAITING, Reason.RESOURCES)
    assert waiting.next_at is not None
    assert waiting.next_at <= story.now + MIN_RESOURCE_WAIT
    story.wait(MIN_RESOURCE_WAIT.total_seconds()).do(Evaluate())
    (queued,) = story.queued
    assert (queued.reason, queued.next_at, queued.attempt) == (Reason.NONE, None, 1)


def test_waits_for_room_end_no_run_and_count_against_no_other_return() -> None:
    story, run = a_claimed_run()
    for _ in range(5 * MAX_RETURNED_CLAIMS):
        story.do(without_room(run))
        story.wait(MAX_RESOURCE_WAIT.total_seconds()).do(Evaluate())
        run = story.claim()
    assert (run.attempt, run.return_count) == (1, 0)


def test_run_with_a_cancel_request_ends_instead_of_waiting() -> None:
    story, run = a_claimed_run()
    story.do(CancelRun(run.run_id))
    ended = story.do(without_room(run)).run
    assert ended is not None
    assert ended.status is RunStatus.CANCELLED


def test_cancel_ends_a_run_that_waits_for_room() -> None:
    story, run = a_claimed_run()
    story.do(without_room(run))
    ended = story.do(CancelRun(run.run_id)).run
    assert ended is not None
    assert ended.status is RunStatus.CANCELLED


@pytest.mark.parametrize("waited_seconds", [0, 10, 60, 10_000])
def test_wait_grows_with_the_time_waited_and_is_shorter_for_high_priorities(
    waited_seconds: int,
) -> None:
    story, run = a_claimed_run()
    (rules,) = story.state.rules.values()
    now = run.due_at + timedelta(seconds=waited_seconds)
    high, normal, low = (
        resource_wait(run, replace(rules, priority=priority), now) for priority in Priority
    )
    seconds = [wait.total_seconds() for wait in (high, normal, low)]
    assert [second / seconds[1] for second in seconds] == pytest.approx([0.5, 1, 1.5], abs=1e-5)
    quarter = timedelta(seconds=waited_seconds / 4)
    longest = min(max(quarter, MIN_RESOURCE_WAIT), MAX_RESOURCE_WAIT)
    assert longest / 2 <= normal <= longest
