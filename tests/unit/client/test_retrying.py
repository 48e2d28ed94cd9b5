"""Decisions of the client on retries: which requests are sent again, and when."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.client.calls.retrying import (
    AttemptResult,
    Retries,
    classify_outcome,
    may_have_acted,
    retry_after,
    retry_delay,
)
from punctual.client.wire import Answer, Failure, Outcome, Repeat, Request

POLICY = Retries(attempts=4, seconds=60.0, first_delay=0.1, longest_delay=5.0)
NO_CONNECTION = Failure("no connection", sent=False)
NO_ANSWER = Failure("no answer in time", sent=True)
UNTRUSTED = Failure("certificate", sent=False, final=True)
PROBLEM_OF_THE_API = b'{"code": "INTERNAL"}'

READS = Request("GET", "/jobs", repeat=Repeat.READS)
SAFE = Request("POST", "/jobs", repeat=Repeat.SAFE)
NEVER = Request("POST", "/tokens", repeat=Repeat.NEVER)


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(status, {name.replace("_", "-"): text for name, text in headers.items()}, body)


RETRIED_ALWAYS = [NO_CONNECTION, answer(408), answer(429)]
RETRIED_IF_SAFE = [NO_ANSWER, answer(502), answer(503), answer(504), answer(500)]
RETRIED_NEVER = [
    UNTRUSTED,
    answer(500, PROBLEM_OF_THE_API),
    *(answer(status) for status in (301, 400, 401, 403, 404, 405, 409, 412, 413, 415, 421, 422)),
]


def delay_for(request: Request, outcome: Outcome, **overrides: Any) -> float | None:
    values: dict[str, Any] = {
        "attempt": 1,
        "elapsed_seconds": 0.0,
        "random_fraction": 0.5,
        **overrides,
    }
    return retry_delay(POLICY, request, outcome, **values)


@pytest.mark.parametrize("outcome", RETRIED_ALWAYS, ids=str)
@pytest.mark.parametrize("request_", [READS, SAFE, NEVER], ids=lambda request: request.repeat.value)
def test_request_that_did_not_act_is_retried(request_: Request, outcome: Outcome) -> None:
    assert delay_for(request_, outcome) is not None
    assert not may_have_acted(request_, outcome)


@pytest.mark.parametrize("outcome", RETRIED_IF_SAFE, ids=str)
def test_request_that_may_have_acted_is_retried_if_safe(
    outcome: Outcome,
) -> None:
    assert delay_for(READS, outcome) is not None
    assert delay_for(SAFE, outcome) is not None
    assert delay_for(NEVER, outcome) is None
    assert not may_have_acted(READS, outcome)
    assert may_have_acted(SAFE, outcome)
    assert may_have_acted(NEVER, outcome)


@pytest.mark.parametrize("outcome", RETRIED_NEVER, ids=str)
@pytest.mark.parametrize("request_", [READS, SAFE, NEVER], ids=lambda request: request.repeat.value)
def test_permanent_refusal_is_not_retried(request_: Request, outcome: Outcome) -> None:
    assert classify_outcome(request_, outcome) is AttemptResult.REFUSED
    assert delay_for(request_, outcome) is None


def test_expected_status_is_an_answer() -> None:
    health = READS._replace(expected=frozenset({200, 503}))
    assert classify_outcome(health, answer(503)) is AttemptResult.ANSWERED
    assert classify_outcome(READS, answer(204)) is AttemptResult.ANSWERED


def test_retry_delay_doubles_up_to_a_bound() -> None:
    policy = POLICY._replace(attempts=100)
    delays = [retry_delay(policy, READS, NO_ANSWER, attempt, 0.0, 1.0) for attempt in range(1, 9)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_retry_delay_is_drawn_from_zero_to_the_bound() -> None:
    assert delay_for(READS, NO_ANSWER, random_fraction=0.0) == 0.0
    assert delay_for(READS, NO_ANSWER, random_fraction=0.25) == pytest.approx(0.025)


def test_retry_after_of_the_server_is_the_least_delay() -> None:
    assert delay_for(SAFE, answer(429, retry_after="7")) == pytest.approx(7.05)
    assert delay_for(SAFE, answer(503, retry_after="7"), random_fraction=0.0) == 7.0


def test_retry_after_beyond_the_time_limit_ends_the_retries() -> None:
    assert delay_for(SAFE, answer(429, retry_after="61")) is None
    assert delay_for(SAFE, answer(429, retry_after="30"), elapsed_seconds=29.0) is not None
    assert delay_for(SAFE, answer(429, retry_after="30"), elapsed_seconds=31.0) is None


def test_last_attempt_is_not_retried() -> None:
    assert delay_for(READS, NO_ANSWER, attempt=3) is not None
    assert delay_for(READS, NO_ANSWER, attempt=4) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "3"}, 3.0),
        ({"retry_after": " 3 "}, 3.0),
        ({"retry_after": "-3"}, None),
        ({"retry_after": "³"}, None),
        ({"retry_after": "soon"}, None),
        ({}, None),
        ({"retry_after": "Wed, 18 Nov 2026 20:00:30 GMT"}, None),
        (
            {
                "retry_after": "Wed, 18 Nov 2026 20:00:30 GMT",
                "date": "Wed, 18 Nov 2026 20:00:00 GMT",
            },
            30.0,
        ),
        (
            {
                "retry_after": "Wed, 18 Nov 2026 19:00:00 GMT",
                "date": "Wed, 18 Nov 2026 20:00:00 GMT",
            },
            0.0,
        ),
    ],
)
def test_retry_after_is_seconds_or_a_date_by_the_servers_clock(
    headers: dict[str, str], seconds: float | None
) -> None:
    header_names = {name.replace("_", "-"): text for name, text in headers.items()}
    assert retry_after(Answer(429, header_names)) == seconds


@given(
    attempt=st.integers(1, 10),
    elapsed_seconds=st.floats(0, 100),
    random_fraction=st.floats(0, 1, exclude_max=True),
    retry_after_seconds=st.integers(0, 100),
)
def test_no_attempt_begins_after_the_time_limit(
    attempt: int, elapsed_seconds: float, random_fraction: float, retry_after_seconds: int
) -> None:
    outcome = answer(503, retry_after=str(retry_after_seconds))
    delay = delay_for(
        READS,
        outcome,
        attempt=attempt,
        elapsed_seconds=elapsed_seconds,
        random_fraction=random_fraction,
    )
    if delay is None:
        max_delay = POLICY.longest_delay + retry_after_seconds
        assert attempt >= POLICY.attempts or elapsed_seconds + max_delay >= POLICY.seconds
    else:
        assert attempt < POLICY.attempts
        assert retry_after_seconds <= delay
        assert elapsed_seconds + delay < POLICY.seconds
