"""A run that has not started by its deadline is MISSED."""

from punctual.domain.decide import Verdict
from punctual.domain.events import Claim, ReturnClaim
from punctual.domain.run import Reason
from tests.support.builders_jobs import Story, a_job, after, every


def test_run_not_started_by_its_deadline_is_missed() -> None:
    story = Story(a_job(every(60), deadline_seconds=10)).evaluate_at(60)
    assert story.state.timer_at == after(70)
    assert not story.at(69.9).evaluate().changed
    story.at(70).evaluate()
    assert story.outcomes() == [(60, "MISSED", "DEADLINE", 1)]
    assert story.state.timer_at == after(120)


def test_deadline_applies_in_the_wait_queue_in_a_pause_and_at_a_claim() -> None:
    story = Story(a_job(every(60), deadline_seconds=100)).evaluate_at(60)
    run = story.claim()
    story.evaluate_at(120, 180)
    story.at(220).evaluate()
    assert (120, "MISSED", "DEADLINE", 1) in story.outcomes()
    story.finish(run)
    queued = story.queued[0]
    story.at(281)
    assert story.do(Claim(queued.run_id, "e", "n")).verdict is not Verdict.OK
    story.evaluate()
    assert (180, "MISSED", "DEADLINE", 1) in story.outcomes()
    story.pause()
    story.request_run("mine")
    assert story.ledger.get("mine") is None


def test_queued_run_of_a_paused_job_is_missed_at_its_deadline() -> None:
    story = Story(a_job(every(60), deadline_seconds=100)).evaluate_at(60)
    story.pause()
    assert story.state.timer_at == after(160)
    story.at(160).evaluate()
    assert story.outcomes() == [(60, "MISSED", "DEADLINE", 1)]


def test_started_run_has_no_deadline() -> None:
    story = Story(a_job(every(60), deadline_seconds=10)).evaluate_at(60)
    run = story.claim()
    story.fail(run)
    story.wait(100).evaluate()
    assert story.claim().attempt == 2
    story.return_claim(story.held[0])
    story.wait(100).evaluate()
    assert story.claim().attempt == 3


def test_claim_without_room_is_no_start() -> None:
    story = Story(a_job(every(60), deadline_seconds=10)).evaluate_at(60)
    run = story.claim()
    story.do(ReturnClaim(run.run_id, run.token, never_started=True, lacks_resources=True))
    waiting = story.state.runs[0]
    assert waiting.reason is Reason.RESOURCES
    assert story.state.timer_at == min(waiting.next_at or after(70), after(70))
    story.at(70).evaluate()
    assert story.outcomes() == [(60, "MISSED", "DEADLINE", 1)]
    assert story.state.timer_at == after(120)


def test_unstarted_claim_delays_no_deadline() -> None:
    story = Story(a_job(every(60), deadline_seconds=10)).evaluate_at(60)
    run = story.claim()
    story.wait(20).evaluate()
    assert story.outcomes() == []
    story.do(ReturnClaim(run.run_id, run.token, never_started=True, lacks_resources=True))
    story.evaluate()
    assert story.outcomes() == [(60, "MISSED", "DEADLINE", 1)]
