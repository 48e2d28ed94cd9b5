import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Runner,
    StopReason,
    StopRequest,
    StopSignal,
)
from punctual.tasks.registry import Registry


class Does:
    def __init__(self, result: Outcome | Exception) -> None:
        self.result = result
        self.seen: list[Attempt] = []

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        self.seen.append(attempt)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("nothing is logged here")


def an_attempt(**task: Any) -> Attempt:
    return Attempt(
        tenant="local",
        job_id="job-1",
        run_id="run-1",
        name="A job",
        attempt_number=2,
        scheduled_at=datetime(2026, 12, 1, 10, tzinfo=UTC),
        task={"type": "http", **task},
        payload={"n": 3},
        timeout=timedelta(seconds=5),
        token=7,
    )


def run(runner: Runner, attempt: Attempt, stop: StopSignal | None = None) -> Outcome:
    registry = Registry({"http": runner}, lambda name: f"hush/{name}")
    return registry.run(attempt, stop or StopSignal(), NoLog())


def test_the_runner_of_the_type_sees_the_filled_task() -> None:
    runner = Does(Outcome("SUCCESS", output=b"done"))

    outcome = run(runner, an_attempt(body="{{payload.n}}"))

    assert outcome == Outcome("SUCCESS", output=b"done")
    assert runner.seen[0].task == {"type": "http", "body": 3}


def test_an_unknown_type_fails_for_good_and_says_so() -> None:
    outcome = Registry({}).run(an_attempt(), StopSignal(), NoLog())
    assert outcome == Outcome.failed("This installation runs no 'http' tasks", retryable=False)
    assert Registry({"b": Does(outcome), "a": Does(outcome)}).types == ("a", "b")


def test_a_missing_key_fails_without_a_retry_before_anything_runs() -> None:
    runner = Does(Outcome("SUCCESS"))
    outcome = run(runner, an_attempt(body="{{payload.x}}"))
    assert outcome == Outcome.failed("The payload has no 'x'", retryable=False)
    assert runner.seen == []


def test_a_crash_shows_its_type_and_logs_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        outcome = run(Does(ZeroDivisionError("hush/k is secret")), an_attempt(body="{{secret:k}}"))

    assert outcome == Outcome.failed("The task failed inside Punctual: ZeroDivisionError")
    (record,) = caplog.records
    assert record.getMessage() == "task_crashed"
    fields = record.__dict__
    assert (fields["job_id"], fields["run_id"], fields["attempt"]) == ("job-1", "run-1", 2)
    assert "test_registry.py" in fields["where"]
    assert "hush" not in str(fields)


def test_what_may_pass_is_retried_and_a_bad_task_is_not() -> None:
    assert run(Does(Unavailable("no answer")), an_attempt()) == Outcome.failed("no answer")
    bad = run(Does(BadTask("never")), an_attempt())
    assert bad == Outcome.failed("never", retryable=False)


@pytest.mark.parametrize("reason", ["CANCEL", "SHUTDOWN", "LOST"])
def test_what_is_stopped_before_it_starts_never_starts(reason: StopReason) -> None:
    stop = StopSignal()
    stop.request_stop(reason)
    runner = Does(Outcome("SUCCESS"))

    outcome = run(runner, an_attempt(), stop)

    assert outcome == Outcome.stopped(reason)
    assert outcome.status == "CANCELLED"
    assert runner.seen == []


def test_no_secret_leaves_in_an_outcome() -> None:
    told = Outcome(
        "FAILED",
        "no hush/k here, nor hush%2Fk",
        output=b"<hush/k>",
        output_type="text/hush/k",
        http_headers=(("X-Echo", "a hush/k"),),
    )

    outcome = run(Does(told), an_attempt(body="{{secret:k}}"))

    assert outcome == Outcome(
        "FAILED",
        "no [secret] here, nor [secret]",
        output=b"<[secret]>",
        output_type="text/[secret]",
        http_headers=(("X-Echo", "a [secret]"),),
    )


def test_a_cut_output_does_not_end_within_a_secret() -> None:
    told = Outcome("SUCCESS", output=b"so it is hush", output_truncated=True)
    assert run(Does(told), an_attempt(body="{{secret:k}}")).output == b"so it is "


def test_a_bad_task_that_quotes_a_secret_is_redacted() -> None:
    outcome = run(Does(BadTask("hush/k is no host")), an_attempt(body="{{secret:k}}"))
    assert outcome.error == "[secret] is no host"


def test_a_stop_signal_keeps_its_first_reason_but_for_a_lost_claim() -> None:
    stop = StopSignal()
    assert (stop.reason(), stop.wait(0)) == ("", False)
    stop.request_stop("CANCEL")
    stop.request_stop("SHUTDOWN")
    assert (stop.reason(), stop.wait(0)) == ("CANCEL", True)
    stop.request_stop("LOST")
    assert stop.reason() == "LOST"
