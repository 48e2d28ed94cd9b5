"""Room and line: what starts, what waits its turn, what goes back, what is announced again."""

from collections.abc import Iterable
from datetime import timedelta

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.ending import cancel_run, end_unstarted
from punctual.domain.head import Overlap, State
from punctual.domain.run import Reason, Run, Status, Trigger, Waiting
from punctual.domain.timing import RESEND, RESEND_MOST

_INSTANT = timedelta(microseconds=1)


def offer(d: Draft, new: Waiting) -> None:
    """Start a new run, or do with it what the overlap policy says."""
    limit = d.deadline_of(new)
    if limit is not None and limit <= d.now:
        end_unstarted(d, new, Status.MISSED, Reason.DEADLINE)
        return
    if has_room(d) and not any(_may_go(d, waiting) for waiting in d.line):
        queue(d, new)
    elif new.trigger is not Trigger.SCHEDULE or new.caught_up:
        _line_up(d, new)
    elif d.limits.overlap is Overlap.SKIP:
        end_unstarted(d, new, Status.SKIPPED, Reason.OVERLAP)
    elif d.limits.overlap is Overlap.REPLACE:
        _replace_oldest(d)
        _line_up(d, new)
    elif sum(_counts_as_waiting(waiting) for waiting in d.line) >= d.limits.max_waiting:
        end_unstarted(d, new, Status.SKIPPED, Reason.QUEUE_FULL)
    else:
        _line_up(d, new)


def _counts_as_waiting(waiting: Waiting) -> bool:
    return waiting.trigger is Trigger.SCHEDULE and not waiting.caught_up


def _line_up(d: Draft, new: Waiting) -> None:
    d.line.append(new)
    d.latest = new.run_id


def _replace_oldest(d: Draft) -> None:
    """Cancel the oldest scheduled run that is not being cancelled yet, be it active or in line."""
    for run in d.runs:
        if run.trigger is Trigger.SCHEDULE and not run.cancel:
            cancel_run(d, run, Reason.REPLACED)
            return
    for waiting in d.line:
        if waiting.trigger is Trigger.SCHEDULE:
            d.line.remove(waiting)
            end_unstarted(d, waiting, Status.CANCELLED, Reason.REPLACED)
            return


def has_room(d: Draft) -> bool:
    return len(d.runs) < d.limits.max_concurrency


def _may_go(d: Draft, waiting: Waiting) -> bool:
    """A pause holds what the schedule made, never what a person ordered."""
    return d.state is not State.PAUSED or waiting.trigger is not Trigger.SCHEDULE


def admit(d: Draft) -> None:
    """Let those in line start, in order, while there is room."""
    while d.line and has_room(d):
        for index, waiting in enumerate(d.line):
            if _may_go(d, waiting):
                del d.line[index]
                queue(d, waiting)
                break
        else:
            return


def queue(d: Draft, new: Waiting) -> None:
    run = Run(
        run_id=new.run_id,
        status=Status.QUEUED,
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
    )
    d.runs.append(run)
    d.sends.append(run)
    if d.head.latest != new.run_id:
        d.latest = new.run_id


def expire(d: Draft) -> None:
    """End what was not started by its deadline."""
    for run in list(d.runs):
        if run.status is Status.QUEUED and not run.begun:
            limit = d.deadline_of(run)
            if limit is not None and limit <= d.now:
                d.remove(run.run_id)
                end_unstarted(d, waiting_of(run), Status.MISSED, Reason.DEADLINE)
    for waiting in list(d.line):
        limit = d.deadline_of(waiting)
        if limit is not None and limit <= d.now:
            d.line.remove(waiting)
            end_unstarted(d, waiting, Status.MISSED, Reason.DEADLINE)


def waiting_of(run: Run) -> Waiting:
    """A queued run that nobody has claimed, as it stood in line."""
    return Waiting(
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
    return [run for run in d.runs if run.status is Status.QUEUED and not run.begun]


def take_back_ahead(d: Draft) -> None:
    """Undo what was fired ahead of its time and not claimed; it leaves no outcome."""
    ahead = [run for run in unclaimed(d) if run.trigger is Trigger.SCHEDULE and run.due_at > d.now]
    if not ahead:
        return
    first = min(run.scheduled_at for run in ahead)
    for run in ahead:
        d.remove(run.run_id)
        d.sends = [sent for sent in d.sends if sent.run_id != run.run_id]
    d.mark = first - _INSTANT
    d.next_at = first


def stand_back(d: Draft, runs: Iterable[Run]) -> None:
    """Put queued runs that nobody has claimed back to the front of the line, in order."""
    back = list(runs)
    for run in back:
        d.remove(run.run_id)
        d.sends = [sent for sent in d.sends if sent.run_id != run.run_id]
    d.line[:0] = [waiting_of(run) for run in back]


def wake_backoffs(d: Draft) -> None:
    """Queue the next attempt of each run whose wait is over."""
    for run in list(d.runs):
        if run.reason is Reason.BACKOFF and run.next_at is not None and run.next_at <= d.now:
            again = replace(
                run,
                status=Status.QUEUED,
                reason=Reason.NONE,
                next_at=None,
                changed_at=d.now,
                sent_at=d.now,
                sends=1,
            )
            d.put(again)
            d.sends.append(again)


def send_again(d: Draft) -> None:
    """Announce once more what stands queued and due for long: its message may be lost."""
    for run in list(d.runs):
        if run.status is not Status.QUEUED or run.sent_at is None:
            continue
        patience = min(RESEND * 2 ** (run.sends - 1), RESEND_MOST)
        if d.now >= run.sent_at + patience:
            again = replace(run, sent_at=d.now, sends=min(run.sends + 1, 6), changed_at=d.now)
            d.put(again)
            d.sends.append(again)
