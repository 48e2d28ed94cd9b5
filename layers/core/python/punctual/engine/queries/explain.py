"""Explains why a job ran or not at a time, from its runs and the definition in force."""

from datetime import datetime

from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.identifiers import occurrence_id, sortable_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import NOT_RUN_STATUSES, Reason, Run, RunStatus, Trigger
from punctual.domain.schedules.cron.instants import local_to_instant
from punctual.domain.schedules.schedule import (
    Once,
    Schedule,
    is_excluded,
    is_occurrence,
    last_before,
    next_after,
)
from punctual.domain.schedules.upcoming import last_occurrence_at
from punctual.domain.utc import MICROSECOND, SECOND
from punctual.engine.commands.backfill import HISTORY_PAGE_SIZE, backfill_id
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import DefinitionRow, JobKey, RunKey
from punctual.engine.queries import run_views
from punctual.engine.queries.definitions_over_time import Period, periods
from punctual.engine.queries.run_views import WaitsForResources
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Explanation

_MAX_RUNS_REACHED_TEXT = "max_runs scheduled runs have started, or will have, before this time."


class Explainer:
    def __init__(
        self, history: History, definitions: Definitions, waits_for_resources: WaitsForResources
    ) -> None:
        self._waits_for_resources = waits_for_resources
        self._history = history
        self._definitions = definitions

    def explain(
        self,
        key: JobKey,
        state: JobState,
        definition: DefinitionRow,
        at: datetime | None,
        now: datetime,
    ) -> Sliced[Explanation]:
        """Explain the occurrence within the second of `at`, or without `at` the last due one.

        A time without a zone is in the job's zone.
        """
        if at is None:
            at = (yield from self._last_due(key, state, definition, now)) or state.next_at or now
        elif at.tzinfo is None:
            at = local_to_instant(state.schedule, at)
        period = yield from self._period_at(key, state, definition, at)
        at = _nearby_occurrence(state, period, at)
        run = self._find_outcome(key, state, at, now)
        if run is not None and run.trigger is Trigger.SCHEDULE and not run_views.covers(run, at):
            at = run.scheduled_at
        has_occurrence = run is not None or _has_occurrence(state, period, at)
        next_at = _next_occurrence(state, period, at)
        last_at = None if period.until is not None else last_occurrence_at(state, next_at or at)
        outcome, reason = (
            _recorded_outcome(run)
            if run
            else _outcome_without_run(state, period, at, now, has_occurrence, last_at)
        )
        if last_at is not None and next_at is not None and next_at > last_at:
            next_at = None
        return Explanation(
            at=at,
            occurrence=at if has_occurrence else None,
            outcome=outcome,
            reason=reason,
            run_id=None if run is None else run.run_id,
            previous=_previous_occurrence(
                period, at if last_at is None else min(at, last_at + MICROSECOND)
            ),
            next=next_at,
        )

    def _period_at(
        self, key: JobKey, state: JobState, definition: DefinitionRow, at: datetime
    ) -> Sliced[Period]:
        """Return the definition in force at that time."""
        earliest: Period | None = None
        for period in periods(state, self._definitions.history(key, definition)):
            if period is not None:
                earliest = period
                if period.since is None or at >= period.since:
                    break
            yield
        assert earliest is not None  # the present definition always yields a period
        return earliest

    def _last_due(
        self, key: JobKey, state: JobState, definition: DefinitionRow, now: datetime
    ) -> Sliced[datetime | None]:
        """Return the latest time that was due by now, by the definition in force at that time."""
        before = now - state.limits.jitter + MICROSECOND
        for period in periods(state, self._definitions.history(key, definition)):
            yield
            if period is None:
                continue
            end = before if period.until is None else min(before, period.until)
            last_at = self._last_of_period(key, state, period, end, now)
            if last_at is None:
                continue
            is_first = period.since is None and not isinstance(period.schedule, Once)
            since = state.created_at if is_first else period.since
            if since is None or last_at >= since:
                return last_at
        return None

    def _last_of_period(
        self, key: JobKey, state: JobState, period: Period, before: datetime, now: datetime
    ) -> datetime | None:
        """Return the last time of one definition that lies before a time."""
        if not period.counts_from_completion:
            last_at = None if period.until is not None else last_occurrence_at(state, before)
            return last_before(
                period.schedule, before if last_at is None else min(before, last_at + MICROSECOND)
            )
        runs_in_state = (
            view.run for view in run_views.runs_in_state(state, now, self._waits_for_resources)
        )
        recorded_runs = (
            row.run for row in self._history.page(key, None, None, HISTORY_PAGE_SIZE, now)
        )
        times = [
            run.last_at or run.scheduled_at
            for run in (*runs_in_state, *recorded_runs)
            if run.trigger is Trigger.SCHEDULE
        ]
        if period.until is None and state.next_at is not None:
            times.append(state.next_at)
        return max((at for at in times if at < before), default=None)

    def _find_outcome(
        self, key: JobKey, state: JobState, at: datetime, now: datetime
    ) -> Run | None:
        """Return the run of the occurrence. If it did not run, return its latest backfill run."""
        scheduled_run = self._find_scheduled_run(key, state, at, now)
        if scheduled_run is not None and scheduled_run.status not in NOT_RUN_STATUSES:
            return scheduled_run
        backfill_run, repeats = None, 0
        while run := self._find_run(key, state, backfill_id(key.job_id, at, repeats), now):
            backfill_run, repeats = run, repeats + 1
        return backfill_run or scheduled_run

    def _find_scheduled_run(
        self, key: JobKey, state: JobState, at: datetime, now: datetime
    ) -> Run | None:
        """Return the run of the occurrence: its own, or an entry for many occurrences."""
        run = self._find_run(key, state, occurrence_id(key.job_id, at), now)
        if run is not None:
            return run
        for view in run_views.runs_in_state(state, now, self._waits_for_resources):
            if _is_outcome_of(view.run, at):
                return view.run
        until = sortable_id(at.replace(microsecond=0) + SECOND, bytes(10))
        for row in self._history.page(key, until, None, HISTORY_PAGE_SIZE, now):
            if _is_outcome_of(row.run, at):
                return row.run
        return None

    def _find_run(self, key: JobKey, state: JobState, run_id: str, now: datetime) -> Run | None:
        for view in run_views.runs_in_state(state, now, self._waits_for_resources):
            if view.run.run_id == run_id:
                return view.run
        run_key = RunKey(*key, run_id)
        row = self._history.get([run_key], now).get(run_key)
        return None if row is None else row.run


def _outcome_without_run(
    state: JobState,
    period: Period,
    at: datetime,
    now: datetime,
    has_occurrence: bool,
    last_at: datetime | None,
) -> tuple[str, str]:
    """Return the code and reason for a time without an outcome. No occurrence follows `last_at`."""
    is_current = period.until is None
    if not has_occurrence:
        if is_excluded(period.schedule, at):
            return "EXCLUDED", "The job's exclude list names this date."
        return "NOT_SCHEDULED", "The schedule in force has no occurrence at this time."
    if state.status is JobStatus.CANCELLED and at >= state.updated_at:
        return "CANCELLED", "The job was cancelled before this time."
    if at < state.created_at and not isinstance(period.schedule, Once):
        return "NOT_SCHEDULED", "The job did not exist yet: nothing before its creation is due."
    if last_at is not None and at > last_at:
        if period.max_runs is not None:
            return "NOT_SCHEDULED", _MAX_RUNS_REACHED_TEXT
        return "NOT_SCHEDULED", f"The job is {state.status}: no occurrence follows."
    if (
        is_current
        and state.status is JobStatus.PAUSED
        and (state.planned_until is None or at > state.planned_until)
        and not _is_after_pause(state, at)
    ):
        return "PAUSED", "The job is paused: resume decides whether this occurrence runs."
    if is_current and (at + state.limits.jitter >= now or state.next_at == at):
        return "PLANNED", "It is still to come."
    if is_current and state.next_at is not None and at >= state.next_at:
        return "PLANNED", "It is due and about to be evaluated."
    if period.max_runs is not None and at >= now - HISTORY_RETENTION:
        return "NOT_SCHEDULED", _MAX_RUNS_REACHED_TEXT
    return "NOT_SCHEDULED", "No outcome is stored: the time lies before a change or past retention."


def _is_after_pause(state: JobState, at: datetime) -> bool:
    """Return whether the job will have resumed by itself at that time."""
    return state.pause is not None and state.pause.until is not None and at >= state.pause.until


def _has_occurrence(state: JobState, period: Period, at: datetime) -> bool:
    """Return whether an occurrence lies at this time.

    An interval from completion has only its first time and the one in the job state.
    """
    if period.until is None and state.next_at == at:
        return True
    return is_occurrence(period.schedule, at)


def _next_occurrence(state: JobState, period: Period, at: datetime) -> datetime | None:
    """Return the occurrence after `at`, or None if it depends on the end of a run."""
    next_at = next_after(period.schedule, at)
    if next_at is None or not period.counts_from_completion:
        return next_at
    if is_occurrence(period.schedule, next_at):
        return next_at  # the first occurrence
    is_current = (
        period.until is None and state.planned_until is not None and at >= state.planned_until
    )
    return (
        state.next_at if is_current and state.next_at is not None and state.next_at > at else None
    )


def _nearby_occurrence(state: JobState, period: Period, at: datetime) -> datetime:
    """Return the occurrence within the second of `at`, or `at` itself.

    Times are shown in seconds, and an occurrence may lie within a second.
    """
    if _has_occurrence(state, period, at):
        return at
    if period.until is None and state.next_at is not None and _is_same_second(state.next_at, at):
        return state.next_at
    return (
        _occurrence_in_second(period.schedule, at)
        or _occurrence_in_second(_without_exclusions(period.schedule), at)
        or at
    )


def _occurrence_in_second(schedule: Schedule, at: datetime) -> datetime | None:
    occurrence_at = next_after(schedule, at.replace(microsecond=0) - MICROSECOND)
    if (
        occurrence_at is None
        or not _is_same_second(occurrence_at, at)
        or not is_occurrence(schedule, occurrence_at)
    ):
        return None
    return occurrence_at


def _without_exclusions(schedule: Schedule) -> Schedule:
    return schedule if isinstance(schedule, Once) else replace(schedule, exclude=())


def _is_same_second(other_at: datetime, at: datetime) -> bool:
    return other_at.replace(microsecond=0) == at.replace(microsecond=0)


def _is_outcome_of(run: Run, at: datetime) -> bool:
    """Return whether this is the outcome of `at`.

    An interval from completion has the microseconds of a run's end, so seconds are compared.
    """
    is_same_occurrence = run.trigger is Trigger.SCHEDULE and _is_same_second(run.scheduled_at, at)
    return is_same_occurrence or run_views.covers(run, at)


def _recorded_outcome(run: Run) -> tuple[str, str]:
    return run.status.value, _reason_text(run)


def _reason_text(run: Run) -> str:
    if run.reason is Reason.NONE:
        return {
            RunStatus.QUEUED: "It is due and waits for an executor.",
            RunStatus.SUCCESS: "It ran and succeeded.",
            RunStatus.FAILED: "It ran, and its last attempt failed.",
            RunStatus.TIMED_OUT: "It ran, and its last attempt took longer than timeout_seconds.",
        }.get(run.status, f"It is {run.status}.")
    return REASON_TEXTS[run.reason]


REASON_TEXTS = {
    Reason.CONCURRENCY: "It waits: as many runs as max_concurrency allows are active.",
    Reason.RESOURCES: "It waits for room: earlier runs use the memory, places or processors.",
    Reason.PAUSED: "The job is or was paused then.",
    Reason.BACKOFF: "An attempt failed or could not be begun; the next follows after a delay.",
    Reason.OVERLAP: "Skipped: an earlier run was still active and overlap_policy is SKIP.",
    Reason.QUEUE_FULL: "Skipped: max_waiting runs were in the wait queue already.",
    Reason.COALESCED: "Skipped: several were missed, and RUN_ONCE runs only the latest of them.",
    Reason.RESCHEDULED: "Skipped: the schedule was changed while the job was paused.",
    Reason.MAX_RUNS: "Skipped: max_runs scheduled runs had started.",
    Reason.DEADLINE: "Missed: it could not start within deadline_seconds.",
    Reason.OUTAGE: "Missed: the scheduler was not running then.",
    Reason.REPLACED: "Cancelled: a newer run took its place (overlap_policy REPLACE).",
    Reason.CANCELLED: "Cancelled on request.",
    Reason.LOST: "Its executor stopped answering too often.",
    Reason.SHUTDOWN: "Its executor was shut down.",
    Reason.POISON: "Its message came back too often to be tried again.",
}


def _previous_occurrence(period: Period, at: datetime) -> datetime | None:
    return None if period.counts_from_completion else last_before(period.schedule, at)
