"""Calls as steps, done by hand on a clock that only pauses and answers move."""

import json
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest

from punctual.client import calls_jobs, calls_runs
from punctual.client.errors import (
    Conflict,
    Invalid,
    NotFound,
    RateLimited,
    Unavailable,
    WaitTimeout,
)
from punctual.client.retrying import Retries
from punctual.client.run import Run
from punctual.client.steps import Core, Give, Pause, Send, Steps, Stream
from punctual.client.wire import Answer, Failure, Outcome, Request
from tests.client_ways import JOB, RUN

T = TypeVar("T")

NO_CONNECTION = Failure("no connection", sent=False)
NO_ANSWER = Failure("no answer in time", sent=True)


class Hand:
    """Does steps; each answer takes `takes` seconds, or as long as it was to be waited for."""

    def __init__(self, *outcomes: Outcome, takes: float = 0.0, **policy: Any) -> None:
        self._outcomes = iter(outcomes)
        self._takes = takes
        self.now = 100.0
        self.sent: list[Request] = []
        self.patience: list[float] = []
        self.pauses: list[float] = []
        keys = iter(f"key-{n}" for n in range(9))
        self.core = Core(
            "http://a/v1",
            Retries(**policy),
            30.0,
            lambda: self.now,
            lambda: 0.5,
            lambda: next(keys),
        )

    def do(self, steps: Steps[T]) -> T:
        outcome: Outcome | None = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as done:
                found: T = done.value
                return found
            outcome = self._step(step)

    def give(self, stream: Stream[T]) -> Iterator[T]:
        outcome: Outcome | None = None
        while True:
            try:
                step = stream.send(outcome)
            except StopIteration:
                return
            if isinstance(step, Give):
                outcome = None
                yield step.value
            else:
                outcome = self._step(step)

    def _step(self, step: Send | Pause) -> Outcome | None:
        if isinstance(step, Pause):
            self.pauses.append(step.seconds)
            self.now += step.seconds
            return None
        self.sent.append(step.request)
        self.patience.append(step.seconds)
        outcome = next(self._outcomes)
        self.now += step.seconds if outcome is NO_ANSWER else self._takes
        return outcome


def said(status: int, value: Any = None, **headers: str) -> Answer:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, named, json.dumps(value).encode())


def refused(status: int, code: str = "X", **headers: str) -> Answer:
    return said(status, {"status": status, "code": code, "detail": "No."}, **headers)


def a_run(status: str, **fields: Any) -> Answer:
    return said(200, {**RUN, "status": status, **fields})


def as_seen(status: str) -> Run:
    return Run(job_id=str(RUN["job_id"]), run_id=str(RUN["run_id"]), status=status)


def test_each_attempt_of_a_call_carries_the_same_key() -> None:
    hand = Hand(NO_ANSWER, NO_CONNECTION, refused(503), said(202, JOB))
    job = hand.do(calls_jobs.create(hand.core, name="a", schedule_type="IMMEDIATE"))
    assert job.job_id == JOB["job_id"]
    assert [dict(request.headers) for request in hand.sent] == [{"idempotency-key": "key-0"}] * 4
    assert len({request.body for request in hand.sent}) == 1
    assert hand.pauses == pytest.approx([0.05, 0.1, 0.2])


def test_calls_have_keys_of_their_own() -> None:
    hand = Hand(said(202, JOB), said(202, JOB), said(202, JOB))
    for key in (None, None, "mine"):
        hand.do(
            calls_jobs.create(hand.core, name="a", schedule_type="IMMEDIATE", idempotency_key=key)
        )
    sent = [dict(request.headers)["idempotency-key"] for request in hand.sent]
    assert sent == ["key-0", "key-1", "mine"]


def test_who_gives_up_says_what_is_open_and_under_which_key() -> None:
    hand = Hand(NO_CONNECTION, NO_ANSWER, NO_CONNECTION, attempts=3)
    with pytest.raises(Unavailable, match=r"no connection after 3 attempts.*may have been") as told:
        hand.do(calls_jobs.create(hand.core, name="a", schedule_type="IMMEDIATE"))
    assert told.value.uncertain
    assert told.value.idempotency_key == "key-0"


def test_what_never_reached_the_server_leaves_nothing_open() -> None:
    hand = Hand(NO_CONNECTION, refused(429), NO_CONNECTION, attempts=3)
    with pytest.raises(Unavailable) as told:
        hand.do(calls_jobs.create(hand.core, name="a", schedule_type="IMMEDIATE"))
    assert not told.value.uncertain
    assert "may have been" not in str(told.value)


def test_a_refusal_after_an_attempt_without_an_answer_says_that_it_may_be_its_own() -> None:
    hand = Hand(NO_ANSWER, refused(422))
    with pytest.raises(Invalid, match="may have been carried out") as told:
        hand.do(calls_jobs.create(hand.core, name="a", schedule_type="IMMEDIATE"))
    assert told.value.uncertain


def test_a_tenant_over_its_limit_hears_when_to_ask_again() -> None:
    hand = Hand(refused(429, "LIMIT_EXCEEDED", retry_after="90"))
    with pytest.raises(RateLimited, match=r"Ask again in 90 s\.") as told:
        hand.do(calls_jobs.get(hand.core, "id"))
    assert told.value.retry_after == 90.0
    assert hand.pauses == []


def test_later_than_the_policy_says_no_attempt_begins() -> None:
    hand = Hand(*[NO_ANSWER] * 9, attempts=9, seconds=60.0)
    with pytest.raises(Unavailable):
        hand.do(calls_jobs.get(hand.core, "id"))
    assert len(hand.sent) == 2
    assert hand.now - 100.0 < 60.0 + 30.0


def test_a_backfill_is_not_repeated_when_it_may_have_been_ordered() -> None:
    hand = Hand(NO_ANSWER)
    with pytest.raises(Unavailable, match="may have been carried out") as told:
        hand.do(
            calls_jobs.backfill(hand.core, "id", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
        )
    assert told.value.uncertain
    assert len(hand.sent) == 1


def test_a_backfill_is_repeated_when_it_was_not_ordered_or_is_only_asked_about() -> None:
    range_ = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    hand = Hand(NO_CONNECTION, refused(429), said(202, {"runs": 4}))
    assert hand.do(calls_jobs.backfill(hand.core, "id", *range_)).runs == 4
    hand = Hand(NO_ANSWER, said(200, {"runs": 1, "times": ["2026-01-01T00:00:00Z"]}))
    found = hand.do(calls_jobs.backfill(hand.core, "id", *range_, dry_run=True))
    assert found.runs == len(found.times) == 1
    assert found.times[0].tzinfo is not None


def test_a_run_that_an_unanswered_attempt_cancelled_is_cancelled() -> None:
    hand = Hand(NO_ANSWER, refused(409), a_run("CANCELLED"))
    assert hand.do(calls_runs.cancel(hand.core, "job", "run")).status == "CANCELLED"


def test_a_run_that_ended_before_it_was_cancelled_is_a_conflict() -> None:
    hand = Hand(refused(409))
    with pytest.raises(Conflict):
        hand.do(calls_runs.cancel(hand.core, "job", "run"))
    hand = Hand(NO_ANSWER, refused(409), a_run("SUCCESS"))
    with pytest.raises(Conflict):
        hand.do(calls_runs.cancel(hand.core, "job", "run"))


def test_waiting_looks_often_at_first_and_then_less() -> None:
    hand = Hand(*[a_run("RUNNING")] * 14, a_run("SUCCESS"))
    run = hand.do(calls_runs.wait_for(hand.core, as_seen("QUEUED")))
    assert run.status == "SUCCESS"
    assert hand.pauses[:4] == pytest.approx([0.05, 0.075, 0.1125, 0.16875])
    assert hand.pauses[-1] == 2.0
    assert sorted(hand.pauses) == hand.pauses


def test_a_run_that_has_ended_is_not_asked_about() -> None:
    hand = Hand()
    ended = as_seen("FAILED")
    assert hand.do(calls_runs.wait_for(hand.core, ended)) is ended


def test_who_waits_too_long_hears_how_it_stands() -> None:
    hand = Hand(*[a_run("WAITING")] * 99)
    with pytest.raises(WaitTimeout, match="is WAITING after 3 s") as told:
        hand.do(calls_runs.wait_for(hand.core, as_seen("QUEUED"), timeout=3))
    assert hand.now == pytest.approx(103.0)
    assert told.value.run.status == "WAITING"


def test_a_server_that_hangs_does_not_prolong_a_wait() -> None:
    hand = Hand(a_run("RUNNING"), *[NO_ANSWER] * 9)
    with pytest.raises(WaitTimeout, match="is RUNNING after 3 s"):
        hand.do(calls_runs.wait_for(hand.core, as_seen("QUEUED"), timeout=3))
    assert hand.now == pytest.approx(103.0, abs=1.1)


def test_who_waits_no_time_looks_once() -> None:
    hand = Hand(a_run("SUCCESS"))
    assert hand.do(calls_runs.wait_for(hand.core, as_seen("QUEUED"), timeout=0)).succeeded
    hand = Hand(a_run("RUNNING"))
    with pytest.raises(WaitTimeout, match="is RUNNING after 0 s"):
        hand.do(calls_runs.wait_for(hand.core, as_seen("QUEUED"), timeout=0))


def test_a_server_that_does_not_answer_is_told_while_there_is_time() -> None:
    hand = Hand(*[NO_CONNECTION] * 2, attempts=2)
    with pytest.raises(Unavailable):
        hand.do(calls_runs.wait_for(hand.core, as_seen("QUEUED"), timeout=3600))


def test_an_order_may_wait_for_its_run() -> None:
    hand = Hand(a_run("QUEUED"), a_run("RUNNING"), a_run("SUCCESS"))
    run = hand.do(calls_jobs.run(hand.core, "job", payload={"a": 1}, wait=True, timeout=10))
    assert run.succeeded
    assert hand.sent[0].body == b'{"payload":{"a":1}}'


def logged(text: str | bytes, following: int) -> Answer:
    data = text if isinstance(text, bytes) else text.encode()
    return Answer(200, {"x-next-offset": str(following)}, data)


def test_logs_are_followed_until_the_run_has_ended_and_all_is_read() -> None:
    hand = Hand(
        refused(404),  # nothing is logged yet
        a_run("QUEUED"),
        logged("a\n", 2),
        logged("", 2),
        a_run("RUNNING"),
        logged("", 2),
        a_run("SUCCESS"),
        logged("b\n", 4),  # written while we asked
        logged("", 4),
    )
    assert "".join(hand.give(calls_runs.follow_logs(hand.core, "job", "run"))) == "a\nb\n"
    offsets = [dict(request.query)["after"] for request in hand.sent if request.query]
    assert offsets == ["0", "0", "2", "2", "2", "4"]


def test_each_attempt_is_followed_from_its_beginning() -> None:
    hand = Hand(
        logged("one\n", 4),
        logged("", 4),
        a_run("RUNNING", attempt_number=1),
        logged("", 4),
        a_run("RUNNING", attempt_number=2),
        logged("two\n", 4),
        logged("", 4),
        a_run("SUCCESS", attempt_number=2),
        logged("", 4),
    )
    assert list(hand.give(calls_runs.follow_logs(hand.core, "job", "run"))) == ["one\n", "two\n"]


def test_a_letter_that_is_cut_in_two_is_one_letter() -> None:
    first, second = "é".encode()[:1], "é".encode()[1:]
    hand = Hand(
        logged(first, 1), logged(second, 2), logged(b"\xc3", 3), logged("", 3), a_run("SUCCESS"),
        logged("", 3),
    )  # fmt: skip
    assert "".join(hand.give(calls_runs.follow_logs(hand.core, "job", "run"))) == "é\ufffd"


def test_logs_of_no_run_are_not_followed() -> None:
    hand = Hand(refused(404), refused(404))
    with pytest.raises(NotFound):
        list(hand.give(calls_runs.follow_logs(hand.core, "job", "run")))


def test_logs_are_read_in_as_many_pieces_as_they_come() -> None:
    hand = Hand(logged("ab", 2), logged("c", 3), logged("", 3))
    assert hand.do(calls_runs.logs(hand.core, "job", "run")) == ("abc", 3)


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
    found = hand.do(calls_jobs.create_many(hand.core, iter(some_jobs(1_002))))
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
    hand.do(calls_jobs.create_many(hand.core, some_jobs(25, 250 * 1024)))
    assert all(len(request.body or b"") <= 5 * 1024 * 1024 for request in hand.sent)


def test_what_a_store_did_not_take_is_sent_again_as_part_of_the_same_batch() -> None:
    hand = Hand(batched(202, 503), batched(202, 503), batched(202, 202))
    found = hand.do(calls_jobs.create_many(hand.core, some_jobs(2)))
    assert found.raise_for_declined().job_ids == ("job-0", "job-1")
    assert len({(request.body, request.headers) for request in hand.sent}) == 1


def test_what_a_store_does_not_take_in_time_is_declined() -> None:
    hand = Hand(batched(202, 503), batched(202, 503), attempts=2)
    found = hand.do(calls_jobs.create_many(hand.core, some_jobs(2)))
    assert found.declined[1].problem.status == 503


def test_a_batch_that_breaks_off_says_how_to_go_on() -> None:
    hand = Hand(batched(*[202] * 500), NO_CONNECTION, attempts=1)
    with pytest.raises(Unavailable) as told:
        hand.do(calls_jobs.create_many(hand.core, some_jobs(501)))
    assert told.value.idempotency_key == "key-0"
    assert "500 jobs before were answered" in told.value.__notes__[0]


def test_no_jobs_are_no_request() -> None:
    hand = Hand()
    assert hand.do(calls_jobs.create_many(hand.core, [])).results == ()
