"""Calls as steps: the requests that are sent again, and the error at their end."""

import pytest

from punctual.client.endpoints import jobs, runs
from punctual.client.errors import (
    Conflict,
    Invalid,
    RateLimited,
    Unavailable,
)
from tests.support.client.driver import (
    NO_ANSWER,
    NO_CONNECTION,
    StepDriver,
    a_run,
    answer_with,
    refused,
)
from tests.support.client.kinds import JOB

JOB_ID = str(JOB["job_id"])


def test_attempts_of_one_call_carry_the_same_key() -> None:
    driver = StepDriver(NO_ANSWER, NO_CONNECTION, refused(503), answer_with(202, JOB))
    job = driver.run_steps(jobs.create(driver.settings, name="a", schedule_type="IMMEDIATE"))
    assert job.job_id == JOB["job_id"]
    assert [dict(request.headers) for request in driver.sent] == [{"idempotency-key": "key-0"}] * 4
    assert len({request.body for request in driver.sent}) == 1
    assert driver.pauses == pytest.approx([0.05, 0.1, 0.2])


def test_each_call_has_its_own_key() -> None:
    driver = StepDriver(answer_with(202, JOB), answer_with(202, JOB), answer_with(202, JOB))
    for key in (None, None, "mine"):
        driver.run_steps(
            jobs.create(driver.settings, name="a", schedule_type="IMMEDIATE", idempotency_key=key)
        )
    sent = [dict(request.headers)["idempotency-key"] for request in driver.sent]
    assert sent == ["key-0", "key-1", "mine"]


def test_last_failed_attempt_reports_uncertainty_and_the_key() -> None:
    driver = StepDriver(NO_CONNECTION, NO_ANSWER, NO_CONNECTION, attempts=3)
    with pytest.raises(
        Unavailable, match=r"no connection after 3 attempts.*may have taken effect"
    ) as raised:
        driver.run_steps(jobs.create(driver.settings, name="a", schedule_type="IMMEDIATE"))
    assert raised.value.uncertain
    assert raised.value.idempotency_key == "key-0"


def test_request_that_never_reached_the_server_is_not_uncertain() -> None:
    driver = StepDriver(NO_CONNECTION, refused(429), NO_CONNECTION, attempts=3)
    with pytest.raises(Unavailable) as raised:
        driver.run_steps(jobs.create(driver.settings, name="a", schedule_type="IMMEDIATE"))
    assert not raised.value.uncertain
    assert "may have been" not in str(raised.value)


def test_refusal_after_an_unanswered_attempt_is_uncertain() -> None:
    driver = StepDriver(NO_ANSWER, refused(422))
    with pytest.raises(Invalid, match="may have taken effect") as raised:
        driver.run_steps(jobs.create(driver.settings, name="a", schedule_type="IMMEDIATE"))
    assert raised.value.uncertain


def test_tenant_over_its_limit_gets_the_retry_time() -> None:
    driver = StepDriver(refused(429, "LIMIT_EXCEEDED", retry_after="90"))
    with pytest.raises(RateLimited, match=r"Retry in 90 s\.") as raised:
        driver.run_steps(jobs.get(driver.settings, JOB_ID))
    assert raised.value.retry_after == 90.0
    assert driver.pauses == []


def test_call_sends_no_attempt_after_the_time_limit() -> None:
    driver = StepDriver(*[NO_ANSWER] * 9, attempts=9, seconds=60.0)
    with pytest.raises(Unavailable):
        driver.run_steps(jobs.get(driver.settings, JOB_ID))
    assert len(driver.sent) == 2
    assert driver.now - 100.0 < 60.0 + 30.0


def test_unanswered_backfill_is_not_repeated() -> None:
    driver = StepDriver(NO_ANSWER)
    with pytest.raises(Unavailable, match="may have taken effect") as raised:
        driver.run_steps(
            jobs.backfill(driver.settings, JOB_ID, "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
        )
    assert raised.value.uncertain
    assert len(driver.sent) == 1


def test_backfill_that_did_not_act_or_is_a_dry_run_is_repeated() -> None:
    range_ = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    driver = StepDriver(NO_CONNECTION, refused(429), answer_with(202, {"runs": 4}))
    assert driver.run_steps(jobs.backfill(driver.settings, JOB_ID, *range_)).runs == 4
    driver = StepDriver(NO_ANSWER, answer_with(200, {"runs": 1, "times": ["2026-01-01T00:00:00Z"]}))
    backfill = driver.run_steps(jobs.backfill(driver.settings, JOB_ID, *range_, dry_run=True))
    assert backfill.runs == len(backfill.times) == 1
    assert backfill.times[0].tzinfo is not None


def test_run_cancelled_by_an_unanswered_attempt_is_cancelled() -> None:
    driver = StepDriver(NO_ANSWER, refused(409), a_run("CANCELLED"))
    assert driver.run_steps(runs.cancel(driver.settings, JOB_ID, "run")).status == "CANCELLED"


def test_cancel_of_an_ended_run_is_a_conflict() -> None:
    driver = StepDriver(refused(409))
    with pytest.raises(Conflict):
        driver.run_steps(runs.cancel(driver.settings, JOB_ID, "run"))
    driver = StepDriver(NO_ANSWER, refused(409), a_run("SUCCESS"))
    with pytest.raises(Conflict):
        driver.run_steps(runs.cancel(driver.settings, JOB_ID, "run"))
