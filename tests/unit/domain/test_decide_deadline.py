"""A run that has not started by its deadline is MISSED."""

from punctual.domain.decide import Verdict
from punctual.domain.events import Claim
from tests.support.builders_jobs import Story, a_job, after, every


def test_run_not_started_by_its_deadline_is_missed() -> None:
    story = Story(a_job(every(60), deadline_seconds=10)).fires(60)
    assert story.head.timer_at == after(70)
    assert not story.at(69.9).look().changed
    story.at(70).look()
    assert story.outcomes() == [(60, "MISSED", "DEADLINE", 1)]
    assert story.head.timer_at == after(120)


def test_deadline_applies_in_the_wait_queue_in_a_pause_and_at_a_claim() -> None:
    story = Story(a_job(every(60), deadline_seconds=100)).fires(60)
    run = story.claim()
    story.fires(120, 180)
    story.at(220).look()
    assert (120, "MISSED", "DEADLINE", 1) in story.outcomes()
    story.finish(run)
    queued = story.queued[0]
    story.at(281)
    assert story.do(Claim(queued.run_id, "e", "n")).verdict is not Verdict.OK
    story.look()
    assert (180, "MISSED", "DEADLINE", 1) in story.outcomes()
    story.pause()
    story.order("mine")
    assert story.ledger.get("mine") is None


def test_queued_run_of_a_paused_job_is_missed_at_its_deadline() -> None:
    story = Story(a_job(every(60), deadline_seconds=100)).fires(60)
    story.pause()
    assert story.head.timer_at == after(160)
    story.at(160).look()
    assert story.outcomes() == [(60, "MISSED", "DEADLINE", 1)]


def test_started_run_has_no_deadline() -> None:
    story = Story(a_job(every(60), deadline_seconds=10)).fires(60)
    run = story.claim()
    story.fail(run)
    story.wait(100).look()
    assert story.claim().attempt == 2
    story.release(story.held[0])
    story.wait(100).look()
    assert story.claim().attempt == 3
