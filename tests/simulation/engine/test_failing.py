"""A job that cannot be decided on: the others of its batch go on, and it is not tried for ever."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from punctual.domain.run import RunStatus
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.retries import MAX_FAILED_EVALUATIONS
from punctual.engine.ports.rows import JobKey
from tests.support.ports import a_change_applier, a_reconciler
from tests.support.simulation.hand import NOON, Hand

DUE = "2026-03-02T12:00:05Z"


def a_hand() -> tuple[Hand, list[tuple[str, dict[str, Any]]]]:
    hand, told = Hand(), []

    def log(event: str, **facts: Any) -> None:
        told.append((event, {**facts, "at": int((hand.now - NOON).total_seconds())}))

    steps = a_change_applier(hand.memory.ports, hand.clock, hand.monotonic, log)
    hand.poller._evaluator = Evaluator(steps, hand.new_id)
    return hand, told


def spoil(hand: Hand, key: JobKey) -> None:
    """The definition in force is not there: whatever is decided on it raises."""
    stored = hand.stored(key)
    hand.memory.heads.rows[key] = stored._replace(state=replace(stored.state, rules={}))


def run_until(hand: Hand, seconds: int) -> None:
    while hand.now < NOON + timedelta(seconds=seconds):
        hand.wait(5)
        hand.tick()
        hand.step()


def test_the_others_of_a_batch_go_on() -> None:
    hand, told = a_hand()
    keys = [hand.submit(schedule_type="FUTURE", schedule_time=DUE) for _ in range(3)]
    spoil(hand, keys[1])
    run_until(hand, 10)
    for key in (keys[0], keys[2]):
        assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]
    wanted = {"job_id": keys[1].job_id, "error": "KeyError", "at": 5}
    assert told == [("look_failed", wanted)]


def test_pauses_double_and_end() -> None:
    hand, told = a_hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time=DUE)
    spoil(hand, key)
    run_until(hand, 3_600)
    failed = [facts["at"] for event, facts in told if event == "look_failed"]
    assert failed == [5, 20, 50, 110, 230, 470, 770, 1_070]
    assert len(failed) == MAX_FAILED_EVALUATIONS
    assert told[-1] == ("look_set_aside", {"job_id": key.job_id, "at": 1_070})
    assert hand.timers() == []
    mark = hand.memory.buckets.watermark()
    assert mark is not None
    assert mark > NOON + timedelta(minutes=58), "its minute does not hold the others up"


def test_what_was_set_aside_is_found_by_the_reconciler_and_runs_once_it_can() -> None:
    hand, told = a_hand()
    key = hand.submit(schedule_type="FUTURE", schedule_time=DUE)
    rules = hand.head(key).rules
    spoil(hand, key)
    run_until(hand, 3_600)
    told.clear()
    stored = hand.stored(key)
    hand.memory.heads.rows[key] = stored._replace(state=replace(stored.state, rules=rules))
    steps = hand.steps()
    reconciler = a_reconciler(hand.memory.ports, steps, Evaluator(steps, hand.new_id))
    assert reconciler.step().repaired_keys == (key,)
    run_until(hand, 3_620)
    assert [run.status for run in hand.head(key).runs] == [RunStatus.QUEUED]
    assert told == []


def test_a_job_that_is_mended_in_time_has_all_its_tries_again() -> None:
    hand, told = a_hand()
    key = hand.submit(schedule_type="INTERVAL", interval_seconds=1_000)
    rules = hand.head(key).rules
    for begin in (1_000, 2_000):
        spoil(hand, key)
        run_until(hand, begin + 20)
        stored = hand.stored(key)
        hand.memory.heads.rows[key] = stored._replace(state=replace(stored.state, rules=rules))
        run_until(hand, begin + 200)
    failed = [facts["at"] for event, facts in told if event == "look_failed"]
    assert failed == [1_000, 1_015, 2_000, 2_015]
