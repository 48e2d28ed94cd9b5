"""Why something ran, or did not, at a time: from the ledger and the definition in force then."""

from datetime import datetime, timedelta

from punctual.domain.head import Head, State
from punctual.domain.placement import occurrence_id, sortable_id
from punctual.domain.run import NOT_RUN, Reason, Run, Status
from punctual.domain.schedule import (
    Once,
    Schedule,
    is_excluded,
    is_occurrence,
    next_after,
    occurrences,
)
from punctual.engine import runs as views
from punctual.engine.backfilling import backfill_id
from punctual.engine.definition import compiled
from punctual.engine.documents import Documents
from punctual.engine.ports import Body, Key, Ports, RunKey
from punctual.engine.views import Explanation

_INSTANT = timedelta(microseconds=1)
_SHOWN = timedelta(milliseconds=1)
_BACK = (60, 3_600, 86_400, 32 * 86_400, 400 * 86_400, 8 * 366 * 86_400)
_ROWS = 200


class Explaining:
    def __init__(self, ports: Ports, documents: Documents) -> None:
        self._ports = ports
        self._documents = documents

    def explain(self, key: Key, head: Head, body: Body, at: datetime, now: datetime) -> Explanation:
        schedule = self._schedule_then(key, head, body, at)
        at = _meant(schedule, at)
        run = self._outcome(key, head, at, now)
        fires = run is not None or (schedule is not None and is_occurrence(schedule, at))
        outcome, reason = self._say(head, schedule, at, now, fires, run)
        return Explanation(
            at=at,
            occurrence=at if fires else None,
            outcome=outcome,
            reason=reason,
            run_id=None if run is None else run.run_id,
            previous=None if schedule is None else _previous(schedule, at),
            next=None if schedule is None else next_after(schedule, at),
        )

    def _schedule_then(self, key: Key, head: Head, body: Body, at: datetime) -> Schedule | None:
        """The schedule that was, or will be, in force at that time."""
        if at >= body.created_at or not body.previous:
            return head.schedule
        for former in self._documents.history(key, body):
            if at >= former.created_at or not former.previous:
                meaning = compiled(former.document, key.job_id, former.ref, former.created_at)
                return meaning.schedule
        return head.schedule

    def _outcome(self, key: Key, head: Head, at: datetime, now: datetime) -> Run | None:
        """What became of the occurrence at that time; if it did not run, the backfill that did."""
        own = self._entry(key, head, at, now)
        if own is not None and own.status not in NOT_RUN:
            return own
        made_up, again = None, 0
        while run := self._find(key, head, backfill_id(key.job_id, at, again), now):
            made_up, again = run, again + 1
        return made_up or own

    def _entry(self, key: Key, head: Head, at: datetime, now: datetime) -> Run | None:
        """The ledger's entry for the occurrence at that time, its own or one in bulk."""
        for view in views.in_head(head, now):
            if views.covers(view.run, at):
                return view.run
        own = self._find(key, head, occurrence_id(key.job_id, at), now)
        if own is not None:
            return own
        until = sortable_id(at + timedelta(milliseconds=1), bytes(10))
        for row in self._ports.history.page(key, until, None, _ROWS, now):
            if views.covers(row.run, at):
                return row.run
        return None

    def _find(self, key: Key, head: Head, run_id: str, now: datetime) -> Run | None:
        for view in views.in_head(head, now):
            if view.run.run_id == run_id:
                return view.run
        wanted = RunKey(*key, run_id)
        row = self._ports.history.get([wanted], now).get(wanted)
        return None if row is None else row.run

    def _say(
        self,
        head: Head,
        schedule: Schedule | None,
        at: datetime,
        now: datetime,
        fires: bool,
        run: Run | None,
    ) -> tuple[str, str]:
        if run is not None:
            return run.status.value, _of_run(run)
        if not fires:
            if schedule is not None and is_excluded(schedule, at):
                return "EXCLUDED", "The job's exclude list names this date."
            return "NOT_SCHEDULED", "The schedule in force has no occurrence at this time."
        if head.state is State.CANCELLED and at >= head.updated_at:
            return "CANCELLED", "The job was cancelled before this time."
        if head.state is State.PAUSED and (head.mark is None or at > head.mark):
            return "PAUSED", "The job is paused: resume decides what becomes of this occurrence."
        if at < head.created_at and not isinstance(schedule, Once):
            return "NOT_SCHEDULED", "The job did not exist yet: nothing before its creation is due."
        if at + head.limits.jitter >= now or head.next_at == at:
            return "PLANNED", "It is still to come."
        if head.next_at is None or at < head.next_at:
            return (
                "NOT_SCHEDULED",
                "No outcome is kept: it lies before a change or past retention.",
            )
        return "PLANNED", "It is due and about to be looked at."


def _meant(schedule: Schedule | None, at: datetime) -> datetime:
    """The occurrence that is shown as `at`, which has whole milliseconds; else `at` itself."""
    if schedule is None or at.microsecond % 1_000:
        return at
    found = next_after(schedule, at - _INSTANT)
    return found if found is not None and found - at < _SHOWN else at


def _of_run(run: Run) -> str:
    if run.reason is Reason.NONE:
        return {
            Status.QUEUED: "It is due and waits for an executor.",
            Status.SUCCESS: "It ran and succeeded.",
            Status.FAILED: "It ran, and its last attempt failed.",
            Status.TIMED_OUT: "It ran, and its last attempt took longer than timeout_seconds.",
        }.get(run.status, f"It is {run.status}.")
    return REASONS[run.reason]


REASONS = {
    Reason.CONCURRENCY: "It waits: as many runs as max_concurrency allows are active.",
    Reason.PAUSED: "The job is or was paused then.",
    Reason.BACKOFF: "An attempt failed or could not be begun; the next follows after a delay.",
    Reason.OVERLAP: "Skipped: an earlier run was still active and overlap_policy is SKIP.",
    Reason.QUEUE_FULL: "Skipped: max_waiting runs stood in line already.",
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


def _previous(schedule: Schedule, at: datetime) -> datetime | None:
    """The occurrence before `at`, sought in ever longer windows, the last of them bounded."""
    if isinstance(schedule, Once):
        return schedule.at if schedule.at < at else None
    for seconds in _BACK:
        start = at - timedelta(seconds=seconds)
        found = None
        for count, moment in enumerate(occurrences(schedule, start, at - _INSTANT)):
            found = moment
            if count > 100_000:
                break
        if found is not None:
            return found
    return None
