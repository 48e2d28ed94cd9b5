"""Builders of values for the ports, and a clock. A test names only the fields that it is about."""

from datetime import UTC, datetime, timedelta
from typing import Any

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import bucket_of, sortable_id
from punctual.domain.job_state import JobState, JobStatus, Rules, ScheduleKind
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.rows import AttemptRow, DefinitionRow, JobKey, Receipt, RunRow
from punctual.engine.ports.timers import Timer

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def an_id(number: int, at: datetime = NOON) -> str:
    """Return an id that sorts by its number."""
    return sortable_id(at + timedelta(milliseconds=number), number.to_bytes(10, "big"))


JOB = an_id(1)
RUN = an_id(1_000_001)


def a_job_state(
    job_id: str = JOB, version: int = 1, write_id: str = "w", **fields: Any
) -> JobState:
    """Return the state of a recurring job. Its definition row is the one of `a_definition_row`."""
    values: dict[str, Any] = {
        "tenant": "acme",
        "job_id": job_id,
        "version": version,
        "edition": 1,
        "definition": 1,
        "status": JobStatus.SCHEDULED,
        "kind": ScheduleKind.CRON,
        "created_at": NOON,
        "updated_at": NOON,
        "schedule": None,
        "rules": {1: Rules(definition_ref="1-body", effective_at=NOON)},
        "write_ids": (write_id,),
    }
    return JobState(**{**values, **fields})


def a_run(run_id: str = RUN, status: RunStatus = RunStatus.QUEUED, **fields: Any) -> Run:
    values: dict[str, Any] = {
        "run_id": run_id,
        "status": status,
        "definition": 1,
        "scheduled_at": NOON,
        "due_at": NOON,
        "created_at": NOON,
        "changed_at": NOON,
    }
    return Run(**{**values, **fields})


def a_definition_row(job_id: str = JOB, ref: str = "1-body", **fields: Any) -> DefinitionRow:
    values: dict[str, Any] = {
        "tenant": "acme",
        "job_id": job_id,
        "ref": ref,
        "edition": 1,
        "created_at": NOON,
        "name": "cleanup",
        "document": {"name": "cleanup", "schedule_type": "CRON", "cron_expression": "0 0 * * *"},
    }
    return DefinitionRow(**{**values, **fields})


def a_timer(at: datetime = NOON, job_id: str = JOB, version: int = 1, **fields: Any) -> Timer:
    values: dict[str, Any] = {"bucket": bucket_of(at), "shard": 0, "tenant": "acme"}
    return Timer(at=at, job_id=job_id, version=version, **{**values, **fields})


def a_row(run_id: str = RUN, job_id: str = JOB, tenant: str = "acme", **fields: Any) -> RunRow:
    """Return a history row with the product's retention."""
    values: dict[str, Any] = {
        "run": a_run(run_id, RunStatus.SUCCESS, ended_at=NOON, token=2, executor_id="e1"),
        "expires_at": NOON + HISTORY_RETENTION,
        "tzdata": "2026a",
    }
    return RunRow(tenant=tenant, job_id=job_id, **{**values, **fields})


def an_attempt(number: int = 1, token: int = 2, run_id: str = RUN, **fields: Any) -> AttemptRow:
    values: dict[str, Any] = {
        "tenant": "acme",
        "job_id": JOB,
        "status": "FAILED",
        "started_at": NOON,
        "ended_at": after(1),
        "executor_id": "e1",
        "expires_at": NOON + HISTORY_RETENTION,
    }
    return AttemptRow(run_id=run_id, number=number, token=token, **{**values, **fields})


def a_receipt(created_id: str = JOB, fingerprint: str = "f", **fields: Any) -> Receipt:
    values: dict[str, Any] = {"created_at": NOON, "expires_at": NOON + timedelta(hours=24)}
    return Receipt(fingerprint=fingerprint, created_id=created_id, **{**values, **fields})


def key_of(state: JobState) -> JobKey:
    return JobKey(state.tenant, state.job_id)


class ManualClock:
    """A clock that stands still until a test moves or sets it."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._steady = 0.0  # seconds

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self._steady

    def advance(self, duration: timedelta) -> None:
        self.now += duration
        self._steady += duration.total_seconds()

    def set(self, now: datetime) -> None:
        """Let time pass until `now`."""
        self.advance(now - self.now)

    def advance_to_steady(self, steady: float) -> None:
        """Let time pass until the steady clock shows `steady`. It never goes back."""
        if steady > self._steady:
            self.now += timedelta(seconds=steady - self._steady)
            self._steady = steady

    def jump(self, duration: timedelta) -> None:
        """Set the wall clock forward or back. No time passes."""
        self.now += duration
