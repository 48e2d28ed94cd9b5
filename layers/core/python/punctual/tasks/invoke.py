"""The `lambda` task: invokes a function with the payload; its answer is the output."""

import re
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
    def invoke(self, function: str, payload: bytes, seconds: float, /) -> Invoked:
        """Once, waiting for the answer so long, or somewhat longer; who asks gives up by itself.

        `BadTask` where asking again would not help.
        """


class InvokeTask:
    """It waits for as long as the function takes: who calls it gives up when time is over."""

    def __init__(self, invoker: Invoker) -> None:
        self._invoker = invoker

    def run(self, attempt: Attempt, _stop: Stop, _recorder: Recorder, /) -> Outcome:
        function = as_text(attempt.task["function"])
        problem = function_problem(function)
        if problem:
            raise BadTask(f"The function {problem}")
        invoked = self._invoker.invoke(
            function, json_bytes(attempt.payload), attempt.timeout.total_seconds()
        )
        kept = invoked.answer[:MAX_ANSWER_BYTES]
        return Outcome(
            "FAILED" if invoked.error else "SUCCESS",
            _error(invoked) if invoked.error else "",
            output=kept,
            output_type=JSON,
            output_truncated=len(kept) < len(invoked.answer),
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


def _error(invoked: Invoked) -> str:
    """What the function said, which for an exception is its type and message."""
    said = invoked.answer.decode(errors="replace").replace("\0", "\ufffd")
    text = f"The function failed ({invoked.error}): {said}"
    return text if len(text) <= MAX_ERROR else text[: MAX_ERROR - 1] + "…"
