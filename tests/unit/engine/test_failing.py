"""When a look that failed, or left something undone, is made again."""

from datetime import timedelta

from punctual.engine.dispatch.retries import (
    KNOWN,
    PAUSE,
    PAUSE_MOST,
    SHORT,
    TRIES,
    UNANSWERED_MOST,
    EvaluationRetries,
)
from punctual.engine.ports.rows import Key
from tests.support.builders import JOB, NOON

KEY = Key("acme", JOB)


def test_what_is_undone_waits_twice_as_long_each_time_up_to_minutes_and_has_no_end() -> None:
    failing, now, pauses = EvaluationRetries(), NOON, []
    for _ in range(40):
        at = failing.undone_at(KEY, now)
        pauses.append(at - now)
        now = at
    assert pauses[:4] == [SHORT, 2 * SHORT, 4 * SHORT, 8 * SHORT]
    assert set(pauses[9:]) == {PAUSE_MOST}


def test_however_many_looks_fail_each_is_set_aside_in_the_end() -> None:
    failing, keys = EvaluationRetries(), [Key("acme", str(number)) for number in range(KNOWN + 5)]
    for day in range(TRIES - 1):
        assert all(failing.again_at(key, NOON + timedelta(days=day)) for key in keys)
    assert not any(failing.again_at(key, NOON + timedelta(days=TRIES)) for key in keys)
    assert not failing


def test_what_was_mended_begins_anew() -> None:
    failing = EvaluationRetries()
    failing.undone_at(KEY, failing.undone_at(KEY, NOON))
    failing.mended(KEY)
    assert not failing
    assert failing.undone_at(KEY, NOON) == NOON + SHORT


def test_a_look_within_the_pause_does_not_count() -> None:
    failing = EvaluationRetries()
    at = failing.undone_at(KEY, NOON)
    assert failing.undone_at(KEY, NOON + SHORT / 2) == at
    assert failing.undone_at(KEY, at) == at + 2 * SHORT


def test_a_look_that_came_to_a_decision_does_not_fail_in_a_row_with_those_before() -> None:
    failing, now = EvaluationRetries(), NOON
    for _ in range(TRIES - 1):
        now = failing.again_at(KEY, now) or now
    failing.undone_at(KEY, now)
    assert failing.again_at(KEY, now) == now + PAUSE


def test_a_store_that_answers_again_is_asked_at_once_after_the_next_refusal() -> None:
    failing = EvaluationRetries()
    pauses = [failing.unanswered_at(NOON) - NOON for _ in range(6)]
    assert pauses == [SHORT, 2 * SHORT, 4 * SHORT, 8 * SHORT, UNANSWERED_MOST, UNANSWERED_MOST]
    failing.answered()
    assert failing.unanswered_at(NOON) == NOON + SHORT


def test_it_remembers_so_many_jobs_with_something_undone_and_no_more() -> None:
    failing = EvaluationRetries()
    for number in range(KNOWN + 5):
        failing.undone_at(Key("acme", str(number)), NOON)
    assert len(failing) == KNOWN
    newest = Key("acme", str(KNOWN + 4))
    later = NOON + timedelta(seconds=1)
    assert failing.undone_at(newest, later) == later + 2 * SHORT
