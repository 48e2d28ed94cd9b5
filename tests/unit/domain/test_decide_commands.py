"""Commands of a user to a job: pause, also up to a time, resume, cancel, run."""

from collections.abc import Callable
from typing import Any

import pytest

from punctual.domain.decide import Decision, Verdict, decide
from punctual.domain.events import Backfill, CancelRun, Claim, Evaluate, Pause
from punctual.domain.job_state import JobPause, JobStatus, MisfirePolicy
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Once
from tests.support.builders_jobs import NOON, Story, a_job, after, every


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
    commands: list[Callable[[], Decision]] = [story.pause, story.resume, story.pause, story.cancel]
    for count, command in enumerate(commands):
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


def a_job_paused_for_a_time(at: float = 30, until: float = 270, **fields: Any) -> Story:
    """Return a job of each minute, paused from `at` to `until`."""
    story = Story(a_job(every(60), **fields)).at(at)
    story.pause(until)
    return story


def test_pause_holds_its_values_and_a_timer_for_its_end() -> None:
    story = Story(a_job(every(60))).at(30)
    story.do(Pause(after(270), "a move", "operation-1", "ann"))
    assert story.state.pause == JobPause(
        at=after(30), by="ann", until=after(270), note="a move", operation_id="operation-1"
    )
    assert story.state.timer_at == after(270)


def test_job_resumes_at_its_time_and_not_before() -> None:
    story = a_job_paused_for_a_time().evaluate_at(60, 120, 180, 240, 269.999)
    assert story.status() == "PAUSED"
    story.evaluate_at(270)
    assert (story.status(), story.state.pause) == ("SCHEDULED", None)
    assert story.drain().outcomes() == [(60, "SKIPPED", "COALESCED", 3), (240, "SUCCESS", "", 1)]
    assert story.state.next_at == after(300)


def test_resume_at_its_time_is_not_a_change_of_a_client() -> None:
    story = a_job_paused_for_a_time()
    before = story.state
    story.evaluate_at(270)
    assert (story.state.edition, story.state.updated_at) == (before.edition, before.updated_at)


@pytest.mark.parametrize(
    ("policy", "outcomes"),
    [
        (MisfirePolicy.RUN_ONCE, [(60, "SKIPPED", "COALESCED", 2), (180, "SUCCESS", "", 1)]),
        (MisfirePolicy.RUN_ALL, [(second, "SUCCESS", "", 1) for second in (60, 120, 180)]),
        (MisfirePolicy.SKIP, [(60, "SKIPPED", "PAUSED", 3)]),
    ],
)
def test_policy_decides_about_occurrences_before_the_end_and_that_at_the_end_runs(
    policy: MisfirePolicy, outcomes: list[tuple[int, str, str, int]]
) -> None:
    story = a_job_paused_for_a_time(until=240, misfire=policy).drain_at(240)
    assert story.outcomes() == [*outcomes, (240, "SUCCESS", "", 1)]


def test_outage_over_the_end_of_a_pause_is_caught_up_by_itself() -> None:
    story = a_job_paused_for_a_time(until=270, misfire=MisfirePolicy.SKIP).drain_at(600)
    assert story.outcomes() == [
        (60, "SKIPPED", "PAUSED", 4),
        (300, "MISSED", "OUTAGE", 5),
        (600, "SUCCESS", "", 1),
    ]


def test_second_pause_replaces_time_and_note_only() -> None:
    story = Story(a_job(every(60))).at(30)
    story.do(Pause(after(270), "a move", "operation-1", "ann"))
    edition, first_pause = story.state.edition, story.state.pause
    assert not story.at(40).do(Pause(after(270), "a move", by="bob")).changed
    story.do(Pause(after(270), "a move", "operation-2", "bob"))
    assert (story.state.edition, story.state.pause) == (edition, first_pause)
    story.do(Pause(after(500), "a longer move", "operation-3", "bob"))
    assert story.state.pause == JobPause(
        at=after(30), by="ann", until=after(500), note="a longer move", operation_id="operation-1"
    )
    assert story.state.edition == edition + 1
    assert story.state.timer_at == after(500)
    assert story.evaluate_at(270).status() == "PAUSED"
    assert story.evaluate_at(500).status() == "SCHEDULED"


def test_pause_without_a_time_ends_only_by_a_client() -> None:
    story = a_job_paused_for_a_time()
    story.pause()
    assert story.state.timer_at is None
    assert story.evaluate_at(270, 10_000).status() == "PAUSED"


@pytest.mark.parametrize("command", ["cancel", "resume"])
def test_cancel_and_resume_end_the_pause(command: str) -> None:
    story = a_job_paused_for_a_time()
    getattr(story.at(100), command)()
    assert story.state.pause is None
    status = story.status()
    assert story.evaluate_at(270).status() == status


def test_job_without_a_next_time_completes_at_the_end_of_its_pause() -> None:
    story = Story(a_job(Once(after(10)))).evaluate_at(10)
    run = story.claim()
    story.pause(until=100)
    story.finish(run)
    assert (story.status(), story.state.timer_at) == ("PAUSED", after(100))
    story.evaluate_at(100)
    assert (story.status(), story.state.timer_at) == ("COMPLETED", None)
    assert story.state.ended_at == after(100)


def test_held_run_starts_at_the_end_of_the_pause() -> None:
    story = Story(a_job(every(600))).evaluate_at(600)
    story.pause(until=650)
    assert story.queued == []
    sent = story.at(650).evaluate().runs_to_send
    assert [run.scheduled_at for run in sent] == [after(600)]


def test_end_of_a_pause_does_not_come_early_when_a_poller_fires_ahead() -> None:
    story = a_job_paused_for_a_time()
    decision = story.at(269).evaluate(horizon=2, trigger_times=[after(270)])
    assert (decision.changed, story.status()) == (False, "PAUSED")
    assert after(270) in story.timers


def test_change_of_a_paused_job_keeps_the_pause() -> None:
    story = a_job_paused_for_a_time()
    pause = story.state.pause
    story.at(100).change(every(30), max_concurrency=3)
    assert (story.status(), story.state.pause) == ("PAUSED", pause)


def test_pause_with_a_time_that_has_passed_ends_at_the_next_evaluation() -> None:
    paused = decide(a_job(every(60)), Pause(NOON), after(5), "w")
    assert (paused.state.status, paused.timer_at) == ("PAUSED", NOON)
    resumed = decide(paused.state, Evaluate(trigger_times=(NOON,)), after(5), "w")
    assert (resumed.state.status, resumed.state.timer_at) == ("SCHEDULED", after(60))
