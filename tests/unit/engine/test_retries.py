"""When a look that failed, or left something undone, is made again."""

from datetime import timedelta

from punctual.engine.dispatch.retries import (
    FAILED_RETRY_DELAY,
    INCOMPLETE_RETRY_DELAY,
    MAX_EVALUATION_RETRY_DELAY,
    MAX_FAILED_EVALUATIONS,
    MAX_INCOMPLETE_JOBS,
    MAX_UNANSWERED_RETRY_DELAY,
    EvaluationRetries,
)
from punctual.engine.ports.rows import JobKey
from tests.support.builders import JOB, NOON

KEY = JobKey("acme", JOB)


def test_what_is_undone_waits_twice_as_long_each_time_up_to_minutes_and_has_no_end() -> None:
    failing, now, pauses = EvaluationRetries(), NOON, []
    for _ in range(40):
        at = failing.incomplete_retry_at(KEY, now)
        pauses.append(at - now)
        now = at
    assert pauses[:4] == [
        INCOMPLETE_RETRY_DELAY,
        2 * INCOMPLETE_RETRY_DELAY,
        4 * INCOMPLETE_RETRY_DELAY,
        8 * INCOMPLETE_RETRY_DELAY,
    ]
    assert set(pauses[9:]) == {MAX_EVALUATION_RETRY_DELAY}


def test_however_many_looks_fail_each_is_set_aside_in_the_end() -> None:
    failing, keys = (
        EvaluationRetries(),
        [JobKey("acme", str(number)) for number in range(MAX_INCOMPLETE_JOBS + 5)],
    )
    for day in range(MAX_FAILED_EVALUATIONS - 1):
        assert all(failing.failed_retry_at(key, NOON + timedelta(days=day)) for key in keys)
    assert not any(
        failing.failed_retry_at(key, NOON + timedelta(days=MAX_FAILED_EVALUATIONS)) for key in keys
    )
    assert not failing


def test_what_was_mended_begins_anew() -> None:
    failing = EvaluationRetries()
    failing.incomplete_retry_at(KEY, failing.incomplete_retry_at(KEY, NOON))
    failing.forget(KEY)
    assert not failing
    assert failing.incomplete_retry_at(KEY, NOON) == NOON + INCOMPLETE_RETRY_DELAY


def test_a_look_within_the_pause_does_not_count() -> None:
    failing = EvaluationRetries()
    at = failing.incomplete_retry_at(KEY, NOON)
    assert failing.incomplete_retry_at(KEY, NOON + INCOMPLETE_RETRY_DELAY / 2) == at
    assert failing.incomplete_retry_at(KEY, at) == at + 2 * INCOMPLETE_RETRY_DELAY


def test_a_look_that_came_to_a_decision_does_not_fail_in_a_row_with_those_before() -> None:
    failing, now = EvaluationRetries(), NOON
    for _ in range(MAX_FAILED_EVALUATIONS - 1):
        now = failing.failed_retry_at(KEY, now) or now
    failing.incomplete_retry_at(KEY, now)
    assert failing.failed_retry_at(KEY, now) == now + FAILED_RETRY_DELAY


def test_a_store_that_answers_again_is_asked_at_once_after_the_next_refusal() -> None:
    failing = EvaluationRetries()
    pauses = [failing.unanswered_retry_at(NOON) - NOON for _ in range(6)]
    assert pauses == [
        INCOMPLETE_RETRY_DELAY,
        2 * INCOMPLETE_RETRY_DELAY,
        4 * INCOMPLETE_RETRY_DELAY,
        8 * INCOMPLETE_RETRY_DELAY,
        MAX_UNANSWERED_RETRY_DELAY,
        MAX_UNANSWERED_RETRY_DELAY,
    ]
    failing.reset_unanswered()
    assert failing.unanswered_retry_at(NOON) == NOON + INCOMPLETE_RETRY_DELAY


def test_it_remembers_so_many_jobs_with_something_undone_and_no_more() -> None:
    failing = EvaluationRetries()
    for number in range(MAX_INCOMPLETE_JOBS + 5):
        failing.incomplete_retry_at(JobKey("acme", str(number)), NOON)
    assert len(failing) == MAX_INCOMPLETE_JOBS
    newest = JobKey("acme", str(MAX_INCOMPLETE_JOBS + 4))
    later = NOON + timedelta(seconds=1)
    assert failing.incomplete_retry_at(newest, later) == later + 2 * INCOMPLETE_RETRY_DELAY
