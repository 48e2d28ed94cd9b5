"""The places and the wait queue of a job: start runs, let them wait, and send them again."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.durations import RESEND, RESEND_MOST
from punctual.domain.job_state import JobStatus, Overlap
from punctual.domain.run import Reason, Run, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.schedule import occurrences
from punctual.domain.transitions.attempts import cancel_run, end_run, end_unstarted, queue_again

_INSTANT = timedelta(microseconds=1)
LINE_MOST = 1_500  # a DynamoDB row holds 400 KB, and all of these may end in one decision
ALL_MISSED = 1_000  # RUN_ALL runs at most the latest 1,000
Refusal = tuple[RunStatus, Reason]


def offer(d: Draft, new: WaitingRun) -> Refusal | None:
    """Queue a new run, or apply the overlap policy. Return the refusal, or None."""
    limit = d.deadline_of(new)
    if limit is not None and limit <= d.now:
        return RunStatus.MISSED, Reason.DEADLINE
    if has_room(d) and not any(_may_go(d, waiting) for waiting in d.line):
        queue(d, new)
        return None
    if _counts_as_waiting(new):
        if d.limits.overlap is Overlap.SKIP:
            return RunStatus.SKIPPED, Reason.OVERLAP
        if d.limits.overlap is Overlap.REPLACE:
            _make_way(d)
        elif _is_full(d):
            return RunStatus.SKIPPED, Reason.QUEUE_FULL
    d.line.append(new)
    d.latest = new.run_id
    return None


def _is_full(d: Draft) -> bool:
    waiting = sum(_counts_as_waiting(waiting) for waiting in d.line)
    return waiting >= d.limits.max_waiting or len(d.line) >= LINE_MOST


def room_to_catch_up(d: Draft) -> int:
    """Return how many missed occurrences RUN_ALL may still add to the wait queue."""
    waiting = sum(waiting.caught_up for waiting in d.line)
    return max(0, min(ALL_MISSED - waiting, LINE_MOST - len(d.line)))


def _counts_as_waiting(waiting: WaitingRun) -> bool:
    return waiting.trigger is Trigger.SCHEDULE and not waiting.caught_up


def _make_way(d: Draft) -> None:
    """Cancel the oldest scheduled runs, live before waiting, until one more fits.

    That is one run, or more if the limit was lowered.
    """
    active = [run for run in d.runs if not run.cancel]
    in_line = [waiting for waiting in d.line if _counts_as_waiting(waiting)]
    excess = len(active) + len(in_line) + 1 - d.limits.max_concurrency
    oldest = [run for run in active if run.trigger is Trigger.SCHEDULE][: max(0, excess)]
    for run in oldest:
        cancel_run(d, run, Reason.REPLACED)
    for waiting in in_line[: max(0, excess - len(oldest))]:
        d.line.remove(waiting)
        end_unstarted(d, waiting, RunStatus.CANCELLED, Reason.REPLACED)


def has_room(d: Draft) -> bool:
    return len(d.runs) < d.limits.max_concurrency


def _may_go(d: Draft, waiting: WaitingRun) -> bool:
    """Return whether the run may start. A pause holds scheduled runs, never requested runs."""
    return d.state is not JobStatus.PAUSED or waiting.trigger is not Trigger.SCHEDULE


def admit(d: Draft) -> None:
    """Queue runs for the free places: begun runs first, then runs of the wait queue."""
    for run in list(d.runs):
        if run.reason is Reason.CONCURRENCY and _going(d) < d.limits.max_concurrency:
            queue_again(d, run)
    while d.line and has_room(d):
        for index, waiting in enumerate(d.line):
            if _may_go(d, waiting):
                del d.line[index]
                queue(d, waiting, let_in_at=d.now if d.now > waiting.due_at else None)
                break
        else:
            return


def _going(d: Draft) -> int:
    return sum(run.held or run.status is RunStatus.QUEUED for run in d.runs)


def refuse_claim(d: Draft, run: Run) -> None:
    """Make a queued run wait after the limit was lowered. A begun run stays in `runs`."""
    if run.begun:
        d.put(replace(run, status=RunStatus.WAITING, reason=Reason.CONCURRENCY, changed_at=d.now))
    else:
        stand_back(d, [run])


def queue(d: Draft, new: WaitingRun, let_in_at: datetime | None = None) -> None:
    run = Run(
        run_id=new.run_id,
        status=RunStatus.QUEUED,
        definition=new.definition,
        scheduled_at=new.scheduled_at,
        due_at=new.due_at,
        created_at=new.created_at,
        changed_at=d.now,
        trigger=new.trigger,
        own_payload=new.own_payload,
        retried_from=new.retried_from,
        sent_at=max(d.now, new.due_at),
        sends=1,
        let_in_at=let_in_at,
    )
    d.runs.append(run)
    d.sends.append(run)
    if d.head.latest != new.run_id:
        d.latest = new.run_id


def expire(d: Draft) -> None:
    """End the runs that did not start by their deadline."""
    for run in list(d.runs):
        if run.status is RunStatus.QUEUED and not run.begun:
            limit = d.deadline_of(run)
            if limit is not None and limit <= d.now:
                end_run(d, run, RunStatus.MISSED, Reason.DEADLINE)
    for waiting in list(d.line):
        limit = d.deadline_of(waiting)
        if limit is not None and limit <= d.now:
            d.line.remove(waiting)
            end_unstarted(d, waiting, RunStatus.MISSED, Reason.DEADLINE)


def waiting_of(run: Run) -> WaitingRun:
    """Return an unclaimed queued run as an entry of the wait queue."""
    return WaitingRun(
        run_id=run.run_id,
        definition=run.definition,
        scheduled_at=run.scheduled_at,
        due_at=run.due_at,
        created_at=run.created_at,
        trigger=run.trigger,
        own_payload=run.own_payload,
        retried_from=run.retried_from,
    )


def unclaimed(d: Draft) -> list[Run]:
    return [run for run in d.runs if run.status is RunStatus.QUEUED and not run.begun]


def ahead(d: Draft) -> list[Run]:
    """Return the unclaimed runs that were fired ahead of their due time."""
    return [run for run in unclaimed(d) if run.trigger is Trigger.SCHEDULE and run.due_at > d.now]


def take_back_ahead(d: Draft) -> None:
    """Take back the unclaimed runs that were fired ahead. They leave no outcome."""
    early = ahead(d)
    if not early:
        return
    first = min(run.scheduled_at for run in early)
    for run in early:
        d.remove(run.run_id)
        d.sends = [sent for sent in d.sends if sent.run_id != run.run_id]
        d.not_latest(run.run_id)
    d.mark = _last_before(d, first)
    d.next_at = first


def _last_before(d: Draft, first: datetime) -> datetime:
    """Return the time up to which all occurrences are settled.

    This is now, or the last occurrence that was fired ahead and has ended.
    """
    last = min(d.now, first - _INSTANT)
    if d.schedule is not None:
        for at in occurrences(d.schedule, d.now, first - _INSTANT):
            last = at
    return last


def stand_back(d: Draft, runs: Iterable[Run]) -> None:
    """Return unclaimed queued runs to the front of the wait queue, in order."""
    back = list(runs)
    for run in back:
        d.remove(run.run_id)
        d.sends = [sent for sent in d.sends if sent.run_id != run.run_id]
    d.line[:0] = [waiting_of(run) for run in back]


def wake_backoffs(d: Draft) -> None:
    """Queue the next attempt of each run after its backoff."""
    for run in list(d.runs):
        if run.reason is Reason.BACKOFF and run.next_at is not None and run.next_at <= d.now:
            again = replace(
                run,
                status=RunStatus.QUEUED,
                reason=Reason.NONE,
                next_at=None,
                changed_at=d.now,
                sent_at=d.now,
                sends=1,
            )
            d.put(again)
            d.sends.append(again)


def resend_at(run: Run) -> datetime:
    """Return when a queued run is sent again: its message is then assumed to be lost."""
    doubled: int = 2 ** max(0, run.sends - 1)
    patience = min(RESEND * doubled, RESEND_MOST)
    return (run.sent_at or run.due_at) + patience


def send_again(d: Draft) -> None:
    """Send queued runs again that no executor claimed in time. Their messages may be lost."""
    for run in list(d.runs):
        if run.status is not RunStatus.QUEUED or run.sent_at is None:
            continue
        if d.now >= resend_at(run):
            again = replace(run, sent_at=d.now, sends=min(run.sends + 1, 6), changed_at=d.now)
            d.put(again)
            d.sends.append(again)
