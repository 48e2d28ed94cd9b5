"""A run stays in its state if its history row cannot be written, and delays no other run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.errors import LaterVersion, Unavailable
from punctual.domain.run import RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.on_demand.held_messages import HeldMessages
from punctual.engine.dispatch.on_demand.wakeup_times import CORE_THROUGHPUT
from punctual.engine.ports.blobs import TEXT_CONTENT_TYPE
from punctual.engine.ports.rows import Detail, JobKey
from tests.support.simulation.manual_engine import NOON, ManualEngine, a_finish


class UnavailableMethod:
    """A method of a port that always fails, and counts its calls."""

    def __init__(self, engine: ManualEngine, port: str, method: str, error: Unavailable) -> None:
        self.calls = 0
        self._error = error
        self._at = getattr(engine.memory.ports, port), method
        self._real = getattr(*self._at)
        setattr(*self._at, self)

    def __call__(self, *_: Any) -> Any:
        self.calls += 1
        raise self._error

    def end(self) -> None:
        setattr(*self._at, self._real)


def minutely(engine: ManualEngine) -> JobKey:
    return engine.submit(schedule_type="CRON", cron_expression="* * * * *")


def evaluate_due(engine: ManualEngine, minute: int) -> list[bool]:
    """Evaluate all due timers together, and return which evaluations did all effects."""
    engine.now = NOON + timedelta(minutes=minute)
    due = [timer for timer in engine.timers() if timer.at <= engine.now]
    evaluations = Evaluator(engine.applier(), engine.new_id).evaluate_timers(due)
    return [result.effects_done for _, result in evaluations]


def ended_without_a_row(engine: ManualEngine, detail: Detail | None = None) -> list[JobKey]:
    """Return two jobs after a crash of the executor between the ends of runs and their rows."""
    keys = [minutely(engine), minutely(engine)]
    evaluate_due(engine, 1)
    messages = [entry.message for entry in engine.memory.run_queue.entries]
    for assignment in engine.executor().claim(messages).claimed:
        engine.executor().finish(
            [a_finish(assignment, RunStatus.SUCCESS)._replace(detail=detail or Detail())]
        )
    engine.memory.history.rows.clear()
    return keys


@pytest.mark.parametrize(
    ("port", "method", "error", "calls"),
    [
        ("history", "find_result", LaterVersion("It was rolled back."), 2),
        ("history", "find_result", Unavailable("The table is throttled."), 1),
        ("history", "put_runs", Unavailable("The table is throttled."), 1),
    ],
)
def test_run_that_cannot_be_recorded_delays_no_message(
    port: str, method: str, error: Unavailable, calls: int
) -> None:
    engine = ManualEngine()
    keys = [*ended_without_a_row(engine), minutely(engine)]
    before = len(engine.memory.run_queue.entries)
    outage = UnavailableMethod(engine, port, method, error)
    assert sorted(evaluate_due(engine, 2)) == [False, False, True]
    assert outage.calls == calls, "after a failure the port is not called for each run"
    sent = [entry.message for entry in engine.memory.run_queue.entries[before:]]
    assert sorted(message.job_id for message in sent) == sorted(job_id for _, job_id in keys)
    assert engine.memory.history.rows == {}
    outage.end()
    assert evaluate_due(engine, 2) == [True, True]
    assert sorted(key.job_id for key in engine.memory.history.rows) == sorted(
        key.job_id for key in keys[:2]
    )


def test_inline_output_is_recorded_without_reading_results() -> None:
    engine = ManualEngine()
    answered = Detail(output=b"an-id", output_type=TEXT_CONTENT_TYPE)
    ended_without_a_row(engine, answered)
    outage = UnavailableMethod(
        engine, "history", "find_result", Unavailable("The table is throttled.")
    )
    assert evaluate_due(engine, 2) == [True, True]
    assert outage.calls == 0
    assert [row.detail for row in engine.memory.history.rows.values()] == [answered, answered]


def test_pauses_between_evaluations_double_while_rows_cannot_be_written() -> None:
    """Each evaluation puts the timer of the queued run again, in its own row."""
    engine = ManualEngine()
    ended_without_a_row(engine)
    outage = UnavailableMethod(
        engine, "history", "put_runs", Unavailable("The table is throttled.")
    )
    engine.now = NOON + timedelta(minutes=2)
    evaluated_at: list[int] = []
    for second in range(1_800):
        before = outage.calls
        if second % 60 == 0:
            engine.tick()
        engine.step()
        evaluated_at += [second] * (outage.calls - before)
        engine.wait(1)
    assert evaluated_at[:6] == [0, 1, 3, 7, 15, 31]
    assert len(evaluated_at) < 60, "of a job that runs each minute"
    outage.end()
    engine.step_until(120 + 1_800 + 300)
    assert len(engine.memory.history.rows) >= 2
    assert not engine.poller._retries


@pytest.mark.parametrize("is_answering", [False, True])
def test_timer_of_an_unrecorded_run_stays_when_its_message_is_sent_early(
    is_answering: bool,
) -> None:
    engine = ManualEngine()
    keys = ended_without_a_row(engine)
    outage = UnavailableMethod(
        engine, "history", "put_runs", Unavailable("The table is throttled.")
    )
    if is_answering:
        outage.end()
    early = HeldMessages(engine.memory.ports.run_queue, engine.clock, CORE_THROUGHPUT)
    ports = replace(engine.memory.ports, run_queue=early)
    engine.now = NOON + timedelta(minutes=2, seconds=-0.8)
    ahead = timedelta(seconds=1)
    due = [timer for timer in engine.timers() if timer.at <= engine.now + ahead]
    assert (
        early.hold_back(Evaluator(engine.applier(ports), engine.new_id).evaluate_timers(due, ahead))
        == []
    )
    engine.now = NOON + timedelta(minutes=2)
    released = early.release(engine.now, 100)
    assert early.sent_count == len(keys), "in time, also with unrecorded runs"
    assert [result.effects_done for _, result in released.evaluations] == [is_answering] * len(keys)
    assert set(released.consumed_timers) == (set(due) if is_answering else set())
