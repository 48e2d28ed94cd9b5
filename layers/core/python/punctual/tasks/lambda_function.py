"""The `lambda` task: invokes a function with the payload and stores its answer as output."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, Stop
from punctual.tasks.limits import MAX_ANSWER_BYTES
from punctual.tasks.text import as_text, json_bytes

OURS = "punctual-"  # name prefix of the scheduler's functions and queues
MAX_ERROR = 1_024  # characters
JSON = "application/json"

_FUNCTION = re.compile(
    r"(arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:|\d{12}:function:|\d{12}:)?"
    r"(?P<name>[A-Za-z0-9_-]{1,64})"
    r"(:(\$LATEST|[A-Za-z0-9_-]{1,128}))?"
)


class Invoked(NamedTuple):
    """The answer of a function. `error` is Lambda's error type, or empty on success."""

    answer: bytes
    error: str = ""


class Invoker(Protocol):
    def invoke(
        self, function: str, payload: bytes, seconds: float, origin: Mapping[str, str], /
    ) -> Invoked:
        """Invoke the function once and wait at least `seconds` for the answer.

        The caller enforces the exact timeout. `origin` names tenant, job and run outside of the
        payload. Raise `BadTask` for an error that a retry cannot fix.
        """


def _everything(_tenant: str, _name: str) -> bool:
    return True


class InvokeTask:
    """Runs `lambda` tasks. It blocks until the function answers. The caller enforces timeouts."""

    def __init__(self, invoker: Invoker, allows: Callable[[str, str], bool] = _everything) -> None:
        """`allows` receives the tenant and the function."""
        self._invoker = invoker
        self._allows = allows

    def run(self, attempt: Attempt, _stop: Stop, _recorder: Recorder, /) -> Outcome:
        function = as_text(attempt.task["function"])
        problem = function_problem(function)
        if problem:
            raise BadTask(f"The function {problem}")
        if not self._allows(attempt.tenant, function):
            raise BadTask(
                "The function is not one that tasks of this tenant may reach (tasksMayReach)"
            )
        invoked = self._invoker.invoke(
            function,
            json_bytes(attempt.payload),
            attempt.timeout.total_seconds(),
            {"tenant": attempt.tenant, "job_id": attempt.job_id, "run_id": attempt.run_id},
        )
        # Lambda answers `null` for a function that returns nothing.
        kept = b"" if invoked.answer == b"null" else invoked.answer[:MAX_ANSWER_BYTES]
        return Outcome(
            "FAILED" if invoked.error else "SUCCESS",
            _error(invoked) if invoked.error else "",
            output=kept,
            output_type=JSON,
            output_truncated=len(invoked.answer) > MAX_ANSWER_BYTES,
        )


def function_problem(function: str) -> str:
    """Return why a task may not invoke the function, or an empty string.

    >>> function_problem("arn:aws:lambda:eu-central-1:123456789012:function:report:live")
    ''
    >>> function_problem("punctual-prod-planner")
    "is one of Punctual's own"
    """
    found = _FUNCTION.fullmatch(function)
    if found is None:
        return "must be a function's name or ARN"
    if found["name"].lower().startswith(OURS):
        return "is one of Punctual's own"
    return ""


def function_name(function: str) -> str:
    """
    >>> function_name("arn:aws:lambda:eu-central-1:123456789012:function:report:live")
    'report'
    """
    found = _FUNCTION.fullmatch(function)
    return found["name"] if found else ""


def _error(invoked: Invoked) -> str:
    """Return the error text. For an exception, Lambda answers with its type and message."""
    said = invoked.answer.decode(errors="replace").replace("\0", "\ufffd")
    text = f"The function failed ({invoked.error}): {said}"
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"
