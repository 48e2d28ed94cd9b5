"""The `lambda` task: invokes a function with the payload and stores its answer as output."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from punctual.engine.ports.blobs import JSON_MEDIA_TYPE
from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, StopRequest
from punctual.tasks.limits import MAX_ANSWER_BYTES
from punctual.tasks.text import as_text, json_bytes

OWN_NAME_PREFIX = "punctual-"  # name prefix of the scheduler's functions and queues
MAX_ERROR_CHARACTERS = 1_024

_FUNCTION_NAME = re.compile(
    r"(arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:|\d{12}:function:|\d{12}:)?"
    r"(?P<name>[A-Za-z0-9_-]{1,64})"
    r"(:(\$LATEST|[A-Za-z0-9_-]{1,128}))?"
)


class InvocationResult(NamedTuple):
    """The answer of a function. `error_type` is Lambda's error type, or empty on success."""

    answer: bytes
    error_type: str = ""


class Invoker(Protocol):
    def invoke(
        self, function: str, payload: bytes, seconds: float, origin: Mapping[str, str], /
    ) -> InvocationResult:
        """Invoke the function once and wait at least `seconds` for the answer.

        The caller enforces the exact timeout. `origin` names tenant, job and run outside of the
        payload. Raise `BadTask` for an error that a retry cannot fix.
        """


def allow_all(_tenant: str, _name: str) -> bool:
    """Return True: tasks may name every target."""
    return True


class InvokeTask:
    """Runs `lambda` tasks. It blocks until the function answers. The caller enforces timeouts."""

    def __init__(
        self, invoker: Invoker, is_allowed: Callable[[str, str], bool] = allow_all
    ) -> None:
        """`is_allowed` receives the tenant and the function."""
        self._invoker = invoker
        self._is_allowed = is_allowed

    def run(self, attempt: Attempt, _stop: StopRequest, _recorder: Recorder, /) -> Outcome:
        function = as_text(attempt.task["function"])
        problem = function_problem(function)
        if problem:
            raise BadTask(f"The function {problem}")
        if not self._is_allowed(attempt.tenant, function):
            raise BadTask(
                "The function is not one that tasks of this tenant may reach (tasksMayReach)"
            )
        result = self._invoker.invoke(
            function,
            json_bytes(attempt.payload),
            attempt.timeout.total_seconds(),
            {"tenant": attempt.tenant, "job_id": attempt.job_id, "run_id": attempt.run_id},
        )
        # Lambda answers `null` for a function that returns nothing.
        output = b"" if result.answer == b"null" else result.answer[:MAX_ANSWER_BYTES]
        return Outcome(
            "FAILED" if result.error_type else "SUCCESS",
            _error_text(result) if result.error_type else "",
            output=output,
            output_type=JSON_MEDIA_TYPE,
            output_truncated=len(result.answer) > MAX_ANSWER_BYTES,
        )


def function_problem(function: str) -> str:
    """Return why a task may not invoke the function, or an empty string.

    >>> function_problem("arn:aws:lambda:eu-central-1:123456789012:function:report:live")
    ''
    >>> function_problem("punctual-prod-planner")
    'is reserved for Punctual'
    """
    match = _FUNCTION_NAME.fullmatch(function)
    if match is None:
        return "must be a function's name or ARN"
    if match["name"].lower().startswith(OWN_NAME_PREFIX):
        return "is reserved for Punctual"
    return ""


def function_name(function: str) -> str:
    """Return the name in an ARN, or an empty string for an invalid one.

    >>> function_name("arn:aws:lambda:eu-central-1:123456789012:function:report:live")
    'report'
    """
    match = _FUNCTION_NAME.fullmatch(function)
    return match["name"] if match else ""


def _error_text(result: InvocationResult) -> str:
    """Return the error text. For an exception, Lambda answers with its type and message."""
    answer = result.answer.decode(errors="replace").replace("\0", "\ufffd")
    text = f"The function failed ({result.error_type}): {answer}"
    return text if len(text) <= MAX_ERROR_CHARACTERS else text[: MAX_ERROR_CHARACTERS - 1] + "…"
