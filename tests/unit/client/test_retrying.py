"""What is asked again, when, and what is not: decisions about values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.client.retrying import (
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
OURS = b'{"code": "INTERNAL"}'

READS = Request("GET", "/jobs", repeat=Repeat.READS)
SAFE = Request("POST", "/jobs", repeat=Repeat.SAFE)
NEVER = Request("POST", "/tokens", repeat=Repeat.NEVER)


def answer(status: int, body: bytes = b"", **headers: str) -> Answer:
    return Answer(status, {n.replace("_", "-"): v for n, v in headers.items()}, body)


ALWAYS = [NO_CONNECTION, answer(408), answer(429)]
ONLY_WHERE_SAFE = [NO_ANSWER, answer(502), answer(503), answer(504), answer(500)]
IN_NO_CASE = [
    UNTRUSTED,
    answer(500, OURS),
    *(answer(status) for status in (301, 400, 401, 403, 404, 405, 409, 412, 413, 415, 421, 422)),
]


def decided(request: Request, outcome: Outcome, **other: Any) -> float | None:
    values: dict[str, Any] = {"attempt": 1, "elapsed_seconds": 0.0, "random_fraction": 0.5, **other}
    return retry_delay(POLICY, request, outcome, **values)


@pytest.mark.parametrize("outcome", ALWAYS, ids=str)
@pytest.mark.parametrize("request_", [READS, SAFE, NEVER], ids=lambda r: r.repeat.value)
def test_what_was_not_carried_out_is_asked_again(request_: Request, outcome: Outcome) -> None:
    assert decided(request_, outcome) is not None
    assert not may_have_acted(request_, outcome)


@pytest.mark.parametrize("outcome", ONLY_WHERE_SAFE, ids=str)
def test_what_may_have_been_carried_out_is_asked_again_where_that_is_safe(
    outcome: Outcome,
) -> None:
    assert decided(READS, outcome) is not None
    assert decided(SAFE, outcome) is not None
    assert decided(NEVER, outcome) is None
    assert not may_have_acted(READS, outcome)
    assert may_have_acted(SAFE, outcome)
    assert may_have_acted(NEVER, outcome)


@pytest.mark.parametrize("outcome", IN_NO_CASE, ids=str)
@pytest.mark.parametrize("request_", [READS, SAFE, NEVER], ids=lambda r: r.repeat.value)
def test_what_will_not_change_is_not_asked_again(request_: Request, outcome: Outcome) -> None:
    assert classify_outcome(request_, outcome) is AttemptResult.REFUSED
    assert decided(request_, outcome) is None


def test_what_a_call_expects_is_its_answer() -> None:
    health = READS._replace(expected=frozenset({200, 503}))
    assert classify_outcome(health, answer(503)) is AttemptResult.ANSWERED
    assert classify_outcome(READS, answer(204)) is AttemptResult.ANSWERED


def test_waiting_doubles_and_has_a_bound() -> None:
    long = POLICY._replace(attempts=100)
    most = [retry_delay(long, READS, NO_ANSWER, n, 0.0, 1.0) for n in range(1, 9)]
    assert most == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_waiting_is_drawn_from_nothing_to_the_bound() -> None:
    assert decided(READS, NO_ANSWER, random_fraction=0.0) == 0.0
    assert decided(READS, NO_ANSWER, random_fraction=0.25) == pytest.approx(0.025)


def test_the_server_says_how_long_to_wait_and_chance_comes_on_top() -> None:
    assert decided(SAFE, answer(429, retry_after="7")) == pytest.approx(7.05)
    assert decided(SAFE, answer(503, retry_after="7"), random_fraction=0.0) == 7.0


def test_who_is_to_wait_longer_than_there_is_time_hears_so_at_once() -> None:
    assert decided(SAFE, answer(429, retry_after="61")) is None
    assert decided(SAFE, answer(429, retry_after="30"), elapsed_seconds=29.0) is not None
    assert decided(SAFE, answer(429, retry_after="30"), elapsed_seconds=31.0) is None


def test_attempts_are_counted() -> None:
    assert decided(READS, NO_ANSWER, attempt=3) is not None
    assert decided(READS, NO_ANSWER, attempt=4) is None


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
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    assert retry_after(Answer(429, named)) == seconds


@given(
    attempt=st.integers(1, 10),
    elapsed_seconds=st.floats(0, 100),
    random_fraction=st.floats(0, 1, exclude_max=True),
    wanted=st.integers(0, 100),
)
def test_no_attempt_begins_after_the_time_there_is(
    attempt: int, elapsed_seconds: float, random_fraction: float, wanted: int
) -> None:
    outcome = answer(503, retry_after=str(wanted))
    delay = decided(
        READS,
        outcome,
        attempt=attempt,
        elapsed_seconds=elapsed_seconds,
        random_fraction=random_fraction,
    )
    if delay is None:
        longest = POLICY.longest_delay + wanted
        assert attempt >= POLICY.attempts or elapsed_seconds + longest >= POLICY.seconds
    else:
        assert attempt < POLICY.attempts
        assert wanted <= delay
        assert elapsed_seconds + delay < POLICY.seconds
