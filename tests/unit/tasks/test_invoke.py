"""The `lambda` task: which functions it may call, and what becomes of what they answer."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from punctual.domain.errors import Invalid, Unavailable
from punctual.tasks.contract import Attempt, BadTask, Outcome, StopSignal
from punctual.tasks.lambda_function import (
    MAX_ERROR_CHARACTERS,
    InvocationResult,
    InvokeTask,
    function_problem,
)
from punctual.tasks.limits import MAX_ANSWER_BYTES
from punctual.tasks.registry import Registry
from punctual.tasks.validation import task_problems

ARN = "arn:aws:lambda:eu-central-1:123456789012:function:"


class Lambda:
    """Answers as it is told to, and takes note of what it was asked."""

    def __init__(self, answer: InvocationResult | Exception) -> None:
        self._answer = answer
        self.asked: list[tuple[str, bytes, float]] = []
        self.origins: list[Mapping[str, str]] = []

    def invoke(
        self, function: str, payload: bytes, seconds: float, origin: Mapping[str, str], /
    ) -> InvocationResult:
        self.origins.append(origin)
        self.asked.append((function, payload, seconds))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class NoLog:
    def log(self, data: bytes) -> None:
        raise AssertionError("nothing is logged here")


def run(
    function: str, answer: InvocationResult | Exception, payload: Any = None
) -> tuple[Outcome, Lambda]:
    made = Lambda(answer)
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
    registry = Registry({"lambda": InvokeTask(made)}, {"key": "s3cret"}.__getitem__)
    return registry.run(attempt, StopSignal(), NoLog()), made


def test_the_payload_goes_in_as_json_and_the_answer_is_the_output() -> None:
    outcome, asked = run("report", InvocationResult(b'{"ok":true}'), {"n": [1, None], "ä": "ö"})
    assert asked.asked == [("report", '{"n":[1,null],"ä":"ö"}'.encode(), 5)]
    assert asked.origins == [{"tenant": "acme", "job_id": "job-1", "run_id": "run-1"}]
    assert outcome == Outcome("SUCCESS", output=b'{"ok":true}', output_type="application/json")


def test_a_function_that_returns_nothing_leaves_no_output() -> None:
    outcome, _ = run("report", InvocationResult(b"null"))
    assert (outcome.status, outcome.output, outcome.output_truncated) == ("SUCCESS", b"", False)


def test_the_functions_own_error_fails_the_attempt_and_may_pass() -> None:
    said = b'{"errorMessage":"no luck","errorType":"KeyError"}'
    outcome, _ = run("report", InvocationResult(said, "Unhandled"))
    assert (outcome.status, outcome.retryable, outcome.output) == ("FAILED", True, said)
    assert outcome.error == f"The function failed (Unhandled): {said.decode()}"


def test_an_error_text_is_bounded() -> None:
    outcome, _ = run("report", InvocationResult(b"x" * 5_000 + b"\xff\0", "Unhandled"))
    assert len(outcome.error) == MAX_ERROR_CHARACTERS
    assert outcome.error.endswith("x…")


def test_an_answer_is_kept_to_a_mebibyte() -> None:
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
def test_what_lambda_refuses_is_tried_again_where_that_may_help(
    error: Exception, retryable: bool
) -> None:
    outcome, _ = run("report", error)
    assert (outcome.status, outcome.retryable) == ("FAILED", retryable)
    assert outcome.error == (str(error) if isinstance(error, BadTask) else error.message)  # type: ignore[attr-defined]


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
def test_a_function_may_be_named_in_every_way_that_lambda_knows(function: str) -> None:
    assert function_problem(function) == ""
    assert list(task_problems({"type": "lambda", "function": function})) == []
    assert run(function, InvocationResult(b"1"))[0].status == "SUCCESS"


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("punctual-dev-planner", "is one of Punctual's own"),
        ("Punctual-dev-planner", "is one of Punctual's own"),
        ("punctual-prod-executor-quick:live", "is one of Punctual's own"),
        (ARN + "punctual-dev-executor-quick", "is one of Punctual's own"),
        (ARN + "punctual-dev-executor-quick:3", "is one of Punctual's own"),
        ("123456789012:function:punctual-dev-poller", "is one of Punctual's own"),
        ("123456789012:punctual-dev-poller", "is one of Punctual's own"),
        ("", "must be a function's name or ARN"),
        ("a b", "must be a function's name or ARN"),
        ("https://example.com/", "must be a function's name or ARN"),
        (ARN, "must be a function's name or ARN"),
        ("report\n", "must be a function's name or ARN"),
    ],
)
def test_a_function_that_may_not_be_called_is_refused_early_and_late(
    function: str, problem: str
) -> None:
    found = list(task_problems({"type": "lambda", "function": function}))
    assert found == [("function", problem)]
    outcome, asked = run(function, InvocationResult(b"1"))
    assert (outcome.status, outcome.retryable) == ("FAILED", False)
    assert outcome.error == f"The function {problem}"
    assert asked.asked == []


def test_a_name_that_is_filled_in_is_checked_once_it_is_known() -> None:
    function = "{{payload.function}}"
    assert list(task_problems({"type": "lambda", "function": function})) == []
    outcome, asked = run(function, InvocationResult(b"1"), {"function": "punctual-dev-planner"})
    assert (outcome.status, asked.asked) == ("FAILED", [])


def test_a_secret_that_a_function_answers_is_not_kept() -> None:
    outcome, _ = run("report-{{secret:key}}", InvocationResult(b'"s3cret"'))
    assert outcome.output == b'"[secret]"'
