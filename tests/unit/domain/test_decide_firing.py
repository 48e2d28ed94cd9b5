"""Occurrences become runs on time, ahead of time and after an outage."""

from datetime import UTC, date, datetime

import msgspec
import pytest

from punctual.domain.decide import Verdict
from punctual.domain.events import Claim
from punctual.domain.job_state import MisfirePolicy, OverlapPolicy
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Cron, Once
from tests.support.builders_jobs import NOON, Story, a_job, after, every, next_due_at, seconds


def test_occurrence_fires_at_its_time_and_sets_the_next() -> None:
    story = Story(a_job(every(60)))
    assert not story.at(59.999).evaluate().changed
    decision = story.at(60).evaluate()
    (run,) = story.state.runs
    assert (run.status, run.scheduled_at, run.due_at) == (RunStatus.QUEUED, after(60), after(60))
    assert decision.runs_to_send == (run,)
    assert story.state.next_at == after(120)
    assert decision.timer_at == story.state.timer_at == after(120)


def test_repeated_evaluation_fires_once() -> None:
    story = Story(a_job(every(60))).evaluate_at(60)
    repeated = story.evaluate()
    assert not repeated.changed
    assert repeated.runs_to_send == ()
    assert len(story.state.runs) == 1


def test_run_id_derives_from_the_occurrence() -> None:
    on_time = Story(a_job(every(60))).evaluate_at(60)
    late = Story(a_job(every(60))).evaluate_at(63)
    assert on_time.state.runs[0].run_id == late.state.runs[0].run_id
    assert on_time.evaluate_at(120).wait_queue[0].run_id != late.state.runs[0].run_id


def test_one_time_job_runs_and_completes() -> None:
    story = Story(a_job(Once(after(10)))).evaluate_at(10)
    assert story.status() == "SCHEDULED"
    assert story.state.next_at is None
    story.drain()
    assert story.status() == "COMPLETED"
    assert story.outcomes() == [(10, "SUCCESS", "", 1)]
    assert story.state.timer_at is None


def test_one_time_job_completes_after_a_failure() -> None:
    story = Story(a_job(Once(after(10)), max_retries=0)).evaluate_at(10)
    story.fail(story.claim())
    assert story.status() == "COMPLETED"
    assert story.outcomes() == [(10, "FAILED", "", 1)]


def test_end_time_is_exclusive_and_completes_the_job() -> None:
    story = Story(a_job(every(60, end_at=after(180))))
    for second in (60, 120, 180):
        story.at(second).drain()
    assert [outcome[0] for outcome in story.outcomes()] == [60, 120]
    assert story.status() == "COMPLETED"


def test_excluded_date_does_not_fire() -> None:
    schedule = Cron("0 13 * * *", exclude=(date(2026, 3, 3),))
    story = Story(a_job(schedule)).evaluate_at(3600).drain()
    assert story.state.next_at == datetime(2026, 3, 4, 13, tzinfo=UTC)


def test_jitter_moves_the_due_time_and_not_the_nominal_one() -> None:
    story = Story(a_job(every(60), jitter_ms=7_500))
    assert next_due_at(story.state) == after(67.5)
    assert not story.at(67.499).evaluate().changed
    story.at(67.5).evaluate()
    (run,) = story.state.runs
    assert (run.scheduled_at, run.due_at) == (after(60), after(67.5))
    assert story.state.timer_at == after(127.5)


def test_lateness_counts_from_the_due_time() -> None:
    story = Story(a_job(every(60), jitter_ms=7_500)).evaluate_at(67.5)
    assert story.wait(0.25).claim().lateness == seconds(0.25)


def test_occurrence_late_within_the_grace_is_not_missed() -> None:
    story = Story(a_job(every(60), misfire=MisfirePolicy.SKIP, misfire_grace_seconds=60))
    story.evaluate_at(119)
    assert [run.scheduled_at for run in story.state.runs] == [after(60)]
    assert story.ledger == {}


def test_all_occurrences_late_within_the_grace_fire() -> None:
    story = Story(a_job(every(10), misfire=MisfirePolicy.SKIP, max_concurrency=5))
    story.evaluate_at(45)
    assert [run.scheduled_at for run in story.state.runs] == [
        after(second) for second in (10, 20, 30, 40)
    ]


CATCH_UP_OUTCOMES = [
    (MisfirePolicy.RUN_ONCE, [600], [(60, "SKIPPED", "COALESCED", 9)]),
    (MisfirePolicy.RUN_ALL, [60 * second for second in range(1, 11)], []),
    (MisfirePolicy.SKIP, [], [(60, "MISSED", "OUTAGE", 10)]),
]


@pytest.mark.parametrize(("policy", "ran", "not_run"), CATCH_UP_OUTCOMES)
def test_misfire_policy_decides_which_missed_occurrences_run(
    policy: MisfirePolicy, ran: list[int], not_run: list[tuple[int, str, str, int]]
) -> None:
    story = Story(a_job(every(60), misfire=policy, misfire_grace_seconds=5))
    story.at(610).drain()
    expected = [(second, "SUCCESS", "", 1) for second in ran]
    assert story.outcomes() == sorted(expected + not_run)
    assert story.state.next_at == after(660)


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (MisfirePolicy.RUN_ONCE, [(60, "SUCCESS", "", 1)]),
        (MisfirePolicy.RUN_ALL, [(60, "SUCCESS", "", 1)]),
        (MisfirePolicy.SKIP, [(60, "MISSED", "OUTAGE", 1)]),
    ],
)
def test_missed_one_time_job_runs_late_unless_policy_is_skip(
    policy: MisfirePolicy, outcome: list[tuple[int, str, str, int]]
) -> None:
    story = Story(a_job(Once(after(60)), misfire=policy)).at(86_400).drain()
    assert story.outcomes() == outcome
    assert story.status() == "COMPLETED"


def test_run_once_runs_the_latest_missed_and_all_within_the_grace() -> None:
    story = Story(a_job(every(60), misfire_grace_seconds=90)).at(610).drain()
    ran = [outcome[0] for outcome in story.outcomes() if outcome[1] == "SUCCESS"]
    skipped = [
        (outcome[0], outcome[3]) for outcome in story.outcomes() if outcome[2] == "COALESCED"
    ]
    assert 600 in ran
    assert len(ran) + skipped[0][1] == 10
    assert skipped[0][0] == 60


@pytest.mark.parametrize("recorded", [True, False])
def test_long_outage_is_one_ledger_entry_with_the_exact_count(recorded: bool) -> None:
    story = Story(a_job(every(1)))
    story.at(7_300)
    for _ in range(100):
        story.evaluate_recorded(recorded)
        if story.state.catch_up is None:
            break
    story.drain()
    counted = [outcome for outcome in story.outcomes() if outcome[3] > 1]
    ran = [outcome for outcome in story.outcomes() if outcome[1] == "SUCCESS"]
    assert len(counted) == 1
    assert counted[0][:3] == (1, "SKIPPED", "COALESCED")
    assert counted[0][3] + len(story.ledger) - 1 == 7_300
    assert ran[-1][0] == 7_300


def test_growing_ledger_entry_survives_lost_effects() -> None:
    story = Story(a_job(every(1), misfire_grace_seconds=0)).at(5_000)
    while story.state.catch_up is not None or story.state.version == 1:
        known_run_ids = set(story.ledger)
        story.evaluate()
        for run_id in set(story.ledger) - known_run_ids:
            del story.ledger[run_id]
        story.evaluate_recorded(recorded=True)
    story.drain()
    assert story.outcomes() == [(1, "SKIPPED", "COALESCED", 4_999), (5_000, "SUCCESS", "", 1)]


def test_outage_during_a_catch_up_is_caught_up_too() -> None:
    story = Story(a_job(every(5), misfire_grace_seconds=0)).at(12_000)
    story.evaluate()
    assert story.state.catch_up is not None
    story.at(40_001).drain()
    assert story.outcomes() == [(5, "SKIPPED", "COALESCED", 7_999), (40_000, "SUCCESS", "", 1)]


def test_outage_after_a_resume_follows_the_misfire_policy() -> None:
    story = Story(a_job(every(5), misfire=MisfirePolicy.SKIP, misfire_grace_seconds=0)).at(1)
    story.pause()
    story.at(12_000).resume(MisfirePolicy.SKIP)
    story.at(40_001).drain()
    assert sum(outcome[3] for outcome in story.outcomes()) == 8_000
    assert {outcome[1:3] for outcome in story.outcomes()} == {
        ("SKIPPED", "PAUSED"),
        ("MISSED", "OUTAGE"),
    }


def test_ledger_entry_grows_while_other_runs_end() -> None:
    story = Story(a_job(every(1), misfire_grace_seconds=0, max_concurrency=2)).at(0)
    story.request_run("one")
    story.request_run("two")
    runs = [story.claim(), story.claim()]
    story.at(7_000).silent = False
    story.evaluate()
    for run in runs:
        story.finish(run)
    story.drain()
    assert [outcome for outcome in story.outcomes() if outcome[1] == "SKIPPED"] == [
        (1, "SKIPPED", "COALESCED", 6_999)
    ]


def test_run_all_runs_the_latest_thousand_in_order() -> None:
    story = Story(
        a_job(every(1), misfire=MisfirePolicy.RUN_ALL, misfire_grace_seconds=0, max_waiting=5)
    )
    story.at(4_000)
    while any(at <= story.now for at in story.timers):
        story.evaluate()
    order = []
    while story.queued or story.held:
        run = story.claim()
        order.append(run.scheduled_at)
        story.finish(run)
    assert order == [after(second) for second in range(3_001, 4_001)]
    (skipped,) = [outcome for outcome in story.outcomes() if outcome[1] != "SUCCESS"]
    assert (skipped[0], skipped[3]) == (1, 3_000)


def test_repeated_outages_do_not_overfill_the_job_state() -> None:
    story = Story(a_job(every(10), misfire=MisfirePolicy.RUN_ALL, misfire_grace_seconds=0))
    for second in range(1, 6):
        story.at(12_000 * second).drain_evaluations()
        assert len(story.wait_queue) <= 1_000
    assert sum(outcome[3] for outcome in story.outcomes()) + len(story.wait_queue) + 1 == 6_000
    story.cancel()
    assert len(msgspec.json.encode(story.state)) < 390_000


def test_catch_up_respects_max_concurrency() -> None:
    story = Story(a_job(every(1), misfire=MisfirePolicy.RUN_ALL, max_concurrency=3))
    story.at(500).drain_evaluations()
    assert len(story.state.runs) == 3


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
def test_run_all_runs_all_under_every_overlap_policy(overlap: OverlapPolicy) -> None:
    job = a_job(every(60), misfire=MisfirePolicy.RUN_ALL, overlap=overlap, misfire_grace_seconds=0)
    story = Story(job).at(601).drain()
    assert story.outcomes() == [(60 * second, "SUCCESS", "", 1) for second in range(1, 11)]


def test_outage_of_two_months_leaves_one_ledger_entry() -> None:
    story = Story(a_job(Cron("* * * * *"), misfire=MisfirePolicy.SKIP))
    story.at(86_400 * 60 + 30).drain()
    counted = [outcome for outcome in story.outcomes() if outcome[1] == "MISSED"]
    assert len(counted) == 1
    assert counted[0][3] + len(story.ledger) - 1 == 1_440 * 60


def test_run_fired_ahead_cannot_be_claimed_before_its_time() -> None:
    story = Story(a_job(every(60)))
    decision = story.at(30).evaluate(horizon=60)
    (run,) = story.state.runs
    assert (run.status, run.due_at) == (RunStatus.QUEUED, after(60))
    assert decision.runs_to_send == (run,)
    early = story.do(Claim(run.run_id, "e", "n"))
    assert (early.verdict, early.retry_at, early.changed) == (Verdict.EARLY, after(60), False)
    story.at(60)
    assert story.claim(run).status is RunStatus.RUNNING


def test_occurrence_beyond_the_horizon_is_not_fired_ahead() -> None:
    story = Story(a_job(every(60)))
    assert not story.at(30).evaluate(horizon=29).changed


@pytest.mark.parametrize("overlap", list(OverlapPolicy))
def test_occurrence_is_not_fired_ahead_while_another_run_is_live(overlap: OverlapPolicy) -> None:
    story = Story(a_job(every(60), overlap=overlap)).evaluate_at(60)
    story.claim()
    story.at(110).evaluate(horizon=60)
    assert len(story.state.runs) == 1
    assert story.wait_queue == ()
    assert story.ledger == {}
    assert not story.killed


def test_run_fired_ahead_does_not_delay_run_now() -> None:
    story = Story(a_job(every(60)))
    story.at(20).evaluate(horizon=60)
    decision = story.at(25).request_run("now-1")
    assert [run.run_id for run in decision.runs_to_send] == ["now-1"]
    assert story.claim("now-1").lateness == seconds(0)
    story.finish(story.held[0])
    story.at(60).drain()
    assert [outcome[:2] for outcome in story.outcomes()] == [(25, "SUCCESS"), (60, "SUCCESS")]


def test_occurrence_before_the_creation_does_not_fire() -> None:
    story = Story(a_job(every(60, start_at=NOON - seconds(3600)))).at(1).drain()
    assert story.ledger == {}
    assert story.state.next_at == after(60)
