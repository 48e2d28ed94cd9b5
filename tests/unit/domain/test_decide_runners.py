"""Claims of processes outside: the runner they are bound to, and runs that are released."""

from typing import Any

import pytest

from punctual.domain.decide import Verdict
from punctual.domain.durations import MAX_FAILED_STARTS, MAX_RETURN_DELAY, MAX_RETURNED_CLAIMS
from punctual.domain.events import CancelRun, Claim, Evaluate, Finish, ReturnClaim, Started
from punctual.domain.leases import CLAIM_LEASE
from punctual.domain.run import Reason, Run, RunStatus
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from tests.support.builders_jobs import Story, a_job, every


def a_claimed_run(**fields: Any) -> tuple[Story, Run]:
    story = Story(a_job(every(86_400), **fields)).evaluate_at(86_400).at(86_401)
    return story, story.claim()


def test_attempt_of_a_claim_that_starts_later_counts_from_its_start() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run_id = story.queued[0].run_id
    story.do(Claim(run_id, "e", "n", starts_later=True))
    (claimed_run,) = story.held
    story.wait(3).do(Started(run_id, claimed_run.token, "one"))
    (run,) = story.held
    assert run.attempt_at == story.now
    assert run.runner_id == "one"


def test_first_start_of_a_run_is_not_its_claim() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run_id = story.queued[0].run_id
    story.do(Claim(run_id, "e", "n", starts_later=True))
    (claimed_run,) = story.held
    assert (claimed_run.first_start_at, claimed_run.start_lateness) == (None, None)
    story.do(ReturnClaim(run_id, claimed_run.token, work_begun=False, never_started=True))
    (waiting_run,) = story.state.runs
    assert waiting_run.first_start_at is None, "nothing of it has begun"
    story.wait(300).do(Evaluate())
    story.do(Claim(run_id, "e", "m", starts_later=True))
    token = story.held[0].token
    story.wait(120).do(Started(run_id, token, "one"))
    (run,) = story.held
    assert run.first_start_at == story.now
    assert run.start_lateness == story.now - run.due_at
    story.do(Finish(run_id, token, RunStatus.FAILED, runner_id="one"))
    (failed_run,) = story.state.runs
    assert failed_run.first_start_at == run.first_start_at, "the first attempt began then"


def test_first_runner_binds_the_claim_and_another_one_is_fenced() -> None:
    story, run = a_claimed_run()
    assert story.do(Started(run.run_id, run.token, "one")).verdict is Verdict.OK
    bound_run = story.held[0]
    assert (bound_run.runner_id, bound_run.attempt_at) == ("one", run.attempt_at)
    for event in (
        Started(run.run_id, run.token, "two"),
        Started(run.run_id, run.token),
        Finish(run.run_id, run.token, RunStatus.SUCCESS, runner_id="two"),
        Finish(run.run_id, run.token, RunStatus.SUCCESS, runner_id=""),
        Finish(run.run_id, run.token, RunStatus.FAILED, runner_id="two"),
        ReturnClaim(run.run_id, run.token, runner_id="two"),
    ):
        decision = story.do(event)
        assert (decision.verdict, decision.changed) == (Verdict.FENCED, False)
    repeated = story.do(Started(run.run_id, run.token, "one"))
    assert (repeated.verdict, repeated.changed) == (Verdict.OK, False)
    ended = story.do(Finish(run.run_id, run.token, RunStatus.SUCCESS, runner_id="one"))
    assert ended.verdict is Verdict.OK


def test_executor_finishes_a_claim_that_its_runner_bound() -> None:
    story, run = a_claimed_run()
    story.do(Started(run.run_id, run.token, "one"))
    assert story.finish(run).verdict is Verdict.OK


def test_repeated_finish_of_another_runner_is_fenced() -> None:
    story, run = a_claimed_run()
    story.do(Started(run.run_id, run.token, "one"))
    finish = Finish(run.run_id, run.token, RunStatus.SUCCESS, runner_id="one")
    assert story.do(finish, recorded=False).verdict is Verdict.OK
    assert story.do(finish, recorded=False).verdict is Verdict.OK
    other = Finish(run.run_id, run.token, RunStatus.SUCCESS, runner_id="two")
    assert story.do(other, recorded=False).verdict is Verdict.FENCED


def test_new_claim_is_bound_to_no_runner() -> None:
    story, run = a_claimed_run()
    story.do(Started(run.run_id, run.token, "one"))
    story.return_claim(run)
    assert story.claim().runner_id == ""


@pytest.mark.parametrize("at_most_once", [False, True])
def test_released_run_is_queued_at_once_as_the_same_attempt(at_most_once: bool) -> None:
    story, run = a_claimed_run(at_most_once=at_most_once, max_retries=0)
    release = ReturnClaim(run.run_id, run.token, work_begun=False, never_started=True, at_once=True)
    decision = story.do(release)
    assert decision.verdict is Verdict.OK
    (queued_run,) = story.queued
    assert (queued_run.attempt, queued_run.past_attempts) == (1, "")
    assert [sent.run_id for sent in decision.runs_to_send] == [run.run_id]
    assert story.do(release).verdict is Verdict.FENCED


def test_run_that_is_released_without_end_waits_between_releases() -> None:
    story, run = a_claimed_run()
    for _ in range(MAX_RETURNED_CLAIMS):
        story.do(ReturnClaim(run.run_id, run.token, False, never_started=True, at_once=True))
        run = story.claim()
    story.do(ReturnClaim(run.run_id, run.token, False, never_started=True, at_once=True))
    assert story.state.runs[0].reason is Reason.BACKOFF
    assert story.state.runs[0].attempt == 1


def test_released_run_with_a_cancel_request_is_cancelled() -> None:
    story, run = a_claimed_run()
    story.do(CancelRun(run.run_id))
    decision = story.do(ReturnClaim(run.run_id, run.token, False, never_started=True, at_once=True))
    assert [ended.status for ended in decision.runs_to_record] == [RunStatus.CANCELLED]


def test_run_of_a_started_runner_cannot_be_released() -> None:
    story, run = a_claimed_run()
    story.do(Started(run.run_id, run.token, "one"))
    release = ReturnClaim(
        run.run_id, run.token, False, never_started=True, at_once=True, runner_id="one"
    )
    decision = story.do(release)
    assert (decision.verdict, decision.changed) == (Verdict.FENCED, False)
    assert [held.status for held in story.held] == [RunStatus.RUNNING]


@pytest.mark.parametrize("at_most_once", [False, True])
def test_handed_over_script_without_a_runner_waits_as_the_same_attempt(at_most_once: bool) -> None:
    story = Story(
        a_job(every(86_400), task_type="script", at_most_once=at_most_once, max_retries=0)
    )
    story.evaluate_at(86_400).at(86_401)
    story.do(Claim(story.queued[0].run_id, "e", "n", hands_over_scripts=True))
    assert [run.status for run in story.held] == [RunStatus.CLAIMED]
    story.wait(CLAIM_LEASE.total_seconds()).do(Evaluate(leases=dict(story.leases)))
    (run,) = story.state.runs
    assert (run.status, run.reason, run.attempt) == (RunStatus.WAITING, Reason.BACKOFF, 1)


@pytest.mark.parametrize(
    ("timeout_seconds", "status"),
    [
        (MAX_WAITED_SCRIPT_SECONDS, RunStatus.RUNNING),
        (MAX_WAITED_SCRIPT_SECONDS + 1, RunStatus.CLAIMED),
    ],
)
def test_only_scripts_with_long_timeouts_are_handed_over(
    timeout_seconds: int, status: RunStatus
) -> None:
    story = Story(a_job(every(86_400), task_type="script", timeout_seconds=timeout_seconds))
    story.evaluate_at(86_400).at(86_401)
    story.do(Claim(story.queued[0].run_id, "e", "n", hands_over_scripts=True))
    assert [run.status for run in story.held] == [status]


def test_run_that_the_platform_cannot_start_fails_in_the_end() -> None:
    story, run = a_claimed_run(at_most_once=True)
    for _ in range(MAX_FAILED_STARTS - 1):
        story.do(_failed_start(run))
        assert story.state.runs[0].status is RunStatus.WAITING
        story.wait(MAX_RETURN_DELAY.total_seconds()).do(Evaluate())
        run = story.claim()
    decision = story.do(_failed_start(run))
    assert decision.run is not None
    assert (decision.run.status, decision.run.attempt) == (RunStatus.FAILED, 1)
    assert not story.state.runs


def test_script_without_a_runner_is_lost_in_the_end() -> None:
    story = Story(a_job(every(864_000), task_type="script")).evaluate_at(864_000).at(864_001)
    for number in range(1, MAX_FAILED_STARTS + 1):
        story.do(Claim(story.queued[0].run_id, "e", str(number), hands_over_scripts=True))
        story.wait(CLAIM_LEASE.total_seconds()).do(Evaluate(leases=dict(story.leases)))
        if number < MAX_FAILED_STARTS:
            assert story.state.runs[0].attempt == 1
            story.wait(MAX_RETURN_DELAY.total_seconds()).do(Evaluate())
    assert not story.state.runs
    assert story.outcomes() == [(864_000, "FAILED", "LOST", 1)]


def test_start_that_succeeds_forgets_the_failed_ones() -> None:
    story, run = a_claimed_run()
    story.do(_failed_start(run))
    story.wait(MAX_RETURN_DELAY.total_seconds()).do(Evaluate())
    run = story.claim()
    assert run.failed_starts == 1
    story.do(Started(run.run_id, run.token, "one"))
    assert story.held[0].failed_starts == 0


def test_cancelled_run_ends_with_its_failed_start() -> None:
    story, run = a_claimed_run()
    story.do(CancelRun(run.run_id))
    decision = story.do(_failed_start(run))
    assert decision.run is not None
    assert decision.run.status is RunStatus.CANCELLED


def _failed_start(run: Run) -> ReturnClaim:
    return ReturnClaim(
        run.run_id, run.token, work_begun=False, never_started=True, start_failed=True
    )
