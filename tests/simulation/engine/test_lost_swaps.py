"""A decision from a state that changed after it was read loses its swap, and is made again."""

from datetime import timedelta

from punctual.domain.leases import RUN_LEASE
from punctual.domain.run import Reason, RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.execution.executor import Assignment
from punctual.engine.ports.rows import Detail, JobKey
from tests.support.simulation.manual_engine import NOON, ManualEngine, a_finish

MINUTELY = {"schedule_type": "CRON", "cron_expression": "* * * * *"}
DAILY = {"schedule_type": "CRON", "cron_expression": "0 0 * * *"}


def statuses(engine: ManualEngine, key: JobKey) -> list[RunStatus]:
    return [run.status for run in engine.state(key).runs]


def evaluate_due(engine: ManualEngine) -> None:
    """Evaluate all due timers, through ports that `engine.plan` can interrupt."""
    due = [timer for timer in engine.timers() if timer.at <= engine.now]
    Evaluator(engine.applier(engine.interrupted("poller")), engine.new_id).evaluate_timers(due)


def test_poller_fires_nothing_if_job_is_paused_after_its_read() -> None:
    engine = ManualEngine()
    key = engine.submit(**MINUTELY)
    engine.wait(60)
    engine.plan.after("job_states.load", lambda: engine.jobs.pause(*key))
    evaluate_due(engine)
    assert statuses(engine, key) == []
    assert engine.memory.run_queue.entries == []


def test_poller_fires_if_job_is_resumed_after_its_read() -> None:
    engine = ManualEngine()
    key = engine.submit(**MINUTELY)
    engine.jobs.pause(*key)
    engine.wait(60)
    (timer,) = engine.timers()
    engine.plan.after("job_states.load", lambda: engine.jobs.resume(*key))
    Evaluator(engine.applier(engine.interrupted("poller")), engine.new_id).evaluate_timers([timer])
    engine.tick()
    engine.step_until(65, every=1)
    assert statuses(engine, key) == [RunStatus.QUEUED]


def test_evaluation_keeps_attempt_with_lease_renewed_after_its_read() -> None:
    engine = ManualEngine()
    key = engine.submit()
    assignment = engine.claim()
    claim = (key, assignment.run.run_id, assignment.run.token)
    engine.executor().renew([claim], is_first=True)
    engine.wait(RUN_LEASE.total_seconds() + 1)
    engine.plan.after("job_states.load", lambda: engine.executor().renew([claim]))
    evaluate_due(engine)
    (run,) = engine.state(key).runs
    assert (run.status, run.past_attempts) == (RunStatus.RUNNING, "")
    assert [timer for timer in engine.timers() if timer.version == run.token], "a timer is left"


def test_evaluation_of_ended_lease_marks_attempt_lost() -> None:
    engine = ManualEngine()
    key = engine.submit()
    assignment = engine.claim()
    engine.executor().renew([(key, assignment.run.run_id, assignment.run.token)], is_first=True)
    engine.wait(60)
    evaluate_due(engine)
    (run,) = engine.state(key).runs
    assert (run.status, run.past_attempts) == (RunStatus.QUEUED, "L")


def test_claim_of_run_cancelled_after_its_read_starts_nothing() -> None:
    engine = ManualEngine()
    key = engine.submit()
    message = engine.message()
    engine.plan.after("job_states.load", lambda: engine.jobs.cancel(*key))
    claim_result = engine.executor(ports=engine.interrupted("e1")).claim([message])
    assert (claim_result.claimed, list(claim_result.done)) == ([], [message])
    assert [run.reason for run in engine.invariants.ended.values()] == [Reason.CANCELLED]


def test_run_claimed_after_another_claims_read_has_one_holder() -> None:
    engine = ManualEngine()
    engine.submit()
    message = engine.message()
    assignments: list[Assignment] = []
    engine.plan.after(
        "job_states.load",
        lambda: assignments.extend(engine.executor("e2").claim([message]).claimed),
    )
    claim_result = engine.executor("e1", engine.interrupted("e1")).claim([message])
    assert (len(assignments), claim_result.claimed) == (1, [])
    assert [message for message, _ in claim_result.retry_later] == [message]


def run_behind_another(engine: ManualEngine, detail: Detail) -> JobKey:
    """Submit a daily job with two requested runs: one has ended, one is queued."""
    key = engine.submit(**DAILY)
    engine.jobs.run_now(*key)
    engine.jobs.run_now(*key)
    engine.executor().finish([a_finish(engine.claim(), RunStatus.SUCCESS)._replace(detail=detail)])
    assert statuses(engine, key) == [RunStatus.QUEUED]
    return key


def test_claim_a_week_later_keeps_history_row_of_run_before() -> None:
    engine = ManualEngine()
    detail = Detail(output=b"<p>", output_type="text/html", http_status=200)
    key = run_behind_another(engine, detail)
    engine.now += timedelta(days=8)
    engine.memory.history.attempt_rows.clear()  # expired
    message = engine.memory.run_queue.entries[-1].message
    assert len(engine.executor().claim([message]).claimed) == 1
    (row,) = engine.memory.history.rows.values()
    assert row.detail == detail
    assert engine.state(key).unrecorded == ()


def test_ended_runs_leave_job_state_with_next_evaluation() -> None:
    engine = ManualEngine()
    key = engine.submit(**MINUTELY)
    for minute in range(1, 9):
        engine.now = NOON + timedelta(minutes=minute)
        evaluate_due(engine)
        assert len(engine.state(key).unrecorded) == 0
        (assignment,) = (
            engine.executor().claim([engine.memory.run_queue.entries[-1].message]).claimed
        )
        engine.executor().finish([a_finish(assignment, RunStatus.SUCCESS)])
        assert len(engine.state(key).unrecorded) == 1
    assert len(engine.memory.history.rows) == 8
