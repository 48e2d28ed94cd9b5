"""The commands of a person: update, cancel, run now, backfill."""

from datetime import datetime

from punctual.domain.draft import Draft
from punctual.domain.durations import SCHEDULE_TIME_TOLERANCE
from punctual.domain.events import Backfill, StartRun, Update
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import JobStatus
from punctual.domain.run import Reason, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import (
    Once,
    Schedule,
    is_occurrence,
    last_before,
    next_after,
)
from punctual.domain.schedules.values import counts_from_completion
from punctual.domain.transitions.attempts import (
    cancel_run,
    end_waiting_run,
    has_scheduled_run,
    is_max_runs_reached,
    skip_unstarted_runs,
)
from punctual.domain.transitions.firing import (
    OccurrenceRange,
    next_after_or_none,
    process_due,
    record_not_run,
)
from punctual.domain.transitions.wait_queue import (
    admit,
    has_room,
    offer,
    requeue_front,
    take_back_fired_ahead,
    unclaimed_runs,
)
from punctual.domain.utc import MICROSECOND


def cancel(draft: Draft) -> None:
    """Cancel the job. Waiting runs end, and holders get a cancel request."""
    if draft.status is JobStatus.CANCELLED:
        return
    process_due(draft)
    take_back_fired_ahead(draft)
    _record_due_occurrences(draft, *_unfired_outcome(draft))
    draft.status = JobStatus.CANCELLED
    draft.pause = None
    draft.next_at = None
    draft.mark_client_change()
    for run in list(draft.runs):
        cancel_run(draft, run, Reason.CANCELLED)
    wait_queue, draft.wait_queue = draft.wait_queue, []
    for waiting in wait_queue:
        end_waiting_run(draft, waiting, RunStatus.CANCELLED, Reason.CANCELLED)


def start_run(draft: Draft, event: StartRun) -> None:
    """Add a requested run, at once or in the wait queue."""
    process_due(draft)
    _make_room(draft)
    offer(
        draft,
        WaitingRun(
            run_id=event.run_id,
            definition=draft.definition,
            scheduled_at=event.scheduled_at or draft.now,
            due_at=draft.now,
            created_at=draft.now,
            trigger=event.trigger,
            has_own_payload=event.has_own_payload,
            retried_from=event.retried_from,
        ),
    )


def _make_room(draft: Draft) -> None:
    """Take back runs that were fired ahead if no place is free."""
    if not has_room(draft):
        take_back_fired_ahead(draft)
        admit(draft)


def backfill(draft: Draft, event: Backfill) -> None:
    process_due(draft)
    present_run_ids = {run.run_id for run in (*draft.runs, *draft.unrecorded)} | {
        waiting.run_id for waiting in draft.wait_queue
    }
    for run_id, scheduled_at in event.runs:
        if run_id not in present_run_ids:
            _make_room(draft)
            offer(
                draft,
                WaitingRun(
                    run_id=run_id,
                    definition=draft.definition,
                    scheduled_at=scheduled_at,
                    due_at=draft.now,
                    created_at=draft.now,
                    trigger=Trigger.BACKFILL,
                ),
            )


def update(draft: Draft, event: Update) -> None:
    """Put a new definition in force. Existing runs keep theirs, but limits act at once."""
    process_due(draft)
    if event.schedule is not None:
        take_back_fired_ahead(draft)
        _record_due_occurrences(draft, RunStatus.SKIPPED, Reason.RESCHEDULED)
    draft.mark_client_change()
    draft.definition = draft.edition
    draft.rules = {**draft.rules, draft.edition: event.rules}
    draft.limits = event.limits
    draft.notify = event.notify
    draft.kind = event.kind
    if event.schedule is not None:
        _start_schedule(draft, event.schedule, event.requested_at or draft.now)
    elif is_max_runs_reached(draft):
        skip_unstarted_runs(draft)
    elif draft.original.limits.max_runs != draft.limits.max_runs:
        _restore_next_at(draft)
    if draft.status is JobStatus.COMPLETED and draft.next_at is not None:
        draft.status = JobStatus.SCHEDULED
    _apply_concurrency_limit(draft)
    process_due(draft)


def _restore_next_at(draft: Draft) -> None:
    """Set the next time after a change of `max_runs`, if nothing else will set it.

    For an interval that counts from completion, the outcome of a live run sets it.
    """
    if draft.next_at is None and not (
        counts_from_completion(draft.schedule) and has_scheduled_run(draft)
    ):
        draft.next_at = next_after_or_none(draft, max(draft.planned_until or draft.now, draft.now))


def _unfired_outcome(draft: Draft) -> tuple[RunStatus, Reason]:
    if draft.status is JobStatus.PAUSED:
        return RunStatus.SKIPPED, Reason.PAUSED
    if draft.catch_up is None:  # nothing was missed; the occurrence waits for its jitter
        return RunStatus.CANCELLED, Reason.CANCELLED
    return RunStatus.MISSED, Reason.OUTAGE


def _record_due_occurrences(draft: Draft, status: RunStatus, reason: Reason) -> None:
    """Record the due occurrences of a pause or an outage that the schedule will not evaluate."""
    if draft.next_at is not None and draft.next_at <= draft.now:
        assert draft.schedule is not None
        last_at, later_count = draft.next_at, 0
        if not counts_from_completion(draft.schedule):
            later_count = count_times(draft.schedule, draft.next_at, draft.now)
        if later_count:
            last_at = last_before(draft.schedule, draft.now + MICROSECOND) or last_at
        record_not_run(
            draft, OccurrenceRange(draft.next_at, last_at, 1 + later_count), status, reason
        )
        draft.planned_until = last_at
    draft.catch_up = None


def _start_schedule(draft: Draft, schedule: Schedule, requested_at: datetime) -> None:
    planned_until = draft.planned_until or draft.now
    if draft.schedule is not None and is_occurrence(draft.schedule, planned_until):
        draft.settle_ahead(planned_until)
    now = max(draft.now, planned_until, *draft.settled_ahead)
    draft.planned_until = (
        now if _has_fired(draft, schedule) else first_planned_until(schedule, now, requested_at)
    )
    draft.schedule = schedule
    draft.started_runs = 0
    draft.next_at = next_after(schedule, draft.planned_until)


def _has_fired(draft: Draft, schedule: Schedule) -> bool:
    """Return whether the time of a new one-time schedule has already fired."""
    if not isinstance(schedule, Once):
        return False
    known_run_ids = {run.run_id for run in (*draft.runs, *draft.unrecorded)} | {
        waiting.run_id for waiting in draft.wait_queue
    }
    if occurrence_id(draft.original.job_id, schedule.at) in known_run_ids | {
        draft.latest_run_id,
        draft.latest_not_run_id,
    }:
        return True
    if schedule.at in draft.settled_ahead:
        return True
    if (
        draft.schedule is None
        or draft.planned_until is None
        or not draft.original.created_at < schedule.at <= draft.planned_until
    ):
        return False
    return is_occurrence(draft.schedule, schedule.at)


def first_planned_until(schedule: Schedule, now: datetime, requested_at: datetime) -> datetime:
    """Return the time up to which a new schedule fires nothing.

    This is `now`, so earlier occurrences are not missed. A one-time schedule still runs if its
    time passed shortly before the request or during it.
    """
    if isinstance(schedule, Once) and requested_at - SCHEDULE_TIME_TOLERANCE <= schedule.at <= now:
        return schedule.at - MICROSECOND
    return now


def _apply_concurrency_limit(draft: Draft) -> None:
    """Move queued runs above a lowered limit to the wait queue. Begun runs go on."""
    if len(draft.runs) > draft.limits.max_concurrency:
        take_back_fired_ahead(draft)
    excess = len(draft.runs) - draft.limits.max_concurrency
    if excess > 0:
        requeue_front(draft, unclaimed_runs(draft)[-excess:])
