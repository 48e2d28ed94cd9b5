"""Batches of jobs: the number of requests and the result of each job."""

import json

import pytest

from punctual.client.endpoints import jobs
from punctual.client.errors import (
    Invalid,
    Unavailable,
)
from punctual.client.wire import Answer
from tests.support.client.driver import NO_CONNECTION, StepDriver, answer_with


def batch_answer(*statuses: int) -> Answer:
    results = [
        {"status": 202, "job_id": f"job-{index}", "location": "/x"}
        if status == 202
        else {"status": status, "problem": {"status": status, "code": "X", "detail": "No."}}
        for index, status in enumerate(statuses)
    ]
    return answer_with(207, {"results": results})


def some_jobs(count: int, size: int = 0) -> list[dict[str, object]]:
    return [
        {"name": f"{number}", "schedule_type": "IMMEDIATE", "payload": "x" * size}
        for number in range(count)
    ]


def test_batch_is_split_into_requests_of_500_jobs() -> None:
    driver = StepDriver(
        batch_answer(*[202] * 500), batch_answer(*[202] * 500), batch_answer(202, 422)
    )
    batch = driver.run_steps(jobs.create_many(driver.settings, iter(some_jobs(1_002))))
    assert [dict(request.headers)["idempotency-key"] for request in driver.sent] == [
        "key-0",
        "key-0.1",
        "key-0.2",
    ]
    assert [len(json.loads(request.body or b"")["jobs"]) for request in driver.sent] == [
        500,
        500,
        2,
    ]
    assert len(batch.results) == 1_002
    assert batch.job_ids[-1] is None
    assert list(batch.declined) == [1_001]
    assert batch.idempotency_key == "key-0"
    with pytest.raises(Invalid) as raised:
        batch.raise_for_declined()
    assert raised.value.__notes__ == ["job 1001 of 1002 in the batch"]


def test_batch_of_large_jobs_is_split_by_size() -> None:
    driver = StepDriver(batch_answer(*[202] * 20), batch_answer(*[202] * 5))
    driver.run_steps(jobs.create_many(driver.settings, some_jobs(25, 250 * 1024)))
    assert all(len(request.body or b"") <= 5 * 1024 * 1024 for request in driver.sent)


def test_batch_with_an_unavailable_job_is_sent_again_whole() -> None:
    driver = StepDriver(batch_answer(202, 503), batch_answer(202, 503), batch_answer(202, 202))
    batch = driver.run_steps(jobs.create_many(driver.settings, some_jobs(2)))
    assert batch.raise_for_declined().job_ids == ("job-0", "job-1")
    assert len({(request.body, request.headers) for request in driver.sent}) == 1


def test_batch_declines_a_job_after_the_last_attempt() -> None:
    driver = StepDriver(batch_answer(202, 503), batch_answer(202, 503), attempts=2)
    batch = driver.run_steps(jobs.create_many(driver.settings, some_jobs(2)))
    assert batch.declined[1].problem.status == 503


def test_interrupted_batch_error_has_the_key_and_the_progress() -> None:
    driver = StepDriver(batch_answer(*[202] * 500), NO_CONNECTION, attempts=1)
    with pytest.raises(Unavailable) as raised:
        driver.run_steps(jobs.create_many(driver.settings, some_jobs(501)))
    assert raised.value.idempotency_key == "key-0"
    assert "500 earlier jobs were answered" in raised.value.__notes__[0]


def test_empty_batch_sends_no_request() -> None:
    driver = StepDriver()
    assert driver.run_steps(jobs.create_many(driver.settings, [])).results == ()
