"""Explains why a job ran or not at a time, from the ledger and the definition in force."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.durations import RETENTION
from punctual.domain.identifiers import occurrence_id, sortable_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import NOT_RUN, Reason, Run, RunStatus, Trigger
from punctual.domain.schedules.cron.instants import in_zone_of
from punctual.domain.schedules.schedule import (
    Once,
    Schedule,
    is_excluded,
    is_occurrence,
    last_before,
    next_after,
)
from punctual.domain.schedules.upcoming import last_coming
from punctual.engine.commands.backfill import backfill_id
from punctual.engine.commands.definitions_store import Definitions
from punctual.engine.ports.history import History
from punctual.engine.ports.rows import DefinitionRow, Key, RunKey
from punctual.engine.queries import run_views as views
from punctual.engine.queries.definitions_over_time import Period, periods
from punctual.engine.queries.slices import Sliced
from punctual.engine.queries.views import Explanation

_INSTANT = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)
_ROWS = 200
_USED_UP = "max_runs scheduled runs have started, or will have, before this time."


class Explainer:
    def __init__(self, history: History, documents: Definitions) -> None:
        self._history = history
        self._documents = documents

    def explain(
        self, key: Key, head: JobState, body: DefinitionRow, at: datetime | None, now: datetime
    ) -> Sliced[Explanation]:
        """Explain the occurrence within the second of `at`, or without `at` the last due one.

        A time without a zone is in the job's zone.
        """
        if at is None:
            at = (yield from self._last_due(key, head, body, now)) or head.next_at or now
        elif at.tzinfo is None:
            at = in_zone_of(head.schedule, at)
        then = yield from self._in_force(key, head, body, at)
        at = _meant(head, then, at)
        run = self._outcome(key, head, at, now)
        if run is not None and run.trigger is Trigger.SCHEDULE and not views.covers(run, at):
            at = run.scheduled_at
        fires = run is not None or _fires(head, then, at)
        following = _next(head, then, at)
        last = None if then.until is not None else last_coming(head, following or at)
        outcome, reason = _said(run) if run else _say(head, then, at, now, fires, last)
        if last is not None and following is not None and following > last:
            following = None
        return Explanation(
            at=at,
            occurrence=at if fires else None,
            outcome=outcome,
            reason=reason,
            run_id=None if run is None else run.run_id,
            previous=_previous(then, at if last is None else min(at, last + _INSTANT)),
            next=following,
        )

    def _in_force(
        self, key: Key, head: JobState, body: DefinitionRow, at: datetime
    ) -> Sliced[Period]:
        """Return the definition in force at that time."""
        earliest: Period | None = None
        for period in periods(head, self._documents.history(key, body)):
            if period is not None:
                earliest = period
                if period.since is None or at >= period.since:
                    break
            yield
        assert earliest is not None  # the present definition always yields a period
        return earliest

    def _last_due(
        self, key: Key, head: JobState, body: DefinitionRow, now: datetime
    ) -> Sliced[datetime | None]:
        """Return the latest time that was due by now, by the definition in force at that time."""
        before = now - head.limits.jitter + _INSTANT
        for then in periods(head, self._documents.history(key, body)):
            yield
            if then is None:
                continue
            end = before if then.until is None else min(before, then.until)
            last = self._last_of(key, head, then, end, now)
            if last is None:
                continue
            is_first = then.since is None and not isinstance(then.schedule, Once)
            since = head.created_at if is_first else then.since
            if since is None or last >= since:
                return last
        return None

    def _last_of(
        self, key: Key, head: JobState, then: Period, before: datetime, now: datetime
    ) -> datetime | None:
        """Return the last time of one definition that lies before a time."""
        if not then.counts_from_completion:
            last = None if then.until is not None else last_coming(head, before)
            return last_before(
                then.schedule, before if last is None else min(before, last + _INSTANT)
            )
        alive = (view.run for view in views.in_head(head, now))
        kept = (row.run for row in self._history.page(key, None, None, _ROWS, now))
        times = [
            run.last_at or run.scheduled_at
            for run in (*alive, *kept)
            if run.trigger is Trigger.SCHEDULE
        ]
        if then.until is None and head.next_at is not None:
            times.append(head.next_at)
        return max((at for at in times if at < before), default=None)

    def _outcome(self, key: Key, head: JobState, at: datetime, now: datetime) -> Run | None:
        """Return the run of the occurrence. If it did not run, return its latest backfill run."""
        own = self._entry(key, head, at, now)
        if own is not None and own.status not in NOT_RUN:
            return own
        made_up, again = None, 0
        while run := self._find(key, head, backfill_id(key.job_id, at, again), now):
            made_up, again = run, again + 1
        return made_up or own

    def _entry(self, key: Key, head: JobState, at: datetime, now: datetime) -> Run | None:
        """Return the ledger entry of the occurrence, either its own or a bulk entry."""
        own = self._find(key, head, occurrence_id(key.job_id, at), now)
        if own is not None:
            return own
        for view in views.in_head(head, now):
            if _is_of(view.run, at):
                return view.run
        until = sortable_id(at.replace(microsecond=0) + _SECOND, bytes(10))
        for row in self._history.page(key, until, None, _ROWS, now):
            if _is_of(row.run, at):
                return row.run
        return None

    def _find(self, key: Key, head: JobState, run_id: str, now: datetime) -> Run | None:
        for view in views.in_head(head, now):
            if view.run.run_id == run_id:
                return view.run
        wanted = RunKey(*key, run_id)
        row = self._history.get([wanted], now).get(wanted)
        return None if row is None else row.run


def _say(
    head: JobState, then: Period, at: datetime, now: datetime, fires: bool, last: datetime | None
) -> tuple[str, str]:
    """Return the code and reason for a time without an outcome. No occurrence follows `last`."""
    present = then.until is None
    if not fires:
        if is_excluded(then.schedule, at):
            return "EXCLUDED", "The job's exclude list names this date."
        return "NOT_SCHEDULED", "The schedule in force has no occurrence at this time."
    if head.state is JobStatus.CANCELLED and at >= head.updated_at:
        return "CANCELLED", "The job was cancelled before this time."
    if at < head.created_at and not isinstance(then.schedule, Once):
        return "NOT_SCHEDULED", "The job did not exist yet: nothing before its creation is due."
    if last is not None and at > last:
        if then.max_runs is not None:
            return "NOT_SCHEDULED", _USED_UP
        return "NOT_SCHEDULED", f"The job is {head.state}: nothing more comes."
    if present and head.state is JobStatus.PAUSED and (head.mark is None or at > head.mark):
        return "PAUSED", "The job is paused: resume decides what becomes of this occurrence."
    if present and (at + head.limits.jitter >= now or head.next_at == at):
        return "PLANNED", "It is still to come."
    if present and head.next_at is not None and at >= head.next_at:
        return "PLANNED", "It is due and about to be looked at."
    if then.max_runs is not None and at >= now - RETENTION:
        return "NOT_SCHEDULED", _USED_UP
    return "NOT_SCHEDULED", "No outcome is kept: it lies before a change or past retention."


def _fires(head: JobState, then: Period, at: datetime) -> bool:
    """Return whether an occurrence lies at this time.

    An interval from completion has only its first time and the one in the job state.
    """
    if then.until is None and head.next_at == at:
        return True
    return is_occurrence(then.schedule, at)


def _next(head: JobState, then: Period, at: datetime) -> datetime | None:
    """Return the occurrence after `at`, or None if it depends on the end of a run."""
    following = next_after(then.schedule, at)
    if following is None or not then.counts_from_completion:
        return following
    if is_occurrence(then.schedule, following):
        return following  # the first occurrence
    known = then.until is None and head.mark is not None and at >= head.mark
    return head.next_at if known and head.next_at is not None and head.next_at > at else None


def _meant(head: JobState, then: Period, at: datetime) -> datetime:
    """Return the occurrence within the second of `at`, or `at` itself.

    Times are shown in seconds, and an occurrence may lie within a second.
    """
    if _fires(head, then, at):
        return at
    if then.until is None and head.next_at is not None and _is_within_second(head.next_at, at):
        return head.next_at
    return _within_second(then.schedule, at) or _within_second(_bare(then.schedule), at) or at


def _within_second(schedule: Schedule, at: datetime) -> datetime | None:
    found = next_after(schedule, at.replace(microsecond=0) - _INSTANT)
    if found is None or not _is_within_second(found, at) or not is_occurrence(schedule, found):
        return None
    return found


def _bare(schedule: Schedule) -> Schedule:
    return schedule if isinstance(schedule, Once) else replace(schedule, exclude=())


def _is_within_second(moment: datetime, at: datetime) -> bool:
    return moment.replace(microsecond=0) == at.replace(microsecond=0)


def _is_of(run: Run, at: datetime) -> bool:
    """Return whether this is the outcome of `at`.

    An interval from completion has the microseconds of a run's end, so seconds are compared.
    """
    own = run.trigger is Trigger.SCHEDULE and _is_within_second(run.scheduled_at, at)
    return own or views.covers(run, at)


def _said(run: Run) -> tuple[str, str]:
    return run.status.value, _of_run(run)


def _of_run(run: Run) -> str:
    if run.reason is Reason.NONE:
        return {
            RunStatus.QUEUED: "It is due and waits for an executor.",
            RunStatus.SUCCESS: "It ran and succeeded.",
            RunStatus.FAILED: "It ran, and its last attempt failed.",
            RunStatus.TIMED_OUT: "It ran, and its last attempt took longer than timeout_seconds.",
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


def _previous(then: Period, at: datetime) -> datetime | None:
    return None if then.counts_from_completion else last_before(then.schedule, at)
