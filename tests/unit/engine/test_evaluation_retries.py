"""Retries of evaluations that failed or were incomplete."""

from datetime import timedelta

from punctual.engine.dispatch.evaluation_retries import (
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


def test_incomplete_evaluation_backs_off_without_an_end() -> None:
    retries, now, pauses = EvaluationRetries(), NOON, []
    for _ in range(40):
        at = retries.incomplete_retry_at(KEY, now)
        pauses.append(at - now)
        now = at
    assert pauses[:4] == [
        INCOMPLETE_RETRY_DELAY,
        2 * INCOMPLETE_RETRY_DELAY,
        4 * INCOMPLETE_RETRY_DELAY,
        8 * INCOMPLETE_RETRY_DELAY,
    ]
    assert set(pauses[9:]) == {MAX_EVALUATION_RETRY_DELAY}


def test_failed_evaluation_is_parked_at_the_limit() -> None:
    retries, keys = (
        EvaluationRetries(),
        [JobKey("acme", str(number)) for number in range(MAX_INCOMPLETE_JOBS + 5)],
    )
    for day in range(MAX_FAILED_EVALUATIONS - 1):
        assert all(retries.failed_retry_at(key, NOON + timedelta(days=day)) for key in keys)
    assert not any(
        retries.failed_retry_at(key, NOON + timedelta(days=MAX_FAILED_EVALUATIONS)) for key in keys
    )
    assert not retries


def test_forgotten_job_starts_with_the_first_delay() -> None:
    retries = EvaluationRetries()
    retries.incomplete_retry_at(KEY, retries.incomplete_retry_at(KEY, NOON))
    retries.forget(KEY)
    assert not retries
    assert retries.incomplete_retry_at(KEY, NOON) == NOON + INCOMPLETE_RETRY_DELAY


def test_evaluation_within_the_delay_does_not_count() -> None:
    retries = EvaluationRetries()
    at = retries.incomplete_retry_at(KEY, NOON)
    assert retries.incomplete_retry_at(KEY, NOON + INCOMPLETE_RETRY_DELAY / 2) == at
    assert retries.incomplete_retry_at(KEY, at) == at + 2 * INCOMPLETE_RETRY_DELAY


def test_incomplete_evaluation_resets_the_count_of_failures() -> None:
    retries, now = EvaluationRetries(), NOON
    for _ in range(MAX_FAILED_EVALUATIONS - 1):
        now = retries.failed_retry_at(KEY, now) or now
    retries.incomplete_retry_at(KEY, now)
    assert retries.failed_retry_at(KEY, now) == now + FAILED_RETRY_DELAY


def test_store_delay_restarts_after_an_answer() -> None:
    retries = EvaluationRetries()
    pauses = [retries.unanswered_retry_at(NOON) - NOON for _ in range(6)]
    assert pauses == [
        INCOMPLETE_RETRY_DELAY,
        2 * INCOMPLETE_RETRY_DELAY,
        4 * INCOMPLETE_RETRY_DELAY,
        8 * INCOMPLETE_RETRY_DELAY,
        MAX_UNANSWERED_RETRY_DELAY,
        MAX_UNANSWERED_RETRY_DELAY,
    ]
    retries.reset_unanswered()
    assert retries.unanswered_retry_at(NOON) == NOON + INCOMPLETE_RETRY_DELAY


def test_retries_keep_a_bounded_number_of_incomplete_jobs() -> None:
    retries = EvaluationRetries()
    for number in range(MAX_INCOMPLETE_JOBS + 5):
        retries.incomplete_retry_at(JobKey("acme", str(number)), NOON)
    assert len(retries) == MAX_INCOMPLETE_JOBS
    newest = JobKey("acme", str(MAX_INCOMPLETE_JOBS + 4))
    later = NOON + timedelta(seconds=1)
    assert retries.incomplete_retry_at(newest, later) == later + 2 * INCOMPLETE_RETRY_DELAY
