"""Input and output types of the task runners.

The runner of scripts on AWS imports this, so it needs only the standard library.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

Status = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "DETACHED", "LOST"]
"""The status of an outcome. Two do not end the run:

- DETACHED: another process goes on, or may go on. It finishes by its claim, or its lease expires.
- LOST: the process with the task has ended without a result.
"""

StopReason = Literal["CANCEL", "SHUTDOWN", "LOST"]

_STOP_TEXTS = {
    "CANCEL": "Cancelled",
    "SHUTDOWN": "Stopped because the executor shuts down",
    "LOST": "Stopped because the executor lost its claim",
}


class BadTask(Exception):
    """The task is invalid as it stands. A retry would fail again."""


class Throttled(Exception):
    """A service refused a call for now, or did not answer, before the attempt sent anything.

    The run returns to its queue. This counts as no attempt.
    """


class NoRoom(Throttled):
    """No place, processor or memory is free for the attempt. The run waits for them."""


class StartFailed(Throttled):
    """A platform was asked to start the work, and started nothing.

    The run returns to its queue as for `Throttled`. The thirtieth such return ends it as FAILED.
    """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a run. `secrets` holds the values that output and logs must not show.

    With `is_detached` the executor does not wait for the task.
    """

    tenant: str
    job_id: str
    run_id: str
    name: str
    attempt_number: int
    scheduled_at: datetime
    task: dict[str, Any]
    payload: Any
    timeout: timedelta
    token: int
    secrets: frozenset[str] = frozenset()
    keeps_output: bool = True
    is_detached: bool = False

    def __repr__(self) -> str:
        # Omit task, payload and secrets, so that a logged repr cannot leak them.
        return f"Attempt({self.job_id!r}, {self.run_id!r}, {self.attempt_number})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt. `retryable` is read only if the status is FAILED.

    `begun` is false only if the runner certainly started and sent nothing. With `lacks_resources`
    it then waits for room. A runner elsewhere may have stored the output itself (`output_upload`),
    and the log before `log_offset`.
    """

    status: Status
    error: str = ""
    retryable: bool = True
    output: bytes = b""
    output_type: str = "application/octet-stream"
    output_truncated: bool = False
    logs_truncated: bool = False
    exit_code: int | None = None
    http_status: int | None = None
    http_headers: tuple[tuple[str, str], ...] = ()
    begun: bool = True
    lacks_resources: bool = False
    start_failed: bool = False
    output_upload: str = ""
    log_offset: int = 0

    @classmethod
    def failed(cls, error: str, *, retryable: bool = True) -> "Outcome":
        return cls("FAILED", error, retryable)

    @classmethod
    def stopped(cls, reason: str) -> "Outcome":
        return cls("CANCELLED", stop_text(reason))

    @classmethod
    def timed_out(cls, timeout: timedelta) -> "Outcome":
        return cls("TIMED_OUT", timeout_text(timeout))


def stop_text(reason: str) -> str:
    return _STOP_TEXTS[reason]


def timeout_text(timeout: timedelta) -> str:
    return f"Timed out after {timeout.total_seconds():g} s"


class StopRequest(Protocol):
    """A stop request that a runner polls during an attempt."""

    def reason(self) -> str:
        """Return the reason to stop, or an empty string."""

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for a stop request. Return True if one exists."""


class StopSignal:
    """A stop request that passes from one thread to another.

    `is_lost` returns True if another executor may hold the claim by now. It covers the case that
    the thread that would call `request_stop` is blocked.
    """

    def __init__(self, is_lost: Callable[[], bool] = lambda: False) -> None:
        self._is_lost = is_lost
        self._event = threading.Event()
        self._reason: StopReason | None = None

    def request_stop(self, reason: StopReason) -> None:
        # LOST replaces other reasons. The attempt then stops without a grace period.
        if self._reason is None or reason == "LOST":
            self._reason = reason
        self._event.set()

    def reason(self) -> str:
        if self._reason != "LOST" and self._is_lost():
            self.request_stop("LOST")
        return self._reason or ""

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Recorder(Protocol):
    """Receiver of the log of a running attempt. The output is part of the outcome instead."""

    def log(self, data: bytes) -> None:
        """Append redacted log bytes of the task."""


class Runner(Protocol):
    """Runs attempts of one task type in the calling thread."""

    def run(self, attempt: Attempt, stop: StopRequest, recorder: Recorder, /) -> Outcome:
        """Run the attempt and return its outcome.

        Raise `BadTask` or a `PunctualError` to fail the attempt. Any other exception is a bug.
        """


Runners = Mapping[str, Runner]
