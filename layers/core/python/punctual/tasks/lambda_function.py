"""The `lambda` task: invokes a function with the payload; its answer is the output."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from punctual.tasks.contract import Attempt, BadTask, Outcome, Recorder, Stop
from punctual.tasks.limits import MAX_ANSWER_BYTES
from punctual.tasks.text import as_text, json_bytes

OURS = "punctual-"  # what the scheduler's own functions and queues are called by
MAX_ERROR = 1_024  # characters of what a function says went wrong
JSON = "application/json"

_FUNCTION = re.compile(
    r"(arn:aws[a-z-]*:lambda:[a-z0-9-]+:\d{12}:function:|\d{12}:function:|\d{12}:)?"
    r"(?P<name>[A-Za-z0-9_-]{1,64})"
    r"(:(\$LATEST|[A-Za-z0-9_-]{1,128}))?"
)


class Invoked(NamedTuple):
    """`error` is empty where the function answered, else how it failed, as Lambda names that."""

    answer: bytes
    error: str = ""


class Invoker(Protocol):
    def invoke(
        self, function: str, payload: bytes, seconds: float, origin: Mapping[str, str], /
    ) -> Invoked:
        """Once, waiting for the answer so long, or somewhat longer; who asks gives up by itself.

        `origin` says whose run it is, beside the payload.
        `BadTask` where asking again would not help.
        """


def _everything(_tenant: str, _name: str) -> bool:
    return True


class InvokeTask:
    """It waits for as long as the function takes: who calls it gives up when time is over."""

    def __init__(self, invoker: Invoker, allows: Callable[[str, str], bool] = _everything) -> None:
        """`allows` is asked with the tenant and the function."""
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
        # A function that returns nothing answers `null`.
        kept = b"" if invoked.answer == b"null" else invoked.answer[:MAX_ANSWER_BYTES]
        return Outcome(
            "FAILED" if invoked.error else "SUCCESS",
            _error(invoked) if invoked.error else "",
            output=kept,
            output_type=JSON,
            output_truncated=len(invoked.answer) > MAX_ANSWER_BYTES,
        )


def function_problem(function: str) -> str:
    """Why a function may not be called, or nothing.

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
    """What the function said, which for an exception is its type and message."""
    said = invoked.answer.decode(errors="replace").replace("\0", "\ufffd")
    text = f"The function failed ({invoked.error}): {said}"
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"
