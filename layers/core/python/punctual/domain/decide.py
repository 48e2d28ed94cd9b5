"""`decide`: the one function that changes a head. Pure and total; docs/lifecycle.md draws it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from punctual.domain import events, orders
from punctual.domain.draft import Draft
from punctual.domain.ending import (
    begin,
    cancel_run,
    end_run,
    end_unstarted,
    finish_attempt,
    lose,
    queue_again,
)
from punctual.domain.events import Event
from punctual.domain.firing import settle
from punctual.domain.head import Head, State
from punctual.domain.line import admit, refuse_claim, send_again, wake_backoffs
from punctual.domain.run import Lease, Reason, Run, Status
from punctual.domain.timing import CLAIM_LEASE


class Verdict(StrEnum):
    """What came of an event, for who brought it."""

    OK = "OK"
    GONE = "GONE"  # no such run among the living
    HELD = "HELD"  # another holds it: come again at `again_at`
    EARLY = "EARLY"  # not before `again_at`
    NOT_QUEUED = "NOT_QUEUED"  # it waits; another message will come
    FENCED = "FENCED"  # the token is not the holder's any more
    CONFLICT = "CONFLICT"  # the job's state does not allow it
    STALE = "STALE"  # it was made for another version of the job


class Decision(Struct, frozen=True, gc=False):
    """The new head (the old one itself where nothing changed) and what to do outside, in order."""

    head: Head
    changed: bool
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    again_at: datetime | None = None
    timer_at: datetime | None = None  # put before the swap
    leases: Mapping[str, Lease | None] = {}  # set or dropped with the swap
    required: Mapping[str, Lease] = {}  # the swap holds only if these are as they were read
    sends: tuple[Run, ...] = ()
    records: tuple[Run, ...] = ()  # ended: their history rows
    kills: tuple[str, ...] = ()  # holders to be told
    attempts: tuple[
        tuple[Run, str], ...
    ] = ()  # attempts that ended without ending their run, or lost


class _Answer(Struct, frozen=True, gc=False):
    verdict: Verdict = Verdict.OK
    run: Run | None = None
    again_at: datetime | None = None


_OK = _Answer()


def decide(
    head: Head,
    event: Event,
    now: datetime,
    writer: str = "",
    recorded: frozenset[str] = frozenset(),
) -> Decision:
    """Answer `event` at `now`.

    `writer` marks the swap as this caller's own. `recorded` names the ended runs whose history
    row is known to stand: they leave the head with the next change.
    """
    if head.blank:
        return Decision(head=head, changed=False, verdict=Verdict.GONE)
    draft = Draft(head, now)
    answer = _HANDLERS[type(event)](draft, event)
    _complete(draft)
    brought = event.brought if isinstance(event, events.Look) else ()
    new, timer_at = draft.freeze(writer, recorded, brought)
    return Decision(
        head=new,
        changed=new is not head,
        verdict=answer.verdict,
        run=answer.run,
        again_at=answer.again_at,
        timer_at=timer_at,
        leases=draft.leases,
        required=draft.required,
        sends=tuple(draft.sends),
        records=draft.to_record(recorded),
        kills=tuple(draft.kills),
        attempts=tuple(draft.attempts),
    )


def _complete(d: Draft) -> None:
    """COMPLETED: no time to come, and every run has ended; a run that is ordered opens it again."""
    busy = bool(d.runs or d.line)
    if d.state is State.COMPLETED and busy:
        d.state = State.SCHEDULED
    elif d.state is State.SCHEDULED and not busy and d.next_at is None and d.behind is None:
        d.state = State.COMPLETED


def _look(d: Draft, event: events.Look) -> _Answer:
    for run in list(d.runs):
        if run.held:
            _check_lease(d, run, event.leases.get(run.run_id))
    wake_backoffs(d)
    send_again(d)
    settle(d, event.horizon)
    return _OK


def _check_lease(d: Draft, run: Run, read: Lease | None) -> None:
    """Set the attempt LOST if its lease is over; the swap then requires the lease as read."""
    lease = read
    if lease is None or lease.token != run.token:
        lease = Lease(token=run.token, until=(run.attempt_at or run.changed_at) + CLAIM_LEASE)
    if d.now < lease.until:
        return
    if read is not None:
        d.required[run.run_id] = read
    lose(d, run)


def _claim(d: Draft, event: events.Claim) -> _Answer:
    run = d.run(event.run_id)
    if run is None:
        return _Answer(Verdict.GONE)
    if run.held:
        own = run.claimer == event.claimer and run.nonce == event.nonce
        return _Answer(Verdict.OK if own else Verdict.HELD, run)
    if run.status is not Status.QUEUED:
        return _Answer(Verdict.NOT_QUEUED, run)
    if run.due_at > d.now:
        return _Answer(Verdict.EARLY, run, run.due_at)
    limit = d.deadline_of(run)
    if limit is not None and limit <= d.now and not run.begun:
        end_run(d, run, Status.MISSED, Reason.DEADLINE)
        admit(d)
        return _Answer(Verdict.GONE)
    if sum(other.held for other in d.runs) >= d.limits.max_concurrency:
        refuse_claim(d, run)
        return _Answer(Verdict.NOT_QUEUED, run)
    begun = begin(d, run, event.claimer, event.nonce, event.staged)
    admit(d)  # the last of `max_runs` makes room
    return _Answer(Verdict.OK, begun)


def _started(d: Draft, event: events.Started) -> _Answer:
    run = d.run(event.run_id)
    if run is None or run.token != event.token or not run.held:
        return _Answer(Verdict.FENCED)
    if run.status is Status.RUNNING:
        return _Answer(Verdict.OK, run)
    running = replace(run, status=Status.RUNNING, changed_at=d.now)
    d.put(running)
    return _Answer(Verdict.OK, running)


def _finish(d: Draft, event: events.Finish) -> _Answer:
    run = d.run(event.run_id)
    if run is not None and run.held and run.token == event.token:
        finish_attempt(d, run, event.status, event.retryable)
        settle(d)
        return _Answer(Verdict.OK, _now_of(d, event.run_id))
    if run is not None and run.token == event.token and run.reason is Reason.BACKOFF:
        return _Answer(Verdict.OK, run)  # its own earlier effect
    for ended in d.ended:
        if ended.run_id == event.run_id and ended.token == event.token != 0:
            return _Answer(Verdict.OK, ended)
    return _Answer(Verdict.FENCED)


def _now_of(d: Draft, run_id: str) -> Run | None:
    run = d.run(run_id)
    if run is None:
        run = next((ended for ended in d.ended if ended.run_id == run_id), None)
    return run


def _release(d: Draft, event: events.Release) -> _Answer:
    run = d.run(event.run_id)
    if run is None or run.token != event.token or not run.held:
        return _Answer(Verdict.FENCED)
    if event.begun or d.rules_of(run.definition).at_most_once:
        lose(d, run)
    elif run.cancel:
        end_run(d, run, Status.CANCELLED, run.cancel)
    else:
        queue_again(d, run)
    settle(d)
    return _Answer(Verdict.OK, _now_of(d, event.run_id))


def _poison(d: Draft, event: events.Poison) -> _Answer:
    run = d.run(event.run_id)
    if run is None:
        return _Answer(Verdict.GONE)
    if run.status is not Status.QUEUED:  # a message of an earlier attempt
        return _Answer(Verdict.HELD if run.held else Verdict.NOT_QUEUED, run)
    end_run(d, run, Status.FAILED, Reason.POISON)
    settle(d)
    return _Answer(Verdict.OK, _now_of(d, event.run_id))


def _cancel_run(d: Draft, event: events.CancelRun) -> _Answer:
    run = d.run(event.run_id)
    if run is not None:
        cancel_run(d, run, Reason.CANCELLED)
        settle(d)
        return _Answer(Verdict.OK, _now_of(d, event.run_id))
    for waiting in d.line:
        if waiting.run_id == event.run_id:
            d.line.remove(waiting)
            end_unstarted(d, waiting, Status.CANCELLED, Reason.CANCELLED)
            settle(d)
            return _Answer(Verdict.OK, _now_of(d, event.run_id))
    ended = next((run for run in d.ended if run.run_id == event.run_id), None)
    return _Answer(Verdict.CONFLICT if ended else Verdict.GONE, ended)


def _pause(d: Draft, _: events.Pause) -> _Answer:
    if d.state in (State.COMPLETED, State.CANCELLED):
        return _Answer(Verdict.CONFLICT)
    orders.pause(d)
    return _OK


def _resume(d: Draft, event: events.Resume) -> _Answer:
    if d.state in (State.COMPLETED, State.CANCELLED):
        return _Answer(Verdict.CONFLICT)
    orders.resume(d, event)
    return _OK


def _cancel(d: Draft, _: events.Cancel) -> _Answer:
    orders.cancel(d)
    return _OK


def _update(d: Draft, event: events.Update) -> _Answer:
    if d.state is State.CANCELLED:
        return _Answer(Verdict.CONFLICT)
    orders.update(d, event)
    return _OK


def _order(d: Draft, event: events.Order) -> _Answer:
    if d.state is State.CANCELLED:
        return _Answer(Verdict.CONFLICT)
    if _now_of(d, event.run_id) is None and all(w.run_id != event.run_id for w in d.line):
        orders.order(d, event)
    return _Answer(Verdict.OK, _now_of(d, event.run_id))


def _backfill(d: Draft, event: events.Backfill) -> _Answer:
    if d.state is State.CANCELLED:
        return _Answer(Verdict.CONFLICT)
    orders.backfill(d, event)
    return _OK


_HANDLERS: dict[type[Event], Callable[[Draft, Any], _Answer]] = {
    events.Look: _look,
    events.Claim: _claim,
    events.Started: _started,
    events.Finish: _finish,
    events.Release: _release,
    events.Poison: _poison,
    events.Pause: _pause,
    events.Resume: _resume,
    events.Cancel: _cancel,
    events.CancelRun: _cancel_run,
    events.Update: _update,
    events.Order: _order,
    events.Backfill: _backfill,
}
