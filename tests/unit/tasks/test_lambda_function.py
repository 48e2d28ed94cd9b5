"""The `lambda` task: the functions that it may call, and the use of their answers."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.errors import Invalid, Unavailable
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Attempt, BadTask, Outcome, StopSignal
from punctual.tasks.lambda_function import (
    MAX_ERROR_CHARACTERS,
    InvocationResult,
    InvokeTask,
    function_problem,
)
from punctual.tasks.limits import MAX_ANSWER_BYTES
from punctual.tasks.validation import task_problems

ARN = "arn:aws:lambda:eu-central-1:123456789012:function:"


class FakeLambda:
    """A Lambda service with one scripted answer that records its calls."""

    def __init__(self, answer: InvocationResult | Exception) -> None:
        self._answer = answer
        self.calls: list[tuple[str, bytes, float]] = []
        self.origins: list[Mapping[str, str]] = []

    def invoke(
        self, function: str, payload: bytes, seconds: float, origin: Mapping[str, str], /
    ) -> InvocationResult:
        self.origins.append(origin)
        self.calls.append((function, payload, seconds))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("nothing is logged here")


def run(
    function: str, answer: InvocationResult | Exception, payload: Any = None
) -> tuple[Outcome, FakeLambda]:
    service = FakeLambda(answer)
    attempt = Attempt(
        tenant="acme",
        job_id="job-1",
        run_id="run-1",
        name="n",
        attempt_number=1,
        scheduled_at=datetime(2026, 12, 1, tzinfo=UTC),
        task={"type": "lambda", "function": function},
        payload=payload,
        timeout=timedelta(seconds=5),
        token=7,
    )
    attempt_runner = AttemptRunner(
        {"lambda": InvokeTask(service)}, lambda _tenant, name: {"key": "s3cret"}[name]
    )
    return attempt_runner.run(attempt, StopSignal(), NoLog()), service


def test_lambda_task_sends_the_payload_and_returns_the_answer() -> None:
    outcome, service = run("report", InvocationResult(b'{"ok":true}'), {"n": [1, None], "ä": "ö"})
    assert service.calls == [("report", '{"n":[1,null],"ä":"ö"}'.encode(), 5)]
    assert service.origins == [{"tenant": "acme", "job_id": "job-1", "run_id": "run-1"}]
    assert outcome == Outcome("SUCCESS", output=b'{"ok":true}', output_type="application/json")


def test_function_that_returns_null_leaves_no_output() -> None:
    outcome, _ = run("report", InvocationResult(b"null"))
    assert (outcome.status, outcome.output, outcome.output_truncated) == ("SUCCESS", b"", False)


def test_error_of_the_function_fails_the_attempt_with_a_retry() -> None:
    answer = b'{"errorMessage":"no luck","errorType":"KeyError"}'
    outcome, _ = run("report", InvocationResult(answer, "Unhandled"))
    assert (outcome.status, outcome.retryable, outcome.output) == ("FAILED", True, answer)
    assert outcome.error == f"The function failed (Unhandled): {answer.decode()}"


def test_error_text_of_a_function_is_bounded() -> None:
    outcome, _ = run("report", InvocationResult(b"x" * 5_000 + b"\xff\0", "Unhandled"))
    assert len(outcome.error) == MAX_ERROR_CHARACTERS
    assert outcome.error.endswith("x…")


def test_answer_of_a_function_is_truncated_at_its_limit() -> None:
    outcome, _ = run("report", InvocationResult(b"x" * (MAX_ANSWER_BYTES + 1)))
    assert (len(outcome.output), outcome.output_truncated) == (MAX_ANSWER_BYTES, True)
    outcome, _ = run("report", InvocationResult(b"x" * MAX_ANSWER_BYTES))
    assert (len(outcome.output), outcome.output_truncated) == (MAX_ANSWER_BYTES, False)


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (Unavailable("Lambda did not answer: it is busy."), True),
        (BadTask("There is no such function"), False),
        (Invalid("Too large."), False),
    ],
)
def test_failed_invocation_is_retried_unless_it_is_permanent(
    error: Exception, retryable: bool
) -> None:
    outcome, _ = run("report", error)
    assert (outcome.status, outcome.retryable) == ("FAILED", retryable)
    message = str(error) if isinstance(error, BadTask) else error.message  # type: ignore[attr-defined]
    assert outcome.error == message


@pytest.mark.parametrize(
    "function",
    [
        "report",
        "report:live",
        "report:$LATEST",
        "123456789012:report",
        "123456789012:function:report:7",
        ARN + "report",
        ARN + "report:live",
        "my-punctual-copy",
    ],
)
def test_function_is_named_in_every_form_of_lambda(function: str) -> None:
    assert function_problem(function) == ""
    assert list(task_problems({"type": "lambda", "function": function})) == []
    assert run(function, InvocationResult(b"1"))[0].status == "SUCCESS"


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("punctual-dev-planner", "is reserved for Punctual"),
        ("Punctual-dev-planner", "is reserved for Punctual"),
        ("punctual-prod-executor-quick:live", "is reserved for Punctual"),
        (ARN + "punctual-dev-executor-quick", "is reserved for Punctual"),
        (ARN + "punctual-dev-executor-quick:3", "is reserved for Punctual"),
        ("123456789012:function:punctual-dev-poller", "is reserved for Punctual"),
        ("123456789012:punctual-dev-poller", "is reserved for Punctual"),
        ("", "must be a function's name or ARN"),
        ("a b", "must be a function's name or ARN"),
        ("https://example.com/", "must be a function's name or ARN"),
        (ARN, "must be a function's name or ARN"),
        ("report\n", "must be a function's name or ARN"),
    ],
)
def test_reserved_function_is_refused_at_validation_and_at_the_call(
    function: str, problem: str
) -> None:
    problems = list(task_problems({"type": "lambda", "function": function}))
    assert problems == [("function", problem)]
    outcome, service = run(function, InvocationResult(b"1"))
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert outcome.error == f"The function {problem}"
    assert service.calls == []


def test_function_name_of_a_placeholder_is_checked_at_the_call() -> None:
    function = "{{payload.function}}"
    assert list(task_problems({"type": "lambda", "function": function})) == []
    outcome, service = run(function, InvocationResult(b"1"), {"function": "punctual-dev-planner"})
    assert (outcome.status, service.calls) == ("FAILED", [])


def test_secret_in_the_answer_of_a_function_is_redacted() -> None:
    outcome, _ = run("report-{{secret:key}}", InvocationResult(b'"s3cret"'))
    assert outcome.output == b'"[secret]"'
