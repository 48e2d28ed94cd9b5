"""Answers about jobs."""

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from punctual.client.errors import Problem, PunctualError
from punctual.client.model import AwareDatetime, Model
from punctual.client.run import Run


class Pause(Model, frozen=True, kw_only=True):
    """The pause of a job. At `until` the job resumes by itself."""

    until: AwareDatetime | None = None
    note: str | None = None
    by: str | None = None
    at: AwareDatetime | None = None


class RecentRun(Model, frozen=True, kw_only=True):
    """One of the last ended runs of a job in a list."""

    status: str
    scheduled_time: AwareDatetime
    run_id: str


class Job(Model, frozen=True, kw_only=True):
    job_id: str
    name: str
    status: str
    schedule_type: str
    schedule_time: AwareDatetime | None = None
    cron_expression: str | None = None
    timezone: str | None = None
    dst_gap: str | None = None
    dst_fold: str | None = None
    interval_seconds: int | None = None
    interval_from: str | None = None
    start_time: AwareDatetime | None = None
    end_time: AwareDatetime | None = None
    max_runs: int | None = None
    exclude: tuple[date, ...] = ()
    jitter_seconds: int = 0
    misfire_policy: str = "RUN_ONCE"
    misfire_grace_seconds: int = 60
    task: dict[str, Any] = msgspec.field(default_factory=dict)
    payload: Any = None
    priority: str = "NORMAL"
    max_concurrency: int = 1
    overlap_policy: str = "QUEUE"
    max_waiting: int = 100
    timeout_seconds: int = 300
    max_retries: int = 3
    retry: dict[str, Any] = msgspec.field(default_factory=dict)
    deadline_seconds: int | None = None
    delivery: str = "AT_LEAST_ONCE"
    notify: tuple[dict[str, Any], ...] = ()
    output: str = "keep"
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    pause: Pause | None = None
    next_run_time: AwareDatetime | None = None
    latest_run: Run | None = None
    usual_duration_ms: float | None = None
    recent: tuple[RecentRun, ...] = ()  # only in a list with `recent`
    created_at: AwareDatetime | None = None
    created_by: str | None = None
    updated_at: AwareDatetime | None = None
    version: int | None = None

    @property
    def interval(self) -> timedelta | None:
        return None if self.interval_seconds is None else timedelta(seconds=self.interval_seconds)

    @property
    def timeout(self) -> timedelta:
        return timedelta(seconds=self.timeout_seconds)

    @property
    def deadline(self) -> timedelta | None:
        return None if self.deadline_seconds is None else timedelta(seconds=self.deadline_seconds)


class JobStatus(Model, frozen=True, kw_only=True):
    job_id: str
    status: str
    latest_run: Run | None = None
    next_run_time: AwareDatetime | None = None


class Explanation(Model, frozen=True, kw_only=True):
    """The outcome of a job at a past or future time, and its reason."""

    job_id: str
    at: AwareDatetime
    occurrence: AwareDatetime | None = None
    outcome: str
    reason: str | None = None
    run_id: str | None = None
    previous: AwareDatetime | None = None
    next: AwareDatetime | None = None


class Backfill(NamedTuple):
    """The number of requested runs. After a dry run, the number and times of possible runs."""

    runs: int
    times: tuple[datetime, ...] = ()


class Accepted(NamedTuple):
    """The result of one accepted job in a batch."""

    job_id: str
    location: str | None = None
    accepted: bool = True


class Declined(NamedTuple):
    """The result of one declined job in a batch."""

    problem: Problem
    error: PunctualError
    accepted: bool = False


class Batch(NamedTuple):
    """The results of a batch, in the order of the submitted jobs."""

    results: tuple[Accepted | Declined, ...]
    idempotency_key: str

    @property
    def job_ids(self) -> tuple[str | None, ...]:
        """The job ids, with None for each declined job."""
        return tuple(
            result.job_id if isinstance(result, Accepted) else None for result in self.results
        )

    @property
    def declined(self) -> dict[int, Declined]:
        """The declined jobs by their index in the batch."""
        return {
            index: result
            for index, result in enumerate(self.results)
            if isinstance(result, Declined)
        }

    def raise_for_declined(self) -> "Batch":
        """Return the batch if every job was accepted. Otherwise raise the first error."""
        for index, declined_job in self.declined.items():
            declined_job.error.add_note(f"job {index} of {len(self.results)} in the batch")
            raise declined_job.error
        return self
