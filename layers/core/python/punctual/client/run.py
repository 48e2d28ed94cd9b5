"""Answers about runs, their output and their logs."""

from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from punctual.client.errors import RunFailed
from punctual.client.model import AwareDatetime, Model

ENDED_STATUS_NAMES = frozenset({"SUCCESS", "FAILED", "TIMED_OUT", "CANCELLED", "SKIPPED", "MISSED"})


class Reason(Model, frozen=True, kw_only=True):
    """The reason why a run is waiting, or was skipped, missed or lost."""

    code: str
    text: str = ""


class Attempt(Model, frozen=True, kw_only=True):
    attempt_number: int
    start_time: AwareDatetime | None = None
    end_time: AwareDatetime | None = None
    status: str
    executor_id: str | None = None
    error_message: str | None = None


class Progress(Model, frozen=True, kw_only=True):
    """How far the work of a run is, as its executor last reported it."""

    percent: float | None = None
    text: str | None = None


class Run(Model, frozen=True, kw_only=True):
    run_id: str
    job_id: str
    status: str
    trigger: str = "SCHEDULE"
    job_name: str | None = None
    task_type: str | None = None
    job_version: int | None = None
    retried_from: str | None = None
    reason: Reason | None = None
    scheduled_time: AwareDatetime | None = None
    last_scheduled_time: AwareDatetime | None = None
    due_time: AwareDatetime | None = None
    queued_at: AwareDatetime | None = None
    claimed_at: AwareDatetime | None = None
    start_time: AwareDatetime | None = None
    end_time: AwareDatetime | None = None
    modified_time: AwareDatetime | None = None
    created_at: AwareDatetime | None = None
    next_attempt_time: AwareDatetime | None = None
    lateness_ms: float | None = None
    duration_ms: float | None = None  # of the last attempt of an ended run
    attempt_number: int | None = None
    attempts: tuple[Attempt, ...] = ()  # empty in lists of runs
    progress: Progress | None = None  # while the run goes on; None in lists of runs
    executor_id: str | None = None
    error_message: str | None = None
    exit_code: int | None = None
    log_url: str | None = None
    output_url: str | None = None
    output_truncated: bool = False
    log_truncated: bool = False
    output_discarded: bool = False
    http_status: int | None = None
    http_headers: tuple[tuple[str, str], ...] = ()
    payload: Any = None  # set only if the run has its own payload
    count: int = 1
    tzdata: str | None = None

    @property
    def ended(self) -> bool:
        return self.status in ENDED_STATUS_NAMES or self.end_time is not None

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCESS"

    @property
    def lateness(self) -> timedelta | None:
        return None if self.lateness_ms is None else timedelta(milliseconds=self.lateness_ms)

    @property
    def duration(self) -> timedelta | None:
        """The duration of the last attempt, or None before the run ends, or if none began."""
        return None if self.duration_ms is None else timedelta(milliseconds=self.duration_ms)

    def raise_for_outcome(self) -> "Run":
        """Return the run after a success. Otherwise, or before its end, raise RunFailed."""
        if self.succeeded:
            return self
        cause = self.error_message or (self.reason and self.reason.text) or ""
        state_text = "has ended" if self.ended else "has not ended: it is"
        text = f"Run {self.run_id} of job {self.job_id} {state_text} {self.status}"
        raise RunFailed(f"{text}: {cause}" if cause else f"{text}.", self)


class Output(NamedTuple):
    """The stored output of a run."""

    data: bytes
    content_type: str
    truncated: bool

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")

    def json(self) -> Any:
        return msgspec.json.decode(self.data)


class SavedOutput(NamedTuple):
    """An output that was written to a file. `size` counts its bytes."""

    size: int
    content_type: str
    truncated: bool


class Logs(NamedTuple):
    """The log of a run so far. Pass `next_offset` as `after` to continue."""

    text: str
    next_offset: int
