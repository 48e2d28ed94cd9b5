"""Commands of a user to a job: pause, resume, cancel, run."""

from typing import Any

import pytest

from punctual.domain.decide import Decision, Verdict
from punctual.domain.events import Backfill, CancelRun, Claim
from punctual.domain.job_state import JobStatus, MisfirePolicy
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Once
from tests.support.builders_jobs import Story, a_job, after, every


def a_paused_job(**fields: Any) -> Story:
    story = Story(a_job(every(60), **fields)).at(30)
    story.pause()
    return story


def test_paused_job_skips_occurrences_and_holds_queued_runs() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    message = story.queued[0].run_id
    story.at(60.5).pause()
    assert story.status() == "PAUSED"
    assert story.queued == []
    assert [waiting.scheduled_at for waiting in story.wait_queue] == [after(60)]
    assert story.do(Claim(message, "e", "n")).verdict in (Verdict.GONE, Verdict.NOT_QUEUED)
    story.evaluate_at(120, 180)
    assert not story.held
    assert len(story.wait_queue) == 1


def test_running_run_of_a_paused_job_continues_with_its_retries() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run = story.claim()
    story.pause()
    story.fail(run)
    story.at(120).drain()
    assert story.outcomes() == [(60, "SUCCESS", "", 1)]
    assert story.status() == "PAUSED"


def test_lost_attempt_of_a_paused_job_is_repeated() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run = story.claim()
    story.pause()
    assert [sent.run_id for sent in story.return_claim(run).runs_to_send] == [run.run_id]


def test_run_held_by_a_pause_starts_after_the_resume() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    story.pause()
    assert [run.scheduled_at for run in story.at(90).resume().runs_to_send] == [after(60)]


OUTCOMES_AFTER_RESUME = [
    (MisfirePolicy.RUN_ONCE, [240], [(60, "SKIPPED", "COALESCED", 3)]),
    (MisfirePolicy.RUN_ALL, [60, 120, 180, 240], []),
    (MisfirePolicy.SKIP, [], [(60, "SKIPPED", "PAUSED", 4)]),
]


@pytest.mark.parametrize(("policy", "ran", "not_run"), OUTCOMES_AFTER_RESUME)
@pytest.mark.parametrize("policy_is_given", [True, False])
def test_resume_applies_the_misfire_policy(
    policy: MisfirePolicy,
    ran: list[int],
    not_run: list[tuple[int, str, str, int]],
    policy_is_given: bool,
) -> None:
    story = a_paused_job() if policy_is_given else a_paused_job(misfire=policy)
    story.at(290).resume(policy if policy_is_given else None)
    story.drain()
    assert story.outcomes() == sorted([(second, "SUCCESS", "", 1) for second in ran] + not_run)
    assert story.state.next_at == after(300)


@pytest.mark.parametrize("policy", list(MisfirePolicy))
def test_one_time_job_missed_in_a_pause_runs_late_unless_policy_is_skip(
    policy: MisfirePolicy,
) -> None:
    story = Story(a_job(Once(after(60))))
    story.pause()
    story.at(600).resume(policy)
    story.drain()
    expected = (
        (60, "SKIPPED", "PAUSED", 1) if policy is MisfirePolicy.SKIP else (60, "SUCCESS", "", 1)
    )
    assert story.outcomes() == [expected]
    assert story.status() == "COMPLETED"


def test_pause_withdraws_runs_fired_ahead() -> None:
    story = Story(a_job(every(60))).at(30)
    story.evaluate(horizon=60)
    story.pause()
    assert (story.queued, story.wait_queue) == ([], ())
    story.at(45).resume()
    assert story.at(60).evaluate().runs_to_send != ()
    assert story.drain().outcomes() == [(60, "SUCCESS", "", 1)]


def test_cancelled_run_fired_ahead_does_not_fire_after_a_pause() -> None:
    story = Story(a_job(every(5), max_concurrency=2))
    story.evaluate(horizon=15)
    while story.queued:
        story.cancel_run(story.queued[-1])
    story.evaluate(horizon=15)
    story.pause()
    story.at(5).resume()
    story.drain_at(30)
    assert [outcome[0] for outcome in story.outcomes()] == [5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize("command", ["pause", "resume", "cancel"])
def test_repeated_command_changes_nothing(command: str) -> None:
    story = a_paused_job()
    if command != "pause":
        getattr(story, command)()
    edition = story.state.edition
    decision: Decision = getattr(story.wait(5), command)()
    assert (decision.verdict, decision.changed) == (Verdict.OK, False)
    assert story.state.edition == edition


def test_resume_of_a_job_that_is_not_paused_changes_nothing() -> None:
    story = Story(a_job()).at(10)
    assert not story.resume(MisfirePolicy.RUN_ALL).changed


def test_each_command_raises_the_edition() -> None:
    story = Story(a_job())
    for count, command in enumerate((story.pause, story.resume, story.pause, story.cancel)):
        command()
        assert story.state.edition == count + 2


@pytest.mark.parametrize("state", [JobStatus.COMPLETED, JobStatus.CANCELLED])
def test_ended_job_is_neither_paused_nor_resumed(state: JobStatus) -> None:
    story = Story(a_job(Once(after(0)))).at(0).drain()
    if state is JobStatus.CANCELLED:
        story.cancel()
    assert story.status() == state.value
    for command in (story.pause, story.resume):
        decision = command()
        assert (decision.verdict, decision.changed) == (Verdict.CONFLICT, False)


def test_cancel_ends_waiting_and_queued_runs_and_stops_running_ones() -> None:
    story = Story(a_job(every(60), max_concurrency=2)).evaluate_at(60)
    run = story.claim()
    story.evaluate_at(120, 180)
    decision = story.cancel()
    assert decision.run_ids_to_stop == (run.run_id,)
    assert story.outcomes() == [
        (120, "CANCELLED", "CANCELLED", 1),
        (180, "CANCELLED", "CANCELLED", 1),
    ]
    assert story.status() == "CANCELLED"
    assert story.state.next_at is None
    story.finish(story.held[0], RunStatus.CANCELLED)
    assert story.outcomes()[0] == (60, "CANCELLED", "CANCELLED", 1)
    assert story.state.ended_at == story.now


@pytest.mark.parametrize("how", ["fail", "lose", "release", "give back"])
def test_run_of_a_cancelled_job_has_no_further_attempt(how: str) -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run = story.claim()
    story.cancel()
    if how == "fail":
        story.fail(run)
    elif how == "lose":
        story.silent = True
        story.wait(60).evaluate()
    else:
        story.return_claim(run, begun=how == "release")
    assert story.outcomes() == [(60, "CANCELLED", "CANCELLED", 1)]
    assert story.state.runs == ()


def test_cancel_of_a_completed_job_is_allowed() -> None:
    story = Story(a_job(Once(after(0)))).drain()
    assert story.cancel().verdict is Verdict.OK
    assert story.status() == "CANCELLED"


def test_cancelled_job_starts_no_run() -> None:
    story = Story(a_job())
    story.cancel()
    assert story.request_run().verdict is Verdict.CONFLICT
    assert story.do(Backfill((("b", after(-60)),))).verdict is Verdict.CONFLICT
    assert story.change(max_concurrency=2).verdict is Verdict.CONFLICT
    assert story.state.runs == ()


def test_cancel_records_occurrences_that_a_pause_skipped() -> None:
    story = a_paused_job().at(250)
    story.cancel()
    assert story.outcomes() == [(60, "SKIPPED", "PAUSED", 4)]


def test_cancel_records_occurrences_that_an_outage_missed() -> None:
    story = Story(a_job(every(1), misfire=MisfirePolicy.SKIP)).at(5_100)
    story.evaluate()
    assert story.state.catch_up is not None
    story.cancel()
    assert sum(outcome[3] for outcome in story.outcomes()) == 5_100
    assert {outcome[1] for outcome in story.outcomes()} <= {"MISSED", "CANCELLED"}


def test_cancel_of_a_waiting_run_ends_it_and_of_a_running_one_requests_a_stop() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    run = story.claim()
    story.evaluate_at(120)
    assert story.cancel_run(story.wait_queue[0]).verdict is Verdict.OK
    assert story.outcomes() == [(120, "CANCELLED", "CANCELLED", 1)]
    stop_request = story.cancel_run(run)
    assert stop_request.run_ids_to_stop == (run.run_id,)
    assert story.held[0].cancel_reason
    repeated = story.cancel_run(run)
    assert (repeated.verdict, repeated.changed) == (Verdict.OK, False)
    story.finish(story.held[0], RunStatus.CANCELLED)
    assert story.do(CancelRun(run.run_id), recorded=False).verdict is Verdict.CONFLICT
    assert story.status() == "SCHEDULED"


def test_cancel_of_a_queued_run_admits_the_next() -> None:
    story = Story(a_job(every(60))).evaluate_at(60, 120)
    decision = story.cancel_run(story.queued[0])
    assert [run.scheduled_at for run in decision.runs_to_send] == [after(120)]


def test_cancel_of_a_run_between_attempts_ends_it_at_once() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    story.fail(story.claim())
    story.cancel_run(story.state.runs[0])
    assert story.outcomes() == [(60, "CANCELLED", "CANCELLED", 1)]


def test_occurrence_that_waits_for_its_jitter_is_cancelled_with_its_job() -> None:
    """The run is not MISSED, because its due time, with the jitter, is in the future."""
    for horizon in (None, 60):
        story = Story(a_job(every(60), jitter_ms=30_000)).at(65)
        story.evaluate(horizon=horizon)
        story.at(70).cancel()
        assert story.outcomes() == [(60, "CANCELLED", "CANCELLED", 1)]
