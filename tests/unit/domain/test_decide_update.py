"""Updates of a definition: immediate changes, kept values and counters that restart."""

from datetime import date

import pytest

from punctual.domain.events import Backfill
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import JobStatus, MisfirePolicy
from punctual.domain.run import RunStatus
from punctual.domain.schedules.cron.expression import Calendar
from punctual.domain.schedules.schedule import Cron, Once
from tests.support.builders_jobs import JOB_ID, NOON, Story, a_job, after, every


def test_existing_run_keeps_its_definition() -> None:
    story = Story(a_job(every(60), max_retries=0)).evaluate_at(60)
    run = story.claim()
    story.change(max_retries=9)
    story.evaluate_at(120)
    assert {1, 2} == set(story.state.rules)
    story.fail(run)
    assert story.outcomes() == [(60, "FAILED", "", 1)]
    story.fail(story.claim())
    assert story.state.runs[0].status is RunStatus.WAITING
    assert set(story.state.rules) == {2}


def test_change_without_a_new_schedule_keeps_the_phase() -> None:
    story = Story(a_job(every(60))).at(37)
    story.change(max_concurrency=4)
    assert story.state.next_at == after(60)
    assert (story.state.edition, story.state.definition, story.state.updated_at) == (
        2,
        2,
        after(37),
    )


def test_change_without_a_new_schedule_keeps_runs_fired_ahead() -> None:
    story = Story(a_job(every(60))).at(30)
    story.evaluate(horizon=60)
    story.change(max_retries=1)
    assert story.drain_at(60).outcomes() == [(60, "SUCCESS", "", 1)]


def test_new_schedule_counts_from_now() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    story.finish(story.claim())
    story.at(100).change(every(7))
    assert story.state.next_at == after(105)
    assert story.outcomes() == [(60, "SUCCESS", "", 1)]


def test_new_schedule_withdraws_runs_fired_ahead() -> None:
    story = Story(a_job(every(60))).at(30)
    story.evaluate(horizon=60)
    withdrawn_run_id = story.queued[0].run_id
    decision = story.at(40).change(every(100))
    assert story.state.runs == ()
    assert withdrawn_run_id not in [run.run_id for run in decision.runs_to_send]
    assert story.state.next_at == after(100)
    assert story.drain_at(99).outcomes() == []


def test_withdrawn_run_may_fire_at_the_same_time_by_the_new_schedule() -> None:
    story = Story(a_job(every(60))).at(30)
    story.evaluate(horizon=60)
    story.at(40).change(every(20))
    assert story.drain_at(60).outcomes() == [(60, "SUCCESS", "", 1)]


def test_new_schedule_loses_no_time_before_a_withdrawn_run() -> None:
    story = Story(a_job(every(60), max_concurrency=2)).at(60)
    story.evaluate(horizon=60)
    assert [run.scheduled_at for run in story.queued] == [after(60), after(120)]
    story.change(every(60, anchor_at=after(15)))
    assert story.state.next_at == after(75)


def test_cancelled_run_fired_ahead_does_not_fire_again() -> None:
    story = Story(a_job(every(20), max_concurrency=3)).at(10)
    story.evaluate(horizon=60)
    story.cancel_run(story.queued[0])
    story.change(every(20, end_at=after(90)))
    assert story.state.next_at == after(40)
    assert story.drain_at(40).outcomes() == [
        (20, "CANCELLED", "CANCELLED", 1),
        (40, "SUCCESS", "", 1),
    ]


def cancelled_ahead(scheduled_at: float = 60) -> Story:
    """Return a job each minute. Its next run was fired ahead and cancelled 2 s before its time."""
    story = Story(a_job(every(60))).at(scheduled_at - 2)
    story.evaluate(horizon=2)
    story.cancel_run(story.queued[0])
    return story


def test_cancelled_run_fired_ahead_does_not_fire_again_after_a_one_time_schedule() -> None:
    story = cancelled_ahead()
    story.at(58.5).change(Once(after(59)))
    assert story.state.next_at == after(59)
    story.at(58.7).change(every(60))
    assert story.state.next_at == after(120)
    assert story.drain_at(60).outcomes() == [(60, "CANCELLED", "CANCELLED", 1)]


def test_cancelled_run_fired_ahead_does_not_fire_again_after_a_withdrawn_run() -> None:
    story = cancelled_ahead()
    story.at(58.5).change(every(60, anchor_at=after(1)))
    story.evaluate(horizon=3)
    assert [run.scheduled_at for run in story.queued] == [after(61)]
    story.at(59).change(every(60))
    assert story.state.next_at == after(120)


def test_cancelled_run_fired_ahead_does_not_run_by_a_second_one_time_schedule() -> None:
    story = cancelled_ahead()
    story.at(58.5).change(Once(after(59)))
    story.evaluate(horizon=2)
    story.at(58.7).change(Once(after(60)))
    assert story.drain_at(60).outcomes() == [(60, "CANCELLED", "CANCELLED", 1)]
    assert story.status() == "COMPLETED"


def test_first_of_two_cancelled_runs_does_not_run_by_a_one_time_schedule() -> None:
    story = cancelled_ahead()
    story.at(58.5).change(every(60, anchor_at=after(1)))
    story.evaluate(horizon=3)
    story.cancel_run(story.queued[0])
    story.at(59).change(Once(after(60)))
    assert [outcome[:2] for outcome in story.drain_at(60).outcomes()] == [
        (60, "CANCELLED"),
        (61, "CANCELLED"),
    ]


def test_change_of_schedule_forgets_an_occurrence_of_the_past() -> None:
    story = cancelled_ahead()
    settled_before = story.state.settled_ahead
    assert settled_before == (after(60),)
    story.at(61).change(every(10))
    assert story.state.settled_ahead == ()


def test_occurrence_due_at_the_change_fires_by_the_old_schedule() -> None:
    story = Story(a_job(every(60))).at(60)
    story.change(every(3600))
    assert [run.scheduled_at for run in story.queued] == [after(60)]
    assert story.state.next_at == after(3600)


def test_new_schedule_of_a_paused_job_records_the_past_as_skipped() -> None:
    story = Story(a_job(every(60))).at(1)
    story.pause()
    story.at(200).change(every(3600))
    assert story.status() == "PAUSED"
    assert story.outcomes() == [(60, "SKIPPED", "RESCHEDULED", 3)]
    story.at(210).resume(MisfirePolicy.RUN_ALL)
    assert story.state.runs == ()
    assert story.state.next_at == after(3600)


def test_new_schedule_during_a_catch_up_loses_no_occurrence() -> None:
    story = Story(a_job(every(1), misfire=MisfirePolicy.SKIP, misfire_grace_seconds=0)).at(5_000)
    story.evaluate()
    story.change(every(86_400))
    story.drain()
    assert sum(outcome[3] for outcome in story.outcomes()) == 5_000
    assert story.state.catch_up is None


def test_occurrence_that_waits_for_its_jitter_is_rescheduled() -> None:
    story = Story(a_job(every(60), jitter_ms=30_000)).at(70)
    story.change(every(600), jitter_ms=0)
    assert story.drain_at(100).outcomes() == [(60, "SKIPPED", "RESCHEDULED", 1)]


def test_new_schedule_withdraws_a_run_that_waits_for_its_jitter() -> None:
    """The nominal time has passed and the due time has not, so the run was fired ahead."""
    story = Story(a_job(every(60), jitter_ms=30_000)).at(50)
    story.evaluate(horizon=60)
    assert [run.due_at for run in story.queued] == [after(90)]
    story.at(70).change(every(600), jitter_ms=0)
    assert story.state.runs == ()
    assert story.drain_at(100).outcomes() == [(60, "SKIPPED", "RESCHEDULED", 1)]


def test_new_jitter_moves_the_timer() -> None:
    story = Story(a_job(every(60), jitter_ms=30_000)).at(10)
    decision = story.change(jitter_ms=5_000)
    assert decision.timer_at == after(65)
    assert [run.due_at for run in story.evaluate_at(65).queued] == [after(65)]


def test_completed_job_is_scheduled_again_by_a_future_time() -> None:
    story = Story(a_job(Once(after(0)))).drain()
    assert story.status() == "COMPLETED"
    story.at(10).change(max_retries=2)
    assert story.status() == "COMPLETED"
    story.at(20).change(Once(after(60)))
    assert story.status() == "SCHEDULED"
    assert story.state.ended_at is None
    assert story.drain_at(60).state.status is JobStatus.COMPLETED


def test_completed_job_stays_completed_without_a_future_time() -> None:
    story = Story(a_job(Once(after(0)))).drain()
    story.at(100).change(every(10, end_at=after(50)))
    assert story.status() == "COMPLETED"
    assert story.state.timer_at is None


def test_one_time_schedule_up_to_5_seconds_ago_runs_at_once() -> None:
    story = Story(a_job(every(3600))).at(100)
    story.change(Once(after(95)))
    assert [run.scheduled_at for run in story.queued] == [after(95)]
    story = Story(a_job(every(3600))).at(100)
    story.change(Once(after(94)))
    assert story.queued == []


def test_time_that_ran_by_the_old_schedule_does_not_run_again() -> None:
    story = Story(a_job(Cron("* * * * *"))).evaluate_at(60).drain()
    story.at(62).change(Once(after(60)))
    assert story.queued == []
    assert story.drain().outcomes() == [(60, "SUCCESS", "", 1)]


def test_unchanged_one_time_schedule_does_not_run_again() -> None:
    story = Story(a_job(Once(NOON))).drain()
    story.at(3).change(Once(NOON))
    assert story.queued == []


def test_recorded_one_time_run_does_not_repeat_after_two_changes() -> None:
    story = Story(a_job(Once(NOON))).drain()
    story.at(2).change(every(60))
    story.at(3).change(Once(NOON))
    assert story.queued == []


def test_one_time_run_that_a_pause_skipped_does_not_run() -> None:
    story = Story(a_job(every(60))).at(1)
    story.pause()
    story.at(180).change(Once(after(180)))
    story.resume()
    assert story.drain().outcomes() == [(60, "SKIPPED", "RESCHEDULED", 3)]


def test_start_time_in_the_past_sets_the_phase_only() -> None:
    story = Story(a_job(every(3600))).at(100)
    story.change(every(60, start_at=after(-3_615)))
    assert story.state.next_at == after(105)
    assert story.drain().outcomes() == []


def test_occurrence_before_a_schedule_change_is_not_missed() -> None:
    story = Story(a_job(every(3600))).at(100)
    story.change(every(10))
    story.at(100_000)
    story.drain()
    assert story.outcomes()[0][0] == 110


def test_changed_exclusion_removes_a_date() -> None:
    story = Story(a_job(Cron("0 * * * *"))).at(10)
    story.change(Cron("0 * * * *", exclude=(date(2026, 3, 2),)))
    assert story.state.next_at == after(12 * 3600)


def test_max_runs_counts_started_runs_and_completes_the_job() -> None:
    story = Story(a_job(every(60), max_runs=2))
    for second in (60, 120):
        story.at(second).drain()
    assert story.state.next_at is None
    assert story.status() == "COMPLETED"
    assert story.drain_at(600).outcomes() == [(60, "SUCCESS", "", 1), (120, "SUCCESS", "", 1)]


def test_max_runs_ignores_attempts_requested_and_skipped_runs() -> None:
    story = Story(a_job(every(60), max_runs=2)).at(1)
    story.request_run("mine")
    story.finish(story.claim())
    story.do(Backfill((("b", after(-60)),)))
    story.finish(story.claim())
    story.evaluate_at(60)
    story.return_claim(story.claim())
    story.finish(story.claim())
    assert story.state.started_runs == 1
    assert story.state.next_at == after(120)


@pytest.mark.parametrize("limit", [1, 3])
def test_max_runs_limits_waiting_runs_too(limit: int) -> None:
    job = a_job(every(60), max_runs=2, misfire=MisfirePolicy.RUN_ALL, max_concurrency=limit)
    story = Story(job).at(610).drain()
    assert [outcome[0] for outcome in story.outcomes() if outcome[1] == "SUCCESS"] == [60, 120]
    assert story.status() == "COMPLETED"


def test_last_run_of_max_runs_admits_a_requested_run() -> None:
    story = Story(a_job(every(60), max_runs=1, max_concurrency=2)).evaluate_at(60, 120)
    story.request_run("mine")
    assert [waiting.run_id for waiting in story.wait_queue] == ["mine"]
    story.claim(story.queued[0])
    assert [run.run_id for run in story.queued] == ["mine"]


def test_new_schedule_restarts_the_count_of_max_runs() -> None:
    story = Story(a_job(every(60), max_runs=1)).drain_at(60)
    assert story.status() == "COMPLETED"
    story.change(every(10))
    assert (story.state.status, story.state.started_runs) == (JobStatus.SCHEDULED, 0)


def test_raised_max_runs_reopens_the_job() -> None:
    story = Story(a_job(every(60), max_runs=1)).drain_at(60)
    story.at(130).change(max_runs=2)
    assert story.status() == "SCHEDULED"
    assert story.state.next_at == after(180)


def test_lowered_max_runs_skips_waiting_runs() -> None:
    story = Story(a_job(every(60), max_runs=9)).evaluate_at(60)
    run = story.claim()
    story.evaluate_at(120, 180)
    story.change(max_runs=1)
    story.finish(run)
    story.drain()
    assert [outcome[:2] for outcome in story.outcomes()] == [
        (60, "SUCCESS"),
        (120, "SKIPPED"),
        (180, "SKIPPED"),
    ]
    assert story.status() == "COMPLETED"


def test_run_withdrawn_by_a_lowered_limit_fires_at_its_time() -> None:
    story = Story(a_job(every(60), max_concurrency=2)).evaluate_at(60)
    run = story.claim()
    story.at(90).evaluate(horizon=60)
    assert [queued.scheduled_at for queued in story.queued] == [after(120)]
    story.change(max_concurrency=1)
    assert (story.queued, story.wait_queue) == ([], ())
    story.finish(run)
    story.drain_at(120)
    assert story.outcomes() == [(60, "SUCCESS", "", 1), (120, "SUCCESS", "", 1)]
    assert occurrence_id(JOB_ID, after(120)) in story.ledger


def test_interval_from_completion_in_a_pause_is_one_occurrence() -> None:
    story = Story(a_job(every(10, from_completion=True))).at(1)
    story.pause()
    story.at(200).change(every(3600))
    assert story.outcomes() == [(10, "SKIPPED", "RESCHEDULED", 1)]


def test_long_pause_is_recorded_with_its_count_in_few_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    story = Story(a_job(Cron("* * * * * *"))).at(10.5)
    story.drain()
    story.pause()
    calls = 0
    next_local = Calendar.next_local

    def count_call(calendar: Calendar, local: int) -> int:
        nonlocal calls
        calls += 1
        return next_local(calendar, local)

    monkeypatch.setattr(Calendar, "next_local", count_call)
    story.at(3_000_010.5).change(every(60))
    (entry,) = story.state.unrecorded
    assert (entry.status.value, entry.occurrence_count) == ("SKIPPED", 3_000_000)
    assert (entry.scheduled_at, entry.last_at) == (after(11), after(3_000_010))
    assert calls < 100
