"""Calls: what is tried again, how long it waits, and what becomes of errors."""

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

SETTINGS = Settings(
    stage="dev",
    knobs="/punctual/dev/",
    metrics=False,
    jobs_table="jobs",
    timers_table="timers",
    runs_table="runs",
    control_table="control",
    audit_table="audit",
    bucket="outputs",
    wake_queue="https://sqs/wake",
    event_bus="bus",
    queues={"quick-high": "https://sqs/a?x=1", "long": "https://sqs/b"},
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
    left = list(outcomes)

    def call() -> Any:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


def patience(slept: list[float], tries: int = 3) -> RetryPolicy:
    return RetryPolicy(
        slept.append, seed="s", tries=tries, first_wait_seconds=0.1, max_wait_seconds=1.0
    )


UNSURE = [
    ReadTimeoutError(endpoint_url="x"),
    ConnectTimeoutError(endpoint_url="x"),
    error("InternalServerError", 500),
    error("ServiceUnavailable", 503),
    error("ThrottlingException"),
]


@pytest.mark.parametrize("failure", UNSURE, ids=repr)
def test_a_write_without_an_answer_is_tried_again(failure: Exception) -> None:
    slept: list[float] = []
    assert conditional_write("writing", calls(failure, failure, "done"), patience(slept)) == "done"
    assert len(slept) == 2


@pytest.mark.parametrize("failure", UNSURE, ids=repr)
def test_tries_come_to_an_end(failure: Exception) -> None:
    slept: list[float] = []
    with pytest.raises(Unavailable, match="AWS did not answer while writing"):
        conditional_write("writing", calls(*[failure] * 9), patience(slept))
    assert len(slept) == 2


@pytest.mark.parametrize(
    "failure", [error("ValidationException"), error("AccessDenied", 403), NoCredentialsError()]
)
def test_what_another_try_cannot_mend_is_not_tried_again(failure: Exception) -> None:
    slept: list[float] = []
    with pytest.raises(Unavailable):
        conditional_write("writing", calls(failure, "never"), patience(slept))
    assert slept == []


@pytest.mark.parametrize(
    ("before", "retries", "ambiguous"),
    [([], 0, False), ([], 1, True), ([ReadTimeoutError(endpoint_url="x")], 0, True)],
)
def test_a_failed_condition_is_a_value_that_says_if_an_earlier_try_may_have_won(
    before: list[Exception], retries: int, ambiguous: bool
) -> None:
    failure = error("ConditionalCheckFailedException", retries=retries, item={"a": {"S": "b"}})
    found = conditional_write("writing", calls(*before, failure), patience([]))
    assert found == ConditionFailed({"a": {"S": "b"}}, ambiguous)


@pytest.mark.parametrize("failure", [*UNSURE, error("NoSuchBucket", 404), NoCredentialsError()])
def test_errors_of_aws_leave_as_unavailable_with_a_sentence(failure: Exception) -> None:
    with pytest.raises(Unavailable, match=r"AWS .* while reading\.") as raised:
        call_aws("reading", calls(failure))
    assert raised.value.__cause__ is not None


def test_waits_double_up_to_a_bound_with_a_jitter_that_is_a_hash() -> None:
    slept: list[float] = []
    one = patience(slept)
    for attempt in range(8):
        one.wait(attempt, "x")
    for attempt, waited in enumerate(slept):
        longest = min(1.0, 0.1 * 2**attempt)
        assert longest / 2 <= waited <= longest
    again: list[float] = []
    two = patience(again)
    for attempt in range(8):
        two.wait(attempt, "x")
    assert again == slept
    other: list[float] = []
    RetryPolicy(other.append, seed="another", first_wait_seconds=0.1, max_wait_seconds=1.0).wait(
        0, "x"
    )
    assert other != slept[:1]


@pytest.mark.parametrize("size", [1, 4])
def test_a_crew_answers_in_order_and_fails_only_when_all_are_done(size: int) -> None:
    crew, done = ThreadPool(size), []

    def work(n: int) -> int:
        if n == 1:
            raise Unavailable(f"{n}")
        done.append(n)
        return n * 2

    try:
        assert crew.map(lambda n: n * 2, range(8)) == [n * 2 for n in range(8)]
        with pytest.raises(Unavailable, match="1"):
            crew.map(work, range(6))
        assert sorted(done) == [0, 2, 3, 4, 5]
    finally:
        crew.close()


def test_a_crew_works_at_the_same_time() -> None:
    crew, all_there = ThreadPool(3), Barrier(3, timeout=10)
    try:
        assert sorted(crew.map(lambda _: all_there.wait(), range(3))) == [0, 1, 2]
    finally:
        crew.close()


def test_settings_come_back_from_the_environment() -> None:
    assert Settings.from_env({**SETTINGS.to_env(), "PATH": "x"}) == SETTINGS


def test_settings_say_all_that_is_missing() -> None:
    env = SETTINGS.to_env()
    del env["PUNCTUAL_BUCKET"], env["PUNCTUAL_EVENT_BUS"]
    with pytest.raises(InvalidSettings, match="not set: PUNCTUAL_BUCKET, PUNCTUAL_EVENT_BUS"):
        Settings.from_env(env)


def test_a_queue_without_an_address_is_named() -> None:
    with pytest.raises(InvalidSettings, match="'quick' is not name=address"):
        Settings.from_env({**SETTINGS.to_env(), "PUNCTUAL_QUEUES": "quick"})
