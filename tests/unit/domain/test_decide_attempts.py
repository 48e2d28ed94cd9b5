"""Holders, attempts, retries, lost leases and deadlines, from the claim of a run to its end."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.decide import Verdict
from punctual.domain.durations import MAX_LOST_ATTEMPTS, MAX_RETURNED_CLAIMS
from punctual.domain.events import Claim, DeadLetter, Finish, ReturnClaim, Started
from punctual.domain.identifiers import derived_id
from punctual.domain.job_state import Retry
from punctual.domain.leases import CLAIM_LEASE
from punctual.domain.run import Lease, Reason, Run, RunStatus
from punctual.domain.schedules.schedule import Once
from tests.support.builders_jobs import NOON, Story, a_job, after, every, seconds


def a_claimed_run(once: bool = False, **fields: Any) -> tuple[Story, Run]:
    schedule = Once(after(86_400)) if once else every(86_400)
    story = Story(a_job(schedule, **fields)).evaluate_at(86_400).at(86_401)
    return story, story.claim()


def test_claim_takes_the_state_version_as_token_and_a_lease() -> None:
    story, run = a_claimed_run()
    assert (run.status, run.token) == (RunStatus.RUNNING, story.state.version)
    assert story.leases == {run.run_id: Lease(run.token, story.now + CLAIM_LEASE)}
    assert run.started_at == story.now


def test_repeated_claim_of_one_executor_changes_nothing() -> None:
    story, run = a_claimed_run()
    repeated = story.wait(1).do(Claim(run.run_id, "e1", "1"))
    assert (repeated.verdict, repeated.changed, repeated.run) == (Verdict.OK, False, run)


@pytest.mark.parametrize(("executor_id", "nonce"), [("e2", "1"), ("e1", "2")])
def test_claimed_run_cannot_be_claimed_by_another_executor(executor_id: str, nonce: str) -> None:
    story, run = a_claimed_run()
    decision = story.do(Claim(run.run_id, executor_id, nonce))
    assert (decision.verdict, decision.changed) == (Verdict.HELD, False)


def test_event_of_an_unknown_run_is_gone_or_fenced() -> None:
    story = Story(a_job())
    for event in (Claim("x", "e", "n"), DeadLetter("x")):
        assert story.do(event).verdict is Verdict.GONE
    for fenced in (Finish("x", 1, RunStatus.SUCCESS), ReturnClaim("x", 1), Started("x", 1)):
        decision = story.do(fenced)
        assert (decision.verdict, decision.changed) == (Verdict.FENCED, False)


def test_run_that_starts_later_is_claimed_and_then_running() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run_id = story.queued[0].run_id
    story.do(Claim(run_id, "e", "n", starts_later=True))
    (run,) = story.held
    assert run.status is RunStatus.CLAIMED
    story.wait(3).do(Started(run_id, run.token))
    assert story.held[0].status is RunStatus.RUNNING
    repeated = story.wait(3).do(Started(run_id, run.token))
    assert (repeated.verdict, repeated.changed) == (Verdict.OK, False)


def test_repeated_finish_changes_nothing() -> None:
    story, run = a_claimed_run()
    first = story.finish(run)
    assert first.run is not None
    repeated = story.do(Finish(run.run_id, run.token, RunStatus.SUCCESS), recorded=False)
    assert (repeated.verdict, repeated.changed, repeated.run) == (Verdict.OK, False, first.run)
    assert repeated.runs_to_record == (first.run,)


def test_repeated_failure_report_is_one_attempt() -> None:
    story, run = a_claimed_run()
    story.fail(run)
    repeated = story.wait(1).fail(run)
    assert (repeated.verdict, repeated.changed) == (Verdict.OK, False)
    assert story.state.runs[0].attempt == 2


def test_old_fencing_token_is_refused() -> None:
    story, old_claim = a_claimed_run()
    story.return_claim(old_claim)
    new_claim = story.claim()
    assert new_claim.token > old_claim.token
    for event in (
        Finish(old_claim.run_id, old_claim.token, RunStatus.SUCCESS),
        ReturnClaim(old_claim.run_id, old_claim.token),
        Started(old_claim.run_id, old_claim.token),
    ):
        decision = story.do(event)
        assert (decision.verdict, decision.changed) == (Verdict.FENCED, False)


def test_ended_run_is_recorded_again_until_its_row_is_known() -> None:
    story, run = a_claimed_run()
    first = story.finish(run)
    assert [ended.status for ended in first.runs_to_record] == [RunStatus.SUCCESS]
    repeated = story.evaluate_recorded(recorded=False)
    assert repeated.runs_to_record == first.runs_to_record
    assert story.state.unrecorded == first.runs_to_record
    story.evaluate_at(2 * 86_400)
    assert story.state.unrecorded == ()


def test_retries_back_off_and_then_end() -> None:
    retry = Retry(backoff_seconds=5, max_backoff_seconds=30, multiplier=2, jitter=False)
    story, run = a_claimed_run(max_retries=4, retry=retry)
    waits = []
    for _ in range(4):
        decision = story.fail(run)
        (waiting,) = story.state.runs
        assert (waiting.status, waiting.reason) == (RunStatus.WAITING, Reason.BACKOFF)
        assert waiting.next_at is not None
        assert decision.timer_at == waiting.next_at
        assert [letter for _, letter in decision.ended_attempts] == ["F"]
        waits.append((waiting.next_at - story.now).total_seconds())
        story.now = waiting.next_at - seconds(0.001)
        assert not story.evaluate().changed
        assert story.do(Claim(run.run_id, "e", "early")).verdict is Verdict.NOT_QUEUED
        story.now = waiting.next_at
        assert [sent.run_id for sent in story.evaluate().runs_to_send] == [run.run_id]
        run = story.claim()
    assert waits == [5, 10, 20, 30]
    assert run.attempt == 5
    story.finish(run, RunStatus.TIMED_OUT)
    assert [(ended.status, ended.attempt) for ended in story.ledger.values()] == [
        (RunStatus.TIMED_OUT, 5)
    ]


def test_backoff_jitter_is_between_half_and_all_of_the_delay() -> None:
    waits = set()
    for number in range(40):
        story = Story(a_job(every(86_400), retry=Retry(backoff_seconds=8)))
        story.request_run(derived_id(NOON, str(number)))
        story.fail(story.claim())
        next_at = story.state.runs[0].next_at
        assert next_at is not None
        waits.add((next_at - story.now).total_seconds())
    assert 4 <= min(waits) < 5
    assert 7 < max(waits) <= 8


@pytest.mark.parametrize(
    "retry",
    [
        Retry(multiplier=1000, max_backoff_seconds=86_400, jitter=False),
        Retry(multiplier=0, jitter=False),
        Retry(multiplier=0.001, backoff_seconds=86_400, max_backoff_seconds=86_400),
        Retry(backoff_seconds=0, max_backoff_seconds=0),
        Retry(multiplier=1e300, max_backoff_seconds=1e6),
        Retry(backoff_seconds=300, max_backoff_seconds=1, jitter=False),
    ],
)
def test_hundred_retries_do_not_overflow(retry: Retry) -> None:
    story, run = a_claimed_run(once=True, max_retries=100, retry=retry)
    for _ in range(100):
        story.fail(run)
        next_at = story.state.runs[0].next_at
        assert next_at is not None
        wait = (next_at - story.now).total_seconds()
        assert 0 <= wait <= retry.max_backoff_seconds
        story.now = next_at
        story.evaluate()
        run = story.claim()
    story.fail(run)
    assert [(ended.status, ended.attempt) for ended in story.ledger.values()] == [
        (RunStatus.FAILED, 101)
    ]


def test_failure_that_is_not_retryable_ends_the_run() -> None:
    story, run = a_claimed_run(max_retries=5)
    story.finish(run, RunStatus.FAILED, retryable=False)
    assert [ended.status for ended in story.ledger.values()] == [RunStatus.FAILED]


def test_lost_attempt_is_repeated_at_once_and_is_not_a_retry() -> None:
    story, run = a_claimed_run(max_retries=1)
    decision = story.return_claim(run)
    assert [sent.run_id for sent in decision.runs_to_send] == [run.run_id]
    assert [letter for _, letter in decision.ended_attempts] == ["L"]
    run = story.claim()
    assert run.attempt == 2
    story.fail(run)
    assert story.state.runs[0].reason is Reason.BACKOFF


def test_run_with_five_lost_attempts_fails() -> None:
    story, run = a_claimed_run(max_retries=100)
    for _ in range(4):
        story.return_claim(run)
        run = story.claim()
    story.return_claim(run)
    assert [(ended.status, ended.reason, ended.attempt) for ended in story.ledger.values()] == [
        (RunStatus.FAILED, Reason.LOST, 5)
    ]


@pytest.mark.parametrize("work_begun", [True, False])
def test_at_most_once_run_has_no_attempt_after_a_claim(work_begun: bool) -> None:
    story, run = a_claimed_run(at_most_once=True, max_retries=0)
    story.return_claim(run, begun=work_begun)
    assert [ended.status for ended in story.ledger.values()] == [RunStatus.FAILED]
    assert story.state.runs == ()


def test_returned_claim_without_work_is_not_an_attempt() -> None:
    story, run = a_claimed_run()
    decision = story.return_claim(run, begun=False)
    assert decision.ended_attempts == ()
    assert story.claim().attempt == 1
    assert story.state.started_runs == 1


def test_run_that_is_always_returned_fails_at_a_limit() -> None:
    story, run = a_claimed_run(once=True)
    claims = 1
    while story.do(ReturnClaim(run.run_id, run.token, work_begun=False)).state.runs:
        run = story.claim()
        claims += 1
        assert claims < 100
    (ended,) = story.state.unrecorded
    assert (ended.status, ended.reason, ended.past_attempts) == (
        RunStatus.FAILED,
        Reason.LOST,
        "LLLL",
    )
    assert claims == MAX_RETURNED_CLAIMS + MAX_LOST_ATTEMPTS


def test_returned_claims_that_wait_back_off_and_fail_at_a_limit() -> None:
    story, run = a_claimed_run(max_retries=0)
    waits = []
    for _ in range(10):
        decision = story.return_claim(run, begun=False, waits=True)
        assert (decision.ended_attempts, decision.runs_to_send) == ((), ())
        (waiting,) = story.state.runs
        assert (waiting.status, waiting.reason) == (RunStatus.WAITING, Reason.BACKOFF)
        assert waiting.next_at is not None
        assert decision.timer_at == waiting.next_at
        waits.append((waiting.next_at - story.now).total_seconds())
        story.now = waiting.next_at
        story.evaluate()
        run = story.claim()
        assert run.attempt == 1
    assert waits == [15, 30, 60, 120, 240, 300, 300, 300, 300, 300]
    decision = story.return_claim(run, begun=False, waits=True)
    assert [letter for _, letter in decision.ended_attempts] == ["L"], "now it counts"
    claims = 0
    while not story.ledger:
        claims += 1
        story.return_claim(story.claim(), begun=False, waits=True)
        for waiting in story.state.runs:
            story.now = waiting.next_at or story.now
        story.evaluate()
    assert claims == 4 * 11
    assert [(ended.status, ended.reason) for ended in story.ledger.values()] == [
        (RunStatus.FAILED, Reason.LOST)
    ]


@pytest.mark.parametrize("at_most_once", [True, False])
def test_claims_that_provably_did_not_start_wait_without_a_limit(
    at_most_once: bool,
) -> None:
    story, run = a_claimed_run(at_most_once=at_most_once, max_retries=0)
    for _ in range(100):
        assert story.return_claim(run, begun=False, unstarted=True).ended_attempts == ()
        (waiting,) = story.state.runs
        assert (waiting.status, waiting.reason) == (RunStatus.WAITING, Reason.BACKOFF)
        assert waiting.next_at is not None
        assert timedelta(seconds=15) <= waiting.next_at - story.now <= timedelta(minutes=5)
        story.now = waiting.next_at
        story.evaluate()
        run = story.claim()
        assert run.attempt == 1


def test_cancelled_run_that_did_not_start_ends() -> None:
    story, run = a_claimed_run(at_most_once=True, max_retries=0)
    story.cancel_run(run)
    story.return_claim(run, begun=False, unstarted=True)
    assert [ended.status for ended in story.ledger.values()] == [RunStatus.CANCELLED]


def test_expired_lease_loses_the_attempt_and_requires_the_read_lease() -> None:
    story, run = a_claimed_run()
    story.renew_lease(run)
    read = story.leases[run.run_id]
    story.silent = True
    assert not story.wait(19.9).evaluate().changed
    decision = story.wait(0.1).evaluate()
    assert decision.required_leases == {run.run_id: read}
    assert decision.leases == {run.run_id: None}
    assert [sent.run_id for sent in decision.runs_to_send] == [run.run_id]
    assert story.state.runs[0].past_attempts == "L"


def test_renewed_lease_keeps_the_attempt() -> None:
    story, run = a_claimed_run()
    for _ in range(10):
        story.renew_lease(run)
        assert not story.wait(15).evaluate().changed


def test_claim_without_a_heartbeat_lives_for_the_claim_lease() -> None:
    story, _ = a_claimed_run()
    story.silent = True
    assert not story.wait(29.9).evaluate().changed
    assert story.wait(0.1).evaluate().changed


def test_lease_of_an_older_token_is_ignored() -> None:
    story, run = a_claimed_run()
    story.leases[run.run_id] = Lease(run.token - 1, story.now - seconds(60), is_renewed=True)
    story.silent = True
    assert not story.wait(1).evaluate().changed
    assert story.held[0].token == run.token


def test_dead_letter_of_an_earlier_attempt_changes_nothing() -> None:
    story, run = a_claimed_run()
    assert story.do(DeadLetter(run.run_id)).verdict is Verdict.HELD
    story.fail(run)
    decision = story.do(DeadLetter(run.run_id))
    assert (decision.verdict, decision.changed) == (Verdict.NOT_QUEUED, False)


def test_latest_run_is_not_a_skipped_or_missed_one() -> None:
    story = Story(a_job(every(60, end_at=after(200)), deadline_seconds=90)).evaluate_at(60)
    run = story.claim()
    story.evaluate_at(120, 180)
    assert story.state.latest_run_id == story.wait_queue[-1].run_id
    story.evaluate_at(280)
    assert story.state.latest_run_id == run.run_id


def test_latest_run_is_not_a_withdrawn_one() -> None:
    story = Story(a_job(every(60), max_concurrency=2)).evaluate_at(60)
    run = story.claim()
    story.at(90).evaluate(horizon=60)
    story.pause()
    assert story.state.latest_run_id == run.run_id


def test_ended_job_keeps_its_end_time() -> None:
    story = Story(a_job(Once(after(0)))).drain_at(5)
    assert story.state.ended_at == after(5)
    story.wait(60).cancel()
    assert story.state.ended_at == after(5)


@pytest.mark.parametrize("end", ["cancel while held", "cancel while queued", "at most once"])
def test_lost_executor_is_fenced_also_after_its_run_ended(end: str) -> None:
    """The run ended without this executor's report, so the report must not be recorded."""
    story = Story(a_job(every(60), at_most_once=end == "at most once")).evaluate_at(60)
    run = story.claim()
    if end == "cancel while held":
        story.cancel_run(run)
    story.return_claim(run)
    if end == "cancel while queued":
        story.cancel_run(story.queued[0])
    (ended,) = story.state.unrecorded
    assert ended.token == run.token
    decision = story.finish(run)
    assert (decision.verdict, decision.changed) == (Verdict.FENCED, False)
    assert ended.reason in (Reason.CANCELLED, Reason.LOST)


def test_repeated_finish_of_a_cancelled_run_is_accepted() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run = story.claim()
    story.cancel_run(run)
    for _ in range(2):
        decision = story.do(Finish(run.run_id, run.token, RunStatus.CANCELLED), recorded=False)
        assert decision.verdict is Verdict.OK


def the_ended(story: Story, run: Run) -> Run:
    return story.ledger[run.run_id]


def times_of(run: Run) -> tuple[float | None, float | None, float | None]:
    """Return `queued_at` and `claimed_at` in seconds after noon, and the duration in seconds."""
    queued, claimed = (None if at is None else at - NOON for at in (run.queued_at, run.claimed_at))
    return to_seconds(queued), to_seconds(claimed), to_seconds(run.duration)


def to_seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()


def test_run_shows_when_it_was_queued_and_claimed_and_how_long_it_took() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    assert times_of(story.queued[0]) == (60, None, None)
    run = story.wait(2).claim()
    assert times_of(run) == (60, 62, None)
    story.wait(3).finish(run)
    assert times_of(the_ended(story, run)) == (60, 62, 3)


def test_resent_run_stays_queued_since_its_first_message() -> None:
    story = Story(a_job(every(86_400))).evaluate_at(86_400)
    (run,) = story.queued
    (resent_run,) = story.at(86_400 + 3_600).evaluate().runs_to_send
    assert resent_run.send_count == run.send_count + 1
    assert times_of(resent_run) == times_of(run) == (86_400, None, None)


def test_retried_run_shows_the_queueing_and_the_claim_of_its_present_attempt() -> None:
    retry = Retry(backoff_seconds=10, jitter=False)
    story, run = a_claimed_run(retry=retry)
    story.wait(1).fail(run)
    (waiting_run,) = story.state.runs
    assert times_of(waiting_run) == (None, None, None)
    story.wait(10).evaluate()
    assert times_of(story.queued[0]) == (86_412, None, None)
    run = story.wait(1).claim()
    assert times_of(run) == (86_412, 86_413, None)
    story.wait(4).finish(run)
    assert times_of(the_ended(story, run)) == (86_412, 86_413, 4)


def test_lost_attempt_and_returned_claim_queue_the_run_again() -> None:
    story, run = a_claimed_run()
    story.wait(2).return_claim(run)
    assert times_of(story.queued[0]) == (86_403, None, None)
    run = story.wait(1).claim()
    story.silent = True
    story.wait(60).evaluate()
    assert story.queued[0].past_attempts.endswith("L")
    assert times_of(story.queued[0]) == (86_464, None, None)


def test_run_of_the_wait_queue_is_queued_when_a_place_is_free() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    first = story.claim()
    story.evaluate_at(120)
    assert story.state.wait_queue
    story.at(130).finish(first)
    assert times_of(story.queued[0]) == (130, None, None)


def test_paused_run_is_queued_again_by_the_resume() -> None:
    story = Story(a_job(every(3_600))).evaluate_at(3_600)
    story.wait(5).pause()
    assert not story.queued
    story.wait(5).resume()
    assert times_of(story.queued[0]) == (3_610, None, None)


def test_run_that_ends_between_two_attempts_shows_no_claim_and_no_duration() -> None:
    story, run = a_claimed_run(retry=Retry(backoff_seconds=100, jitter=False))
    story.wait(1).fail(run)
    story.wait(50).cancel_run(run)
    ended_run = the_ended(story, run)
    assert ended_run.first_start_at == run.started_at
    assert times_of(ended_run) == (None, None, None)
    story, run = a_claimed_run()
    story.wait(2).return_claim(run)
    story.wait(1).cancel_run(run)
    assert times_of(the_ended(story, run)) == (86_403, None, None)


def test_claim_of_work_that_begins_later_keeps_its_time() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run_id = story.queued[0].run_id
    story.wait(1).do(Claim(run_id, "e", "n", starts_later=True))
    (run,) = story.held
    assert times_of(run) == (60, 61, None)
    story.wait(30).do(Started(run_id, run.token))
    story.wait(4).finish(run)
    assert times_of(the_ended(story, run)) == (60, 61, 4)


def test_run_that_never_left_the_wait_queue_was_not_queued() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    story.claim()
    story.evaluate_at(120)
    (waiting,) = story.state.wait_queue
    story.cancel_run(waiting)
    assert times_of(story.ledger[waiting.run_id]) == (None, None, None)
