"""Jobs, and what the API says about them."""

from datetime import date, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from punctual.client.errors import Problem, PunctualError
from punctual.client.model import At, Model
from punctual.client.run import Run


class Job(Model, frozen=True, kw_only=True):
    job_id: str
    name: str
    status: str
    schedule_type: str
    schedule_time: At | None = None
    cron_expression: str | None = None
    timezone: str | None = None
    dst_gap: str | None = None
    dst_fold: str | None = None
    interval_seconds: int | None = None
    interval_from: str | None = None
    start_time: At | None = None
    end_time: At | None = None
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
    next_run_time: At | None = None
    latest_run: Run | None = None
    created_at: At | None = None
    created_by: str | None = None
    updated_at: At | None = None
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
    next_run_time: At | None = None


class Explanation(Model, frozen=True, kw_only=True):
    """What happened, or will, at a time, and why."""

    job_id: str
    at: At
    occurrence: At | None = None
    outcome: str
    reason: str | None = None
    run_id: str | None = None
    previous: At | None = None
    next: At | None = None


class Backfill(NamedTuple):
    """How many runs were ordered; after a dry run, how many would be, and their times."""

    runs: int
    times: tuple[datetime, ...] = ()


class Accepted(NamedTuple):
    """Of a batch: one job that is kept."""

    job_id: str
    location: str | None = None
    accepted: bool = True


class Declined(NamedTuple):
    """Of a batch: one job that is not."""

    problem: Problem
    error: PunctualError
    accepted: bool = False


class Batch(NamedTuple):
    """The results in the order of what was sent."""

    results: tuple[Accepted | Declined, ...]
    idempotency_key: str

    @property
    def job_ids(self) -> tuple[str | None, ...]:
        """None where a job was declined."""
        return tuple(r.job_id if isinstance(r, Accepted) else None for r in self.results)

    @property
    def declined(self) -> dict[int, Declined]:
        """By their place in what was sent."""
        return {i: r for i, r in enumerate(self.results) if isinstance(r, Declined)}

    def raise_for_declined(self) -> "Batch":
        """Itself where every job was accepted; else the first one's error raises."""
        for place, found in self.declined.items():
            found.error.add_note(f"job {place} of {len(self.results)} in the batch")
            raise found.error
        return self
