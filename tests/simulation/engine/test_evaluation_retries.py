"""A job that cannot be evaluated: its batch goes on, and its retries are limited."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from punctual.domain.run import RunStatus
from punctual.engine.dispatch.evaluation_retries import MAX_FAILED_EVALUATIONS
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.ports.rows import JobKey
from tests.support.ports import a_change_applier, a_reconciler
from tests.support.simulation.manual_engine import NOON, ManualEngine

DUE = "2026-03-02T12:00:05Z"


def an_engine() -> tuple[ManualEngine, list[tuple[str, dict[str, Any]]]]:
    engine, events = ManualEngine(), []

    def log(event: str, **facts: Any) -> None:
        events.append((event, {**facts, "at": int((engine.now - NOON).total_seconds())}))

    applier = a_change_applier(engine.memory.ports, engine.clock, engine.monotonic, log)
    engine.poller._evaluator = Evaluator(applier, engine.new_id)
    return engine, events


def break_job(engine: ManualEngine, key: JobKey) -> None:
    """Remove the definition in force, so that each evaluation of the job raises."""
    stored = engine.stored(key)
    engine.memory.job_states.rows[key] = stored._replace(state=replace(stored.state, rules={}))


def run_until(engine: ManualEngine, seconds: int) -> None:
    while engine.now < NOON + timedelta(seconds=seconds):
        engine.wait(5)
        engine.tick()
        engine.step()


def test_other_jobs_of_a_batch_are_evaluated_after_a_failure() -> None:
    engine, events = an_engine()
    keys = [engine.submit(schedule_type="FUTURE", schedule_time=DUE) for _ in range(3)]
    break_job(engine, keys[1])
    run_until(engine, 10)
    for key in (keys[0], keys[2]):
        assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]
    expected = {"job_id": keys[1].job_id, "error": "KeyError", "at": 5}
    assert events == [("look_failed", expected)]


def test_pauses_between_failed_evaluations_double_until_parked() -> None:
    engine, events = an_engine()
    key = engine.submit(schedule_type="FUTURE", schedule_time=DUE)
    break_job(engine, key)
    run_until(engine, 3_600)
    failed = [facts["at"] for event, facts in events if event == "look_failed"]
    assert failed == [5, 20, 50, 110, 230, 470, 770, 1_070]
    assert len(failed) == MAX_FAILED_EVALUATIONS
    assert events[-1] == ("look_set_aside", {"job_id": key.job_id, "at": 1_070})
    assert engine.timers() == []
    mark = engine.memory.partitions.watermark()
    assert mark is not None
    assert mark > NOON + timedelta(minutes=58), "its bucket does not hold the watermark"


def test_parked_job_is_found_by_the_reconciler_and_runs_after_repair() -> None:
    engine, events = an_engine()
    key = engine.submit(schedule_type="FUTURE", schedule_time=DUE)
    rules = engine.state(key).rules
    break_job(engine, key)
    run_until(engine, 3_600)
    events.clear()
    stored = engine.stored(key)
    engine.memory.job_states.rows[key] = stored._replace(state=replace(stored.state, rules=rules))
    applier = engine.applier()
    reconciler = a_reconciler(
        engine.memory.ports, applier, Evaluator(applier, engine.new_id), engine.new_id
    )
    assert reconciler.step().repaired_keys == (key,)
    run_until(engine, 3_620)
    assert [run.status for run in engine.state(key).runs] == [RunStatus.QUEUED]
    assert events == []


def test_job_repaired_in_time_has_all_retries_again() -> None:
    engine, events = an_engine()
    key = engine.submit(schedule_type="INTERVAL", interval_seconds=1_000)
    rules = engine.state(key).rules
    for begin in (1_000, 2_000):
        break_job(engine, key)
        run_until(engine, begin + 20)
        stored = engine.stored(key)
        engine.memory.job_states.rows[key] = stored._replace(
            state=replace(stored.state, rules=rules)
        )
        run_until(engine, begin + 200)
    failed = [facts["at"] for event, facts in events if event == "look_failed"]
    assert failed == [1_000, 1_015, 2_000, 2_015]
