import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.errors import Unavailable
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import (
    Attempt,
    BadTask,
    Outcome,
    Recorder,
    Runner,
    StopReason,
    StopRequest,
    StopSignal,
    Throttled,
)
from punctual.tasks.placeholders import no_secrets


class ScriptedRunner:
    def __init__(self, result: Outcome | Exception) -> None:
        self.result = result
        self.attempts: list[Attempt] = []

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        self.attempts.append(attempt)
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
    attempt_runner = AttemptRunner({"http": runner}, lambda _tenant, name: f"hush/{name}")
    return attempt_runner.run(attempt, stop or StopSignal(), NoLog())


def test_runner_gets_the_expanded_task() -> None:
    runner = ScriptedRunner(Outcome("SUCCESS", output=b"done"))

    outcome = run(runner, an_attempt(body="{{payload.n}}"))

    assert outcome == Outcome("SUCCESS", output=b"done")
    assert runner.attempts[0].task == {"type": "http", "body": 3}


def test_unknown_task_type_fails_without_a_retry() -> None:
    outcome = AttemptRunner({}).run(an_attempt(), StopSignal(), NoLog())
    assert outcome == Outcome.failed("This installation runs no 'http' tasks", retryable=False)
    assert AttemptRunner({"b": ScriptedRunner(outcome), "a": ScriptedRunner(outcome)}).types == (
        "a",
        "b",
    )


def test_missing_payload_key_fails_without_a_retry_before_the_task_runs() -> None:
    runner = ScriptedRunner(Outcome("SUCCESS"))
    outcome = run(runner, an_attempt(body="{{payload.x}}"))
    assert outcome == Outcome.failed("The payload has no 'x'", retryable=False)
    assert runner.attempts == []


def test_crash_shows_its_type_and_logs_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        outcome = run(
            ScriptedRunner(ZeroDivisionError("hush/k is secret")), an_attempt(body="{{secret:k}}")
        )

    assert outcome == Outcome.failed("The task failed inside Punctual: ZeroDivisionError")
    (record,) = caplog.records
    assert record.getMessage() == "task_crashed"
    fields = record.__dict__
    assert (fields["job_id"], fields["run_id"], fields["attempt"]) == ("job-1", "run-1", 2)
    assert "test_attempt_runner.py" in fields["where"]
    assert "hush" not in str(fields)


def test_unavailable_service_is_retried_and_a_bad_task_is_not() -> None:
    assert run(ScriptedRunner(Unavailable("no answer")), an_attempt()) == Outcome.failed(
        "no answer"
    )
    outcome = run(ScriptedRunner(BadTask("never")), an_attempt())
    assert outcome == Outcome.failed("never", retryable=False)


@pytest.mark.parametrize("reason", ["CANCEL", "SHUTDOWN", "LOST"])
def test_task_stopped_before_its_start_does_not_start(reason: StopReason) -> None:
    stop = StopSignal()
    stop.request_stop(reason)
    runner = ScriptedRunner(Outcome("SUCCESS"))

    outcome = run(runner, an_attempt(), stop)

    assert outcome == Outcome.stopped(reason)
    assert outcome.status == "CANCELLED"
    assert runner.attempts == []


def test_secrets_in_an_outcome_are_redacted() -> None:
    unredacted = Outcome(
        "FAILED",
        "no hush/k here, nor hush%2Fk",
        output=b"<hush/k>",
        output_type="text/hush/k",
        http_headers=(("X-Echo", "a hush/k"),),
    )

    outcome = run(ScriptedRunner(unredacted), an_attempt(body="{{secret:k}}"))

    assert outcome == Outcome(
        "FAILED",
        "no [secret] here, nor [secret]",
        output=b"<[secret]>",
        output_type="text/[secret]",
        http_headers=(("X-Echo", "a [secret]"),),
    )


def test_truncated_output_does_not_end_with_a_part_of_a_secret() -> None:
    unredacted = Outcome("SUCCESS", output=b"so it is hush", output_truncated=True)
    assert run(ScriptedRunner(unredacted), an_attempt(body="{{secret:k}}")).output == b"so it is "


def test_error_of_a_bad_task_is_redacted() -> None:
    outcome = run(ScriptedRunner(BadTask("hush/k is no host")), an_attempt(body="{{secret:k}}"))
    assert outcome.error == "[secret] is no host"


def test_stop_signal_keeps_its_first_reason_unless_the_claim_is_lost() -> None:
    stop = StopSignal()
    assert (stop.reason(), stop.wait(0)) == ("", False)
    stop.request_stop("CANCEL")
    stop.request_stop("SHUTDOWN")
    assert (stop.reason(), stop.wait(0)) == ("CANCEL", True)
    stop.request_stop("LOST")
    assert stop.reason() == "LOST"


@pytest.mark.parametrize("error", [Throttled, Unavailable])
@pytest.mark.parametrize("is_reference", [False, True])
def test_secret_store_without_an_answer_returns_the_run_without_an_attempt(
    error: type[Exception], is_reference: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(tenant: str, name: str) -> str:
        raise error(f"the store refused {tenant}/{name}")

    runner = ScriptedRunner(Outcome("SUCCESS"))
    references = fail if is_reference else None
    secrets = no_secrets if is_reference else fail
    attempt_runner = AttemptRunner({"http": runner}, secrets, lambda _attempt: references)
    with caplog.at_level(logging.ERROR):
        outcome = attempt_runner.run(an_attempt(body="{{secret:k}}"), StopSignal(), NoLog())
    assert outcome == Outcome("FAILED", "the store refused local/k", begun=False)
    assert runner.attempts == []
    logged = [(record.getMessage(), record.__dict__["run_id"]) for record in caplog.records]
    assert logged == ([("secrets_unavailable", "run-1")] if error is Unavailable else [])


def test_attempt_as_written_keeps_placeholders_that_it_quotes() -> None:
    """A webhook quotes names and errors. A quoted placeholder must not become a secret."""
    runner = ScriptedRunner(Outcome("SUCCESS"))
    attempt = an_attempt(body='{"error_message": "{{secret:k}} {{payload.x}}"}')
    outcome = AttemptRunner({"http": runner}, lambda *_: "hush").run_as_written(
        attempt, StopSignal(), NoLog()
    )
    assert outcome == Outcome("SUCCESS")
    assert runner.attempts == [attempt]
