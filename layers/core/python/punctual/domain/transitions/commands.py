"""The commands of a person: update, pause, resume, cancel, run now, backfill."""

from datetime import datetime, timedelta

from punctual.domain.draft import Draft
from punctual.domain.durations import FUTURE_SLACK
from punctual.domain.events import Backfill, Resume, StartRun, Update
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import CatchUp, JobStatus
from punctual.domain.run import Reason, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.count import count_times
from punctual.domain.schedules.schedule import (
    Once,
    Schedule,
    is_occurrence,
    last_before,
    next_after,
)
from punctual.domain.transitions.attempts import (
    cancel_run,
    drop_the_rest,
    end_unstarted,
    is_one_alive,
    runs_are_used_up,
)
from punctual.domain.transitions.firing import (
    Stretch,
    counts_from_completion,
    next_after_or_none,
    settle,
    skip_many,
)
from punctual.domain.transitions.wait_queue import (
    admit,
    has_room,
    offer,
    stand_back,
    take_back_ahead,
    unclaimed,
)

_INSTANT = timedelta(microseconds=1)


def pause(d: Draft) -> None:
    """Pause the job. Scheduled runs that have not begun wait; requested runs go on."""
    if d.state is JobStatus.PAUSED:
        return
    settle(d)
    take_back_ahead(d)
    stand_back(d, [run for run in unclaimed(d) if run.trigger is Trigger.SCHEDULE])
    d.state = JobStatus.PAUSED
    d.client_changed()
    admit(d)


def resume(d: Draft, order: Resume) -> None:
    if d.state is not JobStatus.PAUSED:
        return
    policy = order.missed or d.limits.misfire
    d.state = JobStatus.SCHEDULED
    d.behind = CatchUp(until=d.now, policy=policy, paused=True)
    d.client_changed()
    settle(d)


def cancel(d: Draft) -> None:
    """Cancel the job. Waiting runs end, and holders get a cancel request."""
    if d.state is JobStatus.CANCELLED:
        return
    settle(d)
    take_back_ahead(d)
    _put_on_record(d, *_why_not(d))
    d.state = JobStatus.CANCELLED
    d.next_at = None
    d.client_changed()
    for run in list(d.runs):
        cancel_run(d, run, Reason.CANCELLED)
    line, d.line = d.line, []
    for waiting in line:
        end_unstarted(d, waiting, RunStatus.CANCELLED, Reason.CANCELLED)


def order(d: Draft, new: StartRun) -> None:
    """Add a requested run, at once or in the wait queue."""
    settle(d)
    _make_room_now(d)
    offer(
        d,
        WaitingRun(
            run_id=new.run_id,
            definition=d.definition,
            scheduled_at=new.scheduled_at or d.now,
            due_at=d.now,
            created_at=d.now,
            trigger=new.trigger,
            own_payload=new.own_payload,
            retried_from=new.retried_from,
        ),
    )


def _make_room_now(d: Draft) -> None:
    """Take back runs that were fired ahead if no place is free."""
    if not has_room(d):
        take_back_ahead(d)
        admit(d)


def backfill(d: Draft, asked: Backfill) -> None:
    settle(d)
    present = {run.run_id for run in (*d.runs, *d.ended)} | {w.run_id for w in d.line}
    for run_id, scheduled_at in asked.runs:
        if run_id not in present:
            _make_room_now(d)
            offer(
                d,
                WaitingRun(
                    run_id=run_id,
                    definition=d.definition,
                    scheduled_at=scheduled_at,
                    due_at=d.now,
                    created_at=d.now,
                    trigger=Trigger.BACKFILL,
                ),
            )


def update(d: Draft, new: Update) -> None:
    """Put a new definition in force. Existing runs keep theirs, but limits act at once."""
    settle(d)
    if new.schedule is not None:
        take_back_ahead(d)
        _put_on_record(d, RunStatus.SKIPPED, Reason.RESCHEDULED)
    d.client_changed()
    d.definition = d.edition
    d.rules = {**d.rules, d.edition: new.rules}
    d.limits = new.limits
    d.notify = new.notify
    d.kind = new.kind
    if new.schedule is not None:
        _take_up(d, new.schedule, new.asked_at or d.now)
    elif runs_are_used_up(d):
        drop_the_rest(d)
    elif d.head.limits.max_runs != d.limits.max_runs:
        _go_on(d)
    if d.state is JobStatus.COMPLETED and d.next_at is not None:
        d.state = JobStatus.SCHEDULED
    _keep_to_the_limit(d)
    settle(d)


def _go_on(d: Draft) -> None:
    """Set the next time after a change of `max_runs`, if nothing else will set it.

    For an interval that counts from completion, the outcome of a live run sets it.
    """
    if d.next_at is None and not (counts_from_completion(d) and is_one_alive(d)):
        d.next_at = next_after_or_none(d, max(d.mark or d.now, d.now))


def _why_not(d: Draft) -> tuple[RunStatus, Reason]:
    if d.state is JobStatus.PAUSED:
        return RunStatus.SKIPPED, Reason.PAUSED
    if d.behind is None:  # nothing was missed; the occurrence waits for its jitter
        return RunStatus.CANCELLED, Reason.CANCELLED
    return RunStatus.MISSED, Reason.OUTAGE


def _put_on_record(d: Draft, status: RunStatus, reason: Reason) -> None:
    """Record the due occurrences of a pause or an outage that the schedule will not evaluate."""
    if d.next_at is not None and d.next_at <= d.now:
        assert d.schedule is not None
        last, later = d.next_at, 0
        if not counts_from_completion(d):
            later = count_times(d.schedule, d.next_at, d.now)
        if later:
            last = last_before(d.schedule, d.now + _INSTANT) or last
        skip_many(d, Stretch(d.next_at, last, 1 + later), status, reason)
        d.mark = last
    d.behind = None


def _take_up(d: Draft, schedule: Schedule, asked_at: datetime) -> None:
    now = max(d.now, d.mark or d.now)
    d.mark = now if _has_fired(d, schedule) else first_mark(schedule, now, asked_at)
    d.schedule = schedule
    d.started = 0
    d.next_at = next_after(schedule, d.mark)


def _has_fired(d: Draft, new: Schedule) -> bool:
    """Return whether the time of a new one-time schedule has already fired."""
    if not isinstance(new, Once):
        return False
    known = {run.run_id for run in (*d.runs, *d.ended)} | {waiting.run_id for waiting in d.line}
    if occurrence_id(d.head.job_id, new.at) in known | {d.latest, d.latest_not_run}:
        return True
    if d.schedule is None or d.mark is None or not d.head.created_at < new.at <= d.mark:
        return False
    return is_occurrence(d.schedule, new.at)


def first_mark(schedule: Schedule, now: datetime, asked_at: datetime) -> datetime:
    """Return the time up to which a new schedule fires nothing.

    This is `now`, so earlier occurrences are not missed. A one-time schedule still runs if its
    time passed shortly before the request or during it.
    """
    if isinstance(schedule, Once) and asked_at - FUTURE_SLACK <= schedule.at <= now:
        return schedule.at - _INSTANT
    return now


def _keep_to_the_limit(d: Draft) -> None:
    """Move queued runs above a lowered limit to the wait queue. Begun runs go on."""
    if len(d.runs) > d.limits.max_concurrency:
        take_back_ahead(d)
    excess = len(d.runs) - d.limits.max_concurrency
    if excess > 0:
        stand_back(d, unclaimed(d)[-excess:])
