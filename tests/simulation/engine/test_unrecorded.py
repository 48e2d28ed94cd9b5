"""A run that cannot be recorded now stays where it is, and keeps nobody else's from starting."""

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
from tests.support.simulation.hand import NOON, Hand, a_finish


class Deaf:
    """A port's method that answers nobody, and counts who asked."""

    def __init__(self, hand: Hand, port: str, method: str, error: Unavailable) -> None:
        self.asked = 0
        self._error = error
        self._at = getattr(hand.memory.ports, port), method
        self._real = getattr(*self._at)
        setattr(*self._at, self)

    def __call__(self, *_: Any) -> Any:
        self.asked += 1
        raise self._error

    def hear(self) -> None:
        setattr(*self._at, self._real)


def minutely(hand: Hand) -> JobKey:
    return hand.submit(schedule_type="CRON", cron_expression="* * * * *")


def look(hand: Hand, minute: int) -> list[bool]:
    """At all that is due, together; whether what each asks for is done."""
    hand.now = NOON + timedelta(minutes=minute)
    due = [timer for timer in hand.timers() if timer.at <= hand.now]
    looked = Evaluator(hand.steps(), hand.new_id).evaluate_timers(due)
    return [result.effects_done for _, result in looked]


def ended_without_a_row(hand: Hand, detail: Detail | None = None) -> list[JobKey]:
    """Two whose executor died between their ends and their rows."""
    keys = [minutely(hand), minutely(hand)]
    look(hand, 1)
    messages = [entry.message for entry in hand.memory.queue.entries]
    for assignment in hand.executor().claim(messages).claimed:
        hand.executor().finish(
            [a_finish(assignment, RunStatus.SUCCESS)._replace(detail=detail or Detail())]
        )
    hand.memory.history.rows.clear()
    return keys


@pytest.mark.parametrize(
    ("port", "method", "error", "asked"),
    [
        ("history", "find_result", LaterVersion("It was rolled back."), 2),
        ("history", "find_result", Unavailable("The table is throttled."), 1),
        ("history", "put_runs", Unavailable("The table is throttled."), 1),
    ],
)
def test_what_cannot_be_recorded_keeps_no_message_back(
    port: str, method: str, error: Unavailable, asked: int
) -> None:
    hand = Hand()
    keys = [*ended_without_a_row(hand), minutely(hand)]
    before = len(hand.memory.queue.entries)
    deaf = Deaf(hand, port, method, error)
    assert sorted(look(hand, 2)) == [False, False, True]
    assert deaf.asked == asked, "who does not answer one is not asked for each"
    sent = [entry.message for entry in hand.memory.queue.entries[before:]]
    assert sorted(message.job_id for message in sent) == sorted(job_id for _, job_id in keys)
    assert hand.memory.history.rows == {}
    deaf.hear()
    assert look(hand, 2) == [True, True]
    assert sorted(key.job_id for key in hand.memory.history.rows) == sorted(
        key.job_id for key in keys[:2]
    )


def test_what_a_run_carries_itself_is_recorded_whatever_stands_beside_it() -> None:
    hand = Hand()
    answered = Detail(output=b"an-id", output_type=TEXT_CONTENT_TYPE)
    ended_without_a_row(hand, answered)
    deaf = Deaf(hand, "history", "find_result", Unavailable("The table is throttled."))
    assert look(hand, 2) == [True, True]
    assert deaf.asked == 0
    assert [row.detail for row in hand.memory.history.rows.values()] == [answered, answered]


def test_while_nothing_can_be_recorded_the_pauses_between_looks_double() -> None:
    """Each puts once more what guards a run that stands queued, in a row of its own."""
    hand = Hand()
    ended_without_a_row(hand)
    deaf = Deaf(hand, "history", "put_runs", Unavailable("The table is throttled."))
    hand.now = NOON + timedelta(minutes=2)
    looks: list[int] = []
    for second in range(1_800):
        before = deaf.asked
        if second % 60 == 0:
            hand.tick()
        hand.step()
        looks += [second] * (deaf.asked - before)
        hand.wait(1)
    assert looks[:6] == [0, 1, 3, 7, 15, 31]
    assert len(looks) < 60, "of a job that runs each minute"
    deaf.hear()
    hand.step_until(120 + 1_800 + 300)
    assert len(hand.memory.history.rows) >= 2
    assert not hand.poller._retries


@pytest.mark.parametrize("answers", [False, True])
def test_the_timer_of_a_run_that_is_not_recorded_stays_when_its_early_message_is_sent(
    answers: bool,
) -> None:
    hand = Hand()
    keys = ended_without_a_row(hand)
    deaf = Deaf(hand, "history", "put_runs", Unavailable("The table is throttled."))
    if answers:
        deaf.hear()
    early = HeldMessages(hand.memory.ports.run_queue, hand.clock, CORE_THROUGHPUT)
    ports = replace(hand.memory.ports, run_queue=early)
    hand.now = NOON + timedelta(minutes=2, seconds=-0.8)
    ahead = timedelta(seconds=1)
    due = [timer for timer in hand.timers() if timer.at <= hand.now + ahead]
    assert early.hold(Evaluator(hand.steps(ports), hand.new_id).evaluate_timers(due, ahead)) == []
    hand.now = NOON + timedelta(minutes=2)
    released = early.release(hand.now, 100)
    assert early.sent_count == len(keys), "in time, whatever is to be recorded"
    assert [result.effects_done for _, result in released.evaluations] == [answers] * len(keys)
    assert set(released.consumed_timers) == (set(due) if answers else set())
