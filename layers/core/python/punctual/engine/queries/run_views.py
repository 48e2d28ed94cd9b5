"""Builds views of runs from job states, wait queues and the history."""

from collections.abc import Callable, Iterator
from datetime import datetime

from msgspec.structs import replace

from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Reason, Run, RunStatus, Trigger, WaitingRun, from_waiting
from punctual.domain.schedules.timezones import TZDATA_VERSION
from punctual.engine.ports.rows import NO_DETAIL, DefinitionRow, JobLabel, RunRow
from punctual.engine.queries.views import RunView

WaitsForResources = Callable[[JobState, Run, datetime], bool]
"""Returns whether a QUEUED run waits for memory or for another resource of its executor."""


def waits_for_nothing(_state: JobState, _run: Run, _now: datetime) -> bool:
    return False


def runs_in_state(
    state: JobState, now: datetime, waits_for_resources: WaitsForResources = waits_for_nothing
) -> Iterator[RunView]:
    """Yield every run of the job state: alive, waiting, and ended but perhaps not recorded.

    Runs fired ahead of their time are left out. A change may still take them back without a trace.
    A run that waits for resources is QUEUED in the state, and WAITING in its view.
    """
    for run in (*state.runs, *state.unrecorded):
        if is_fired_early(run, now):
            continue
        if run.status is RunStatus.QUEUED and waits_for_resources(state, run, now):
            run = replace(run, status=RunStatus.WAITING, reason=Reason.RESOURCES)
        yield _view_of_run(state, run)
    for waiting in state.wait_queue:
        yield _view_of_run(state, run_of_waiting(state, waiting))


def is_fired_early(run: Run, now: datetime) -> bool:
    return (
        run.due_at > now
        and run.status is RunStatus.QUEUED
        and run.trigger is Trigger.SCHEDULE
        and not run.has_begun
    )


def _view_of_run(state: JobState, run: Run) -> RunView:
    rules = state.rules.get(run.definition, state.current_rules)
    return RunView(
        *(state.tenant, state.job_id, run, NO_DETAIL, TZDATA_VERSION), task_type=rules.task_type
    )


def view_of_row(row: RunRow) -> RunView:
    return RunView(
        *(row.tenant, row.job_id, row.run, row.detail, row.tzdata),
        task_type=row.task_type,
        label=row.label,
    )


def label_of(definition: DefinitionRow) -> JobLabel:
    return JobLabel(definition.name, definition.tags)


def run_of_waiting(state: JobState, waiting: WaitingRun) -> Run:
    return waiting_run(waiting, is_paused=state.status is JobStatus.PAUSED)


def waiting_run(waiting: WaitingRun, *, is_paused: bool) -> Run:
    """Return the run of an entry of a wait queue. A paused job holds back scheduled runs only."""
    is_held_back = is_paused and waiting.trigger is Trigger.SCHEDULE
    reason = Reason.PAUSED if is_held_back else Reason.CONCURRENCY
    return from_waiting(waiting, RunStatus.WAITING, waiting.created_at, reason=reason)


def covers(run: Run, at: datetime) -> bool:
    """Return whether this is the outcome of the occurrence at `at`."""
    if run.trigger is not Trigger.SCHEDULE:
        return False
    return run.scheduled_at <= at <= (run.last_at or run.scheduled_at)
