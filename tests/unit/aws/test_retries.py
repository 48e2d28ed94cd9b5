"""Calls of AWS: their retries, the waits between them, and their errors."""

from collections.abc import Callable
from threading import Barrier
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    NoCredentialsError,
    ReadTimeoutError,
)

from punctual.aws.retries import ConditionFailed, RetryPolicy, call_aws, conditional_write
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.errors import Unavailable
from punctual.settings import InvalidSettings, Settings
from tests.support.aws.settings import a_settings

SETTINGS = a_settings(
    metrics=False, queues={"quick-high": "https://sqs/a?x=1", "long": "https://sqs/b"}
)


def error(code: str, status: int = 400, retries: int = 0, item: Any = None) -> ClientError:
    response: Any = {
        "Error": {"Code": code},
        "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": retries},
    }
    if item is not None:
        response["Item"] = item
    return ClientError(response, "UpdateItem")


def calls(*outcomes: Any) -> Callable[[], Any]:
    remaining = list(outcomes)

    def call() -> Any:
        outcome = remaining.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def retry_policy(slept: list[float], tries: int = 3) -> RetryPolicy:
    return RetryPolicy(
        slept.append, seed="s", tries=tries, first_wait_seconds=0.1, max_wait_seconds=1.0
    )


UNKNOWN_OUTCOMES = [
    ReadTimeoutError(endpoint_url="x"),
    ConnectTimeoutError(endpoint_url="x"),
    error("InternalServerError", 500),
    error("ServiceUnavailable", 503),
    error("ThrottlingException"),
]


@pytest.mark.parametrize("failure", UNKNOWN_OUTCOMES, ids=repr)
def test_write_without_an_answer_is_retried(failure: Exception) -> None:
    slept: list[float] = []
    assert (
        conditional_write("writing", calls(failure, failure, "done"), retry_policy(slept)) == "done"
    )
    assert len(slept) == 2


@pytest.mark.parametrize("failure", UNKNOWN_OUTCOMES, ids=repr)
def test_write_without_an_answer_fails_after_the_last_try(failure: Exception) -> None:
    slept: list[float] = []
    with pytest.raises(Unavailable, match="AWS did not answer while writing"):
        conditional_write("writing", calls(*[failure] * 9), retry_policy(slept))
    assert len(slept) == 2


@pytest.mark.parametrize(
    "failure", [error("ValidationException"), error("AccessDenied", 403), NoCredentialsError()]
)
def test_permanent_failure_is_not_retried(failure: Exception) -> None:
    slept: list[float] = []
    with pytest.raises(Unavailable):
        conditional_write("writing", calls(failure, "never"), retry_policy(slept))
    assert slept == []


@pytest.mark.parametrize(
    ("before", "retries", "ambiguous"),
    [([], 0, False), ([], 1, True), ([ReadTimeoutError(endpoint_url="x")], 0, True)],
)
def test_failed_condition_tells_whether_an_earlier_try_may_have_won(
    before: list[Exception], retries: int, ambiguous: bool
) -> None:
    failure = error("ConditionalCheckFailedException", retries=retries, item={"a": {"S": "b"}})
    result = conditional_write("writing", calls(*before, failure), retry_policy([]))
    assert result == ConditionFailed({"a": {"S": "b"}}, ambiguous)


@pytest.mark.parametrize(
    "failure", [*UNKNOWN_OUTCOMES, error("NoSuchBucket", 404), NoCredentialsError()]
)
def test_aws_error_becomes_unavailable_with_a_message(failure: Exception) -> None:
    with pytest.raises(Unavailable, match=r"AWS .* while reading\.") as raised:
        call_aws("reading", calls(failure))
    assert raised.value.__cause__ is not None


def test_waits_double_up_to_a_bound_with_jitter_from_a_hash() -> None:
    slept: list[float] = []
    policy = retry_policy(slept)
    for attempt in range(8):
        policy.wait(attempt, "x")
    for attempt, waited in enumerate(slept):
        max_wait = min(1.0, 0.1 * 2**attempt)
        assert max_wait / 2 <= waited <= max_wait
    same_waits: list[float] = []
    same_policy = retry_policy(same_waits)
    for attempt in range(8):
        same_policy.wait(attempt, "x")
    assert same_waits == slept
    other_waits: list[float] = []
    RetryPolicy(
        other_waits.append, seed="another", first_wait_seconds=0.1, max_wait_seconds=1.0
    ).wait(0, "x")
    assert other_waits != slept[:1]


@pytest.mark.parametrize("size", [1, 4])
def test_thread_pool_answers_in_order_and_raises_after_all_calls_end(size: int) -> None:
    pool, done = ThreadPool(size), []

    def work(number: int) -> int:
        if number == 1:
            raise Unavailable(f"{number}")
        done.append(number)
        return number * 2

    try:
        assert pool.map(lambda number: number * 2, range(8)) == [number * 2 for number in range(8)]
        with pytest.raises(Unavailable, match="1"):
            pool.map(work, range(6))
        assert sorted(done) == [0, 2, 3, 4, 5]
    finally:
        pool.close()


def test_thread_pool_runs_calls_at_the_same_time() -> None:
    pool, barrier = ThreadPool(3), Barrier(3, timeout=10)
    try:
        assert sorted(pool.map(lambda _: barrier.wait(), range(3))) == [0, 1, 2]
    finally:
        pool.close()


def test_settings_round_trip_through_the_environment() -> None:
    assert Settings.from_env({**SETTINGS.to_env(), "PATH": "x"}) == SETTINGS


def test_settings_error_names_all_missing_variables() -> None:
    env = SETTINGS.to_env()
    del env["PUNCTUAL_BUCKET"], env["PUNCTUAL_EVENT_BUS"]
    with pytest.raises(InvalidSettings, match="not set: PUNCTUAL_BUCKET, PUNCTUAL_EVENT_BUS"):
        Settings.from_env(env)


def test_settings_error_names_a_queue_without_an_address() -> None:
    with pytest.raises(InvalidSettings, match="'quick' is not name=url"):
        Settings.from_env({**SETTINGS.to_env(), "PUNCTUAL_QUEUES": "quick"})
