"""Calls as steps: what is sent again, and what is said when that ends."""

import pytest

from punctual.client.endpoints import jobs, runs
from punctual.client.errors import (
    Conflict,
    Invalid,
    RateLimited,
    Unavailable,
)
from tests.support.client_hand import NO_ANSWER, NO_CONNECTION, Hand, a_run, refused, said
from tests.support.client_ways import JOB


def test_each_attempt_of_a_call_carries_the_same_key() -> None:
    hand = Hand(NO_ANSWER, NO_CONNECTION, refused(503), said(202, JOB))
    job = hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert job.job_id == JOB["job_id"]
    assert [dict(request.headers) for request in hand.sent] == [{"idempotency-key": "key-0"}] * 4
    assert len({request.body for request in hand.sent}) == 1
    assert hand.pauses == pytest.approx([0.05, 0.1, 0.2])


def test_calls_have_keys_of_their_own() -> None:
    hand = Hand(said(202, JOB), said(202, JOB), said(202, JOB))
    for key in (None, None, "mine"):
        hand.run_steps(
            jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE", idempotency_key=key)
        )
    sent = [dict(request.headers)["idempotency-key"] for request in hand.sent]
    assert sent == ["key-0", "key-1", "mine"]


def test_who_gives_up_says_what_is_open_and_under_which_key() -> None:
    hand = Hand(NO_CONNECTION, NO_ANSWER, NO_CONNECTION, attempts=3)
    with pytest.raises(Unavailable, match=r"no connection after 3 attempts.*may have been") as told:
        hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert told.value.uncertain
    assert told.value.idempotency_key == "key-0"


def test_what_never_reached_the_server_leaves_nothing_open() -> None:
    hand = Hand(NO_CONNECTION, refused(429), NO_CONNECTION, attempts=3)
    with pytest.raises(Unavailable) as told:
        hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert not told.value.uncertain
    assert "may have been" not in str(told.value)


def test_a_refusal_after_an_attempt_without_an_answer_says_that_it_may_be_its_own() -> None:
    hand = Hand(NO_ANSWER, refused(422))
    with pytest.raises(Invalid, match="may have been carried out") as told:
        hand.run_steps(jobs.create(hand.settings, name="a", schedule_type="IMMEDIATE"))
    assert told.value.uncertain


def test_a_tenant_over_its_limit_hears_when_to_ask_again() -> None:
    hand = Hand(refused(429, "LIMIT_EXCEEDED", retry_after="90"))
    with pytest.raises(RateLimited, match=r"Ask again in 90 s\.") as told:
        hand.run_steps(jobs.get(hand.settings, "id"))
    assert told.value.retry_after == 90.0
    assert hand.pauses == []


def test_later_than_the_policy_says_no_attempt_begins() -> None:
    hand = Hand(*[NO_ANSWER] * 9, attempts=9, seconds=60.0)
    with pytest.raises(Unavailable):
        hand.run_steps(jobs.get(hand.settings, "id"))
    assert len(hand.sent) == 2
    assert hand.now - 100.0 < 60.0 + 30.0


def test_a_backfill_is_not_repeated_when_it_may_have_been_ordered() -> None:
    hand = Hand(NO_ANSWER)
    with pytest.raises(Unavailable, match="may have been carried out") as told:
        hand.run_steps(
            jobs.backfill(hand.settings, "id", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
        )
    assert told.value.uncertain
    assert len(hand.sent) == 1


def test_a_backfill_is_repeated_when_it_was_not_ordered_or_is_only_asked_about() -> None:
    range_ = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    hand = Hand(NO_CONNECTION, refused(429), said(202, {"runs": 4}))
    assert hand.run_steps(jobs.backfill(hand.settings, "id", *range_)).runs == 4
    hand = Hand(NO_ANSWER, said(200, {"runs": 1, "times": ["2026-01-01T00:00:00Z"]}))
    found = hand.run_steps(jobs.backfill(hand.settings, "id", *range_, dry_run=True))
    assert found.runs == len(found.times) == 1
    assert found.times[0].tzinfo is not None


def test_a_run_that_an_unanswered_attempt_cancelled_is_cancelled() -> None:
    hand = Hand(NO_ANSWER, refused(409), a_run("CANCELLED"))
    assert hand.run_steps(runs.cancel(hand.settings, "job", "run")).status == "CANCELLED"


def test_a_run_that_ended_before_it_was_cancelled_is_a_conflict() -> None:
    hand = Hand(refused(409))
    with pytest.raises(Conflict):
        hand.run_steps(runs.cancel(hand.settings, "job", "run"))
    hand = Hand(NO_ANSWER, refused(409), a_run("SUCCESS"))
    with pytest.raises(Conflict):
        hand.run_steps(runs.cancel(hand.settings, "job", "run"))
