"""A decision from a state that changed after it was read loses its swap, and is made again."""

from datetime import timedelta

from punctual.domain.durations import RUN_LEASE
from punctual.domain.run import Reason, RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.rows import Detail, JobKey
from tests.support.simulation.hand import NOON, Hand, a_finish

MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
DAILY = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}


def statuses(hand: Hand, key: JobKey) -> list[RunStatus]:
    return [run.status for run in hand.head(key).runs]


def evaluate_due(hand: Hand) -> None:
    """Evaluate all due timers, through ports that `hand.plan` can interrupt."""
    due = [timer for timer in hand.timers() if timer.at <= hand.now]
    Evaluator(hand.steps(hand.interrupted("poller")), hand.new_id).evaluate_timers(due)


def test_poller_fires_nothing_if_job_is_paused_after_its_read() -> None:
    hand = Hand()
    key = hand.submit(**MINUTELY)
    hand.wait(60)
    hand.plan.after("job_states.load", lambda: hand.jobs.pause(*key))
    evaluate_due(hand)
    assert statuses(hand, key) == []
    assert hand.memory.queue.entries == []


def test_poller_fires_if_job_is_resumed_after_its_read() -> None:
    hand = Hand()
    key = hand.submit(**MINUTELY)
    hand.jobs.pause(*key)
    hand.wait(60)
    (timer,) = hand.timers()
    hand.plan.after("job_states.load", lambda: hand.jobs.resume(*key))
    Evaluator(hand.steps(hand.interrupted("poller")), hand.new_id).evaluate_timers([timer])
    hand.tick()
    hand.step_until(65, every=1)
    assert statuses(hand, key) == [RunStatus.QUEUED]


def test_evaluation_keeps_attempt_whose_lease_is_renewed_after_its_read() -> None:
    hand = Hand()
    key = hand.submit()
    held = hand.claim()
    claim = (key, held.run.run_id, held.run.token)
    hand.executor().renew([claim], is_first=True)
    hand.wait(RUN_LEASE.total_seconds() + 1)
    hand.plan.after("job_states.load", lambda: hand.executor().renew([claim]))
    evaluate_due(hand)
    (run,) = hand.head(key).runs
    assert (run.status, run.past_attempts) == (RunStatus.RUNNING, "")
    assert [timer for timer in hand.timers() if timer.version == run.token], "a timer is left"


def test_evaluation_of_ended_lease_marks_attempt_lost() -> None:
    hand = Hand()
    key = hand.submit()
    held = hand.claim()
    hand.executor().renew([(key, held.run.run_id, held.run.token)], is_first=True)
    hand.wait(60)
    evaluate_due(hand)
    (run,) = hand.head(key).runs
    assert (run.status, run.past_attempts) == (RunStatus.QUEUED, "L")


def test_claim_of_run_cancelled_after_its_read_starts_nothing() -> None:
    hand = Hand()
    key = hand.submit()
    message = hand.message()
    hand.plan.after("job_states.load", lambda: hand.jobs.cancel(*key))
    handed = hand.executor(ports=hand.interrupted("e1")).claim([message])
    assert (handed.claimed, list(handed.done)) == ([], [message])
    assert [run.reason for run in hand.laws.ended.values()] == [Reason.CANCELLED]


def test_run_claimed_after_another_claims_read_has_one_holder() -> None:
    hand = Hand()
    hand.submit()
    message = hand.message()
    granted: list[Assignment] = []
    hand.plan.after(
        "job_states.load", lambda: granted.extend(hand.executor("e2").claim([message]).claimed)
    )
    handed = hand.executor("e1", hand.interrupted("e1")).claim([message])
    assert (len(granted), handed.claimed) == (1, [])
    assert [message for message, _ in handed.retry_later] == [message]


def run_behind_another(hand: Hand, detail: Detail) -> JobKey:
    """A daily job whose first ordered run ended, and whose second is queued."""
    key = hand.submit(**DAILY)
    hand.jobs.run_now(*key)
    hand.jobs.run_now(*key)
    hand.executor().finish([a_finish(hand.claim(), RunStatus.SUCCESS)._replace(detail=detail)])
    assert statuses(hand, key) == [RunStatus.QUEUED]
    return key


def test_claim_a_week_later_keeps_history_row_of_run_before() -> None:
    hand = Hand()
    left = Detail(output=b"<p>", output_type="text/html", http_status=200)
    key = run_behind_another(hand, left)
    hand.now += timedelta(days=8)
    hand.memory.history.attempt_rows.clear()  # expired
    message = hand.memory.queue.entries[-1].message
    assert len(hand.executor().claim([message]).claimed) == 1
    (row,) = hand.memory.history.rows.values()
    assert row.detail == left
    assert hand.head(key).unrecorded == ()


def test_ended_runs_leave_job_state_with_next_evaluation() -> None:
    hand = Hand()
    key = hand.submit(**MINUTELY)
    for minute in range(1, 9):
        hand.now = NOON + timedelta(minutes=minute)
        evaluate_due(hand)
        assert len(hand.head(key).unrecorded) == 0
        (assignment,) = hand.executor().claim([hand.memory.queue.entries[-1].message]).claimed
        hand.executor().finish([a_finish(assignment, RunStatus.SUCCESS)])
        assert len(hand.head(key).unrecorded) == 1
    assert len(hand.memory.history.rows) == 8
