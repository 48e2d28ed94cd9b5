"""What a task runner is given, and what it answers."""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Protocol

import msgspec

Status = Literal["SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED"]
StopReason = Literal["CANCEL", "SHUTDOWN", "LOST"]

_STOPPED = {
    "CANCEL": "Cancelled",
    "SHUTDOWN": "Stopped because the executor shuts down",
    "LOST": "Stopped because the executor lost its claim",
}


class BadTask(Exception):
    """The task cannot be run as it stands, so trying again would not help."""


class Attempt(msgspec.Struct, frozen=True):
    """One try of one run; `secrets` are the values that must not be shown."""

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

    def __repr__(self) -> str:
        # Task, payload and secrets may not reach a log by way of a stray repr.
        return f"Attempt({self.job_id!r}, {self.run_id!r}, {self.attempt_number})"


class Outcome(msgspec.Struct, frozen=True):
    """How an attempt ended; `retryable` matters for FAILED only.

    `begun` is false where nothing of the attempt was started or sent, and that is proven.
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
    return _STOPPED[reason]


def timeout_text(timeout: timedelta) -> str:
    return f"Timed out after {timeout.total_seconds():g} s"


class Stop(Protocol):
    """The wish that an attempt should end, looked at while it runs."""

    def wanted(self) -> str:
        """The reason to stop, or nothing."""

    def wait(self, seconds: float) -> bool:
        """Wait for the wish at most so long; whether it is there."""


class StopSignal:
    """A wish to stop that one thread makes and another sees.

    `is_lost`: whether the claim may be another's by now, for when nobody is there to make it.
    """

    def __init__(self, is_lost: Callable[[], bool] = lambda: False) -> None:
        self._is_lost = is_lost
        self._event = threading.Event()
        self._reason: StopReason | None = None

    def stop(self, reason: StopReason) -> None:
        # A lost claim outranks the rest: work that is no longer ours gets no grace.
        if self._reason is None or reason == "LOST":
            self._reason = reason
        self._event.set()

    def wanted(self) -> str:
        if self._reason != "LOST" and self._is_lost():
            self.stop("LOST")
        return self._reason or ""

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Recorder(Protocol):
    """Where logs go while a run is alive; the output comes with its outcome."""

    def log(self, data: bytes) -> None:
        """Append what the task wrote, free of its secrets; the adapter decides where."""


class Runner(Protocol):
    """Does one type of task, in the thread that calls it."""

    def run(self, attempt: Attempt, stop: Stop, recorder: Recorder, /) -> Outcome:
        """Do it and say how it ended; what raises instead is a bug of the runner."""


Runners = Mapping[str, Runner]
