"""A clock corrected by answers that name the second in which they were made."""

from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from punctual.aws.server_time import ServerTime, StoreClock, parse_date_header
from tests.support.builders import NOON, ManualClock

SECOND = timedelta(seconds=1)


def correct_from_answer(clock: StoreClock, truth: datetime, took_seconds: float = 0.01) -> None:
    own = clock.read_uncorrected()
    clock.correct(truth.replace(microsecond=0), own - timedelta(seconds=took_seconds), own)


@pytest.mark.parametrize("offset_seconds", [-5.0, -2.5, -0.4, 0.0, 0.7, 5.0, 3_600.0])
def test_store_clock_is_right_to_one_second_after_one_answer(offset_seconds: float) -> None:
    truth, chance = ManualClock(NOON), Random(1)
    clock = StoreClock(lambda: truth() + timedelta(seconds=offset_seconds))
    for _ in range(50):
        truth.advance(timedelta(seconds=chance.random()))
        correct_from_answer(clock, truth())
        assert abs(clock() - truth()) <= 1.02 * SECOND
    assert abs(clock() - truth()) <= min(abs(offset_seconds), 0.15) * SECOND


def test_store_clock_that_is_right_never_moves() -> None:
    truth, chance = ManualClock(NOON), Random(2)
    clock = StoreClock(truth)
    for _ in range(200):
        truth.advance(timedelta(seconds=chance.random()))
        correct_from_answer(clock, truth(), took_seconds=chance.random())
        assert clock() == truth()


def test_store_clock_that_is_set_is_corrected_by_the_next_answer() -> None:
    truth, offsets = ManualClock(NOON), [0.0]
    clock = StoreClock(lambda: truth() + timedelta(seconds=offsets[0]))
    for jump in (4.0, -30.0, 0.0):
        correct_from_answer(clock, truth())
        offsets[0] = jump
        correct_from_answer(clock, truth())
        assert abs(clock() - truth()) <= 1.02 * SECOND
        truth.advance(SECOND)


def test_store_clock_ignores_slow_and_impossible_answers() -> None:
    truth = ManualClock(NOON)
    clock = StoreClock(lambda: truth() + 3 * SECOND)
    clock.correct(NOON, clock.read_uncorrected() - 20 * SECOND, clock.read_uncorrected())
    assert clock() - truth() == 3 * SECOND
    other = StoreClock(lambda: truth() + 3 * SECOND)
    other.correct(NOON, other.read_uncorrected(), other.read_uncorrected() - SECOND)
    assert other() - truth() == 3 * SECOND


def test_store_clock_reads_the_date_of_dynamodb_answers() -> None:
    truth = ManualClock(NOON)
    clock = StoreClock(lambda: truth() + 5 * SECOND)
    dates = ServerTime(clock)
    registered: dict[str, Any] = {}
    client = SimpleNamespace(
        meta=SimpleNamespace(events=SimpleNamespace(register=registered.__setitem__))
    )
    dates.attach_to(client)
    assert set(registered) == {"before-call.dynamodb", "after-call.dynamodb"}
    for date, offset_seconds in ((None, 5), ("nonsense", 5), ("Mon, 02 Mar 2026 12:00:00 GMT", 0)):
        context: dict[str, object] = {}
        registered["before-call.dynamodb"](context=context)
        headers = {} if date is None else {"Date": date}
        registered["after-call.dynamodb"](
            http_response=SimpleNamespace(headers=headers), context=context
        )
        assert abs(clock() - truth() - offset_seconds * SECOND) <= SECOND, date
    assert parse_date_header("Mon, 02 Mar 2026 12:00:00 GMT") == NOON
