"""Calls as steps: the requests that are sent again, and the error at their end."""

import pytest

from punctual.client.endpoints import jobs, runs
from punctual.client.errors import (
    Conflict,
    Invalid,
    RateLimited,
    Unavailable,
)
from tests.support.client_driver import NO_ANSWER, NO_CONNECTION, Hand, a_run, answer_with, refused
from tests.support.client_kinds import JOB


def test_attempts_of_one_call_carry_the_same_key() -> None:
    hand = Hand(NO_ANSWER, NO_CONNECTION, refused(503), answer_with(202, JOB))
    job = hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert job.job_id == JOB["job_id"]
    assert [dict(request.headers) for request in hand.sent] == [{"idempotency-key": "key-0"}] * 4
    assert len({request.body for request in hand.sent}) == 1
    assert hand.pauses == pytest.approx([0.05, 0.1, 0.2])


def test_each_call_has_its_own_key() -> None:
    hand = Hand(answer_with(202, JOB), answer_with(202, JOB), answer_with(202, JOB))
    for key in (None, None, "mine"):
        hand.run_steps(
            jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE", idempotency_key=key)
        )
    sent = [dict(request.headers)["idempotency-key"] for request in hand.sent]
    assert sent == ["key-0", "key-1", "mine"]


def test_last_failed_attempt_reports_uncertainty_and_the_key() -> None:
    hand = Hand(NO_CONNECTION, NO_ANSWER, NO_CONNECTION, attempts=3)
    with pytest.raises(
        Unavailable, match=r"no connection after 3 attempts.*may have taken effect"
    ) as raised:
        hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert raised.value.uncertain
    assert raised.value.idempotency_key == "key-0"


def test_request_that_never_reached_the_server_is_not_uncertain() -> None:
    hand = Hand(NO_CONNECTION, refused(429), NO_CONNECTION, attempts=3)
    with pytest.raises(Unavailable) as raised:
        hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert not raised.value.uncertain
    assert "may have been" not in str(raised.value)


def test_refusal_after_an_unanswered_attempt_is_uncertain() -> None:
    hand = Hand(NO_ANSWER, refused(422))
    with pytest.raises(Invalid, match="may have taken effect") as raised:
        hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert raised.value.uncertain


def test_tenant_over_its_limit_gets_the_retry_time() -> None:
    hand = Hand(refused(429, "LIMIT_EXCEEDED", retry_after="90"))
    with pytest.raises(RateLimited, match=r"Retry in 90 s\.") as raised:
        hand.run_steps(jobs.get(hand.settings, "id"))
    assert raised.value.retry_after == 90.0
    assert hand.pauses == []


def test_call_sends_no_attempt_after_the_time_limit() -> None:
    hand = Hand(*[NO_ANSWER] * 9, attempts=9, seconds=60.0)
    with pytest.raises(Unavailable):
        hand.run_steps(jobs.get(hand.settings, "id"))
    assert len(hand.sent) == 2
    assert hand.now - 100.0 < 60.0 + 30.0


def test_unanswered_backfill_is_not_repeated() -> None:
    hand = Hand(NO_ANSWER)
    with pytest.raises(Unavailable, match="may have taken effect") as raised:
        hand.run_steps(
            jobs.backfill(hand.settings, "id", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
        )
    assert raised.value.uncertain
    assert len(hand.sent) == 1


def test_backfill_that_did_not_act_or_is_a_dry_run_is_repeated() -> None:
    range_ = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    hand = Hand(NO_CONNECTION, refused(429), answer_with(202, {"runs": 4}))
    assert hand.run_steps(jobs.backfill(hand.settings, "id", *range_)).runs == 4
    hand = Hand(NO_ANSWER, answer_with(200, {"runs": 1, "times": ["2026-01-01T00:00:00Z"]}))
    backfill = hand.run_steps(jobs.backfill(hand.settings, "id", *range_, dry_run=True))
    assert backfill.runs == len(backfill.times) == 1
    assert backfill.times[0].tzinfo is not None


def test_run_cancelled_by_an_unanswered_attempt_is_cancelled() -> None:
    hand = Hand(NO_ANSWER, refused(409), a_run("CANCELLED"))
    assert hand.run_steps(runs.cancel(hand.settings, "job", "run")).status == "CANCELLED"


def test_cancel_of_an_ended_run_is_a_conflict() -> None:
    hand = Hand(refused(409))
    with pytest.raises(Conflict):
        hand.run_steps(runs.cancel(hand.settings, "job", "run"))
    hand = Hand(NO_ANSWER, refused(409), a_run("SUCCESS"))
    with pytest.raises(Conflict):
        hand.run_steps(runs.cancel(hand.settings, "job", "run"))
