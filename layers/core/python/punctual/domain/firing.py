"""From occurrences to runs: what is due gets its outcome, what fits starts, the rest waits."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.ending import cancel_run, count_from_completion, end_unstarted
from punctual.domain.head import Behind, Misfire, Overlap, State
from punctual.domain.placement import occurrence_id
from punctual.domain.run import Reason, Run, Status, Trigger, Waiting
from punctual.domain.schedule import Every, next_after, occurrences
from punctual.domain.timing import RESEND, RESEND_MOST

CHUNK = 2_000  # occurrences judged by one decision, so that none takes long
ALL_MISSED = 1_000  # RUN_ALL runs the latest so many
_INSTANT = timedelta(microseconds=1)


def settle(d: Draft, horizon: datetime | None = None) -> None:
    """Give each occurrence that is due its outcome, by the definition in force."""
    expire(d)
    if d.state is State.SCHEDULED:
        _notice_outage(d)
        if d.behind is not None:
            _catch_up(d)
        if d.behind is None:
            _fire_due(d)
            admit(d)
            _fire_ahead(d, horizon)
    admit(d)


def _notice_outage(d: Draft) -> None:
    overdue = d.now - d.limits.grace
    if d.behind is None and d.next_at is not None and d.next_at + d.jitter < overdue:
        d.behind = Behind(until=overdue, policy=d.limits.misfire)


def _due(d: Draft, until: datetime) -> list[datetime]:
    """The next occurrences with a due time up to `until`, a chunk of them at most."""
    last = until - d.jitter
    if d.next_at is None or d.next_at > last:
        return []
    if _counts_from_completion(d):
        return [d.next_at]
    assert d.schedule is not None
    more = islice(occurrences(d.schedule, d.next_at, last), CHUNK - 1)
    return [d.next_at, *more]


def _counts_from_completion(d: Draft) -> bool:
    return isinstance(d.schedule, Every) and d.schedule.from_completion


def _advance(d: Draft, last: datetime) -> None:
    """Go on behind `last`; an interval from completion gets its next time from an outcome."""
    d.mark = last
    if d.schedule is None or _counts_from_completion(d):
        d.next_at = None
    else:
        d.next_at = next_after(d.schedule, last)


def _catch_up(d: Draft) -> None:
    behind = d.behind
    assert behind is not None
    missed = _due(d, behind.until)
    if not missed:
        d.behind = None
        return
    before = d.mark
    following = None if _counts_from_completion(d) else next_after_or_none(d, missed[-1])
    more = following is not None and following + d.jitter <= behind.until
    not_run, run = _judge(behind.policy, missed, more)
    if not_run:
        _advance(d, not_run[-1])
        skip_many(d, not_run, *_verdict(behind), before)
    if run:
        _advance(d, run[-1])
    for at in run:
        fire(d, at, caught_up=behind.policy is Misfire.RUN_ALL)
    if not more:
        d.behind = None


def next_after_or_none(d: Draft, at: datetime) -> datetime | None:
    return None if d.schedule is None else next_after(d.schedule, at)


def _judge(
    policy: Misfire, missed: list[datetime], more: bool
) -> tuple[list[datetime], list[datetime]]:
    """Which of the missed do not run, and which do; the latest are not known while `more` come."""
    if policy is Misfire.SKIP:
        return missed, []
    if policy is Misfire.RUN_ONCE:
        return (missed, []) if more else (missed[:-1], missed[-1:])
    if more:
        return missed[:-ALL_MISSED], []
    return missed[:-ALL_MISSED], missed[-ALL_MISSED:]


def _verdict(behind: Behind) -> tuple[Status, Reason]:
    if behind.policy is Misfire.RUN_ONCE:
        return Status.SKIPPED, Reason.COALESCED
    if behind.paused and behind.policy is Misfire.SKIP:
        return Status.SKIPPED, Reason.PAUSED
    return Status.MISSED, Reason.OUTAGE


def skip_many(
    d: Draft,
    times: list[datetime],
    status: Status,
    reason: Reason,
    before: datetime | None = None,
) -> None:
    """Record occurrences that never became runs, in one entry; a catch-up's entry grows."""
    last = d.ended[-1] if d.ended else None
    if (
        d.head.behind is not None
        and last is not None
        and last.reason is reason
        and before is not None
        and before in (last.last_at, last.scheduled_at)
    ):
        d.ended[-1] = replace(
            last, count=last.count + len(times), last_at=times[-1], changed_at=d.now
        )
        return
    first = times[0]
    run_id = occurrence_id(d.head.job_id, first)
    d.latest_not_run = run_id
    d.ended.append(
        Run(
            run_id=run_id,
            status=status,
            definition=d.definition,
            scheduled_at=first,
            due_at=first + d.jitter,
            created_at=d.now,
            changed_at=d.now,
            reason=reason,
            ended_at=d.now,
            count=len(times),
            last_at=times[-1] if len(times) > 1 else None,
        )
    )
    count_from_completion(d, d.now)


def _fire_due(d: Draft) -> None:
    if d.next_at is None or d.next_at + d.jitter > d.now:
        return
    times = _due(d, d.now)
    _advance(d, times[-1])
    for at in times:
        fire(d, at)


def _fire_ahead(d: Draft, horizon: datetime | None) -> None:
    """Queue what comes soon, not before its time, unless another run could be in its way then."""
    while (
        horizon is not None
        and d.next_at is not None
        and d.next_at + d.jitter <= horizon
        and not d.line
        and has_room(d)
    ):
        at = d.next_at
        _advance(d, at)
        fire(d, at)


def fire(d: Draft, at: datetime, caught_up: bool = False) -> None:
    if d.limits.max_runs is not None and d.started >= d.limits.max_runs:
        return
    offer(
        d,
        Waiting(
            run_id=occurrence_id(d.head.job_id, at),
            definition=d.definition,
            scheduled_at=at,
            due_at=at + d.jitter,
            created_at=d.now,
            caught_up=caught_up,
        ),
    )


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
