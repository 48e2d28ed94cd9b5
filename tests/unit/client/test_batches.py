"""Many jobs at once: in how many requests, and what becomes of each."""

import json

import pytest

from punctual.client.endpoints import jobs
from punctual.client.errors import (
    Invalid,
    Unavailable,
)
from punctual.client.wire import Answer
from tests.support.client_hand import NO_CONNECTION, Hand, said


def batched(*statuses: int) -> Answer:
    results = [
        {"status": 202, "job_id": f"job-{place}", "location": "/x"}
        if status == 202
        else {"status": status, "problem": {"status": status, "code": "X", "detail": "No."}}
        for place, status in enumerate(statuses)
    ]
    return said(207, {"results": results})


def some_jobs(count: int, size: int = 0) -> list[dict[str, object]]:
    return [
        {"name": f"{n}", "schedule_type": "IMMEDIATE", "payload": "x" * size} for n in range(count)
    ]


def test_many_jobs_are_sent_in_as_many_requests_as_they_take() -> None:
    hand = Hand(batched(*[202] * 500), batched(*[202] * 500), batched(202, 422))
    found = hand.run_steps(jobs.create_many(hand.settings, iter(some_jobs(1_002))))
    assert [dict(r.headers)["idempotency-key"] for r in hand.sent] == [
        "key-0",
        "key-0.1",
        "key-0.2",
    ]
    assert [len(json.loads(r.body or b"")["jobs"]) for r in hand.sent] == [500, 500, 2]
    assert len(found.results) == 1_002
    assert found.job_ids[-1] is None
    assert list(found.declined) == [1_001]
    assert found.idempotency_key == "key-0"
    with pytest.raises(Invalid) as told:
        found.raise_for_declined()
    assert told.value.__notes__ == ["job 1001 of 1002 in the batch"]


def test_long_jobs_are_sent_in_requests_that_the_server_takes() -> None:
    hand = Hand(batched(*[202] * 20), batched(*[202] * 5))
    hand.run_steps(jobs.create_many(hand.settings, some_jobs(25, 250 * 1024)))
    assert all(len(request.body or b"") <= 5 * 1024 * 1024 for request in hand.sent)


def test_what_a_store_did_not_take_is_sent_again_as_part_of_the_same_batch() -> None:
    hand = Hand(batched(202, 503), batched(202, 503), batched(202, 202))
    found = hand.run_steps(jobs.create_many(hand.settings, some_jobs(2)))
    assert found.raise_for_declined().job_ids == ("job-0", "job-1")
    assert len({(request.body, request.headers) for request in hand.sent}) == 1


def test_what_a_store_does_not_take_in_time_is_declined() -> None:
    hand = Hand(batched(202, 503), batched(202, 503), attempts=2)
    found = hand.run_steps(jobs.create_many(hand.settings, some_jobs(2)))
    assert found.declined[1].problem.status == 503


def test_a_batch_that_breaks_off_says_how_to_go_on() -> None:
    hand = Hand(batched(*[202] * 500), NO_CONNECTION, attempts=1)
    with pytest.raises(Unavailable) as told:
        hand.run_steps(jobs.create_many(hand.settings, some_jobs(501)))
    assert told.value.idempotency_key == "key-0"
    assert "500 jobs before were answered" in told.value.__notes__[0]


def test_no_jobs_are_no_request() -> None:
    hand = Hand()
    assert hand.run_steps(jobs.create_many(hand.settings, [])).results == ()
