"""Builds views of runs from job states, wait queues and the history."""

from collections.abc import Iterator
from datetime import datetime

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Reason, Run, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.ports.rows import Detail, Key, RunRow
from punctual.engine.queries.views import RunView

_NOTHING = Detail()


def in_head(head: JobState, now: datetime) -> Iterator[RunView]:
    """Yield every run of the job state: alive, waiting, and ended but perhaps not recorded.

    Runs fired ahead of their time are left out. A change may still take them back without a trace.
    """
    for run in (*head.runs, *head.ended):
        if not is_ahead(run, now):
            yield of_run(Key(head.tenant, head.job_id), run)
    for waiting in head.line:
        yield of_run(Key(head.tenant, head.job_id), in_line(head, waiting))


def is_ahead(run: Run, now: datetime) -> bool:
    return (
        run.due_at > now
        and run.status is RunStatus.QUEUED
        and run.trigger is Trigger.SCHEDULE
        and not run.begun
    )


def of_run(key: Key, run: Run) -> RunView:
    return RunView(key.tenant, key.job_id, run, _NOTHING, TZDATA_VERSION)


def of_row(row: RunRow) -> RunView:
    return RunView(row.tenant, row.job_id, row.run, row.detail, row.tzdata)


def in_line(head: JobState, waiting: WaitingRun) -> Run:
    held = head.state is JobStatus.PAUSED and waiting.trigger is Trigger.SCHEDULE
    return Run(
        run_id=waiting.run_id,
        status=RunStatus.WAITING,
        definition=waiting.definition,
        scheduled_at=waiting.scheduled_at,
        due_at=waiting.due_at,
        created_at=waiting.created_at,
        changed_at=waiting.created_at,
        trigger=waiting.trigger,
        reason=Reason.PAUSED if held else Reason.CONCURRENCY,
        own_payload=waiting.own_payload,
        retried_from=waiting.retried_from,
    )


def covers(run: Run, at: datetime) -> bool:
    """Return whether this is the outcome of the occurrence at `at`."""
    if run.trigger is not Trigger.SCHEDULE:
        return False
    return run.scheduled_at <= at <= (run.last_at or run.scheduled_at)
