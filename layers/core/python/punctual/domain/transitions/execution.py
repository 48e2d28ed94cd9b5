"""The events of executors and timers: evaluate, claim, start, finish, return, cancel a run."""

from msgspec.structs import replace

from punctual.domain import events
from punctual.domain.answer import OK, Answer, Verdict, now_of
from punctual.domain.draft import Draft
from punctual.domain.durations import CLAIM_LEASE, RETURNED_AT_MOST
from punctual.domain.run import Lease, Reason, Run, RunStatus
from punctual.domain.transitions import attempts
from punctual.domain.transitions.attempts import (
    begin,
    end_run,
    end_unstarted,
    finish_attempt,
    hold_back,
    lose,
    queue_again,
)
from punctual.domain.transitions.firing import settle
from punctual.domain.transitions.wait_queue import admit, refuse_claim, send_again, wake_backoffs


def look(d: Draft, event: events.Evaluate) -> Answer:
    for run in list(d.runs):
        if run.held:
            _check_lease(d, run, event.leases.get(run.run_id))
    wake_backoffs(d)
    send_again(d)
    settle(d, event.horizon)
    return OK


def _check_lease(d: Draft, run: Run, read: Lease | None) -> None:
    """Mark the attempt LOST if its lease expired. The swap then requires the lease as read."""
    lease = read
    if lease is None or lease.token != run.token:
        lease = Lease(token=run.token, until=(run.attempt_at or run.changed_at) + CLAIM_LEASE)
    if d.now < lease.until:
        return
    if read is not None:
        d.required[run.run_id] = read
    lose(d, run)


def claim(d: Draft, event: events.Claim) -> Answer:
    run = d.run(event.run_id)
    if run is None:
        return Answer(Verdict.GONE)
    if run.held:
        own = run.claimer == event.claimer and run.nonce == event.nonce
        return Answer(Verdict.OK if own else Verdict.HELD, run)
    if run.status is not RunStatus.QUEUED:
        return Answer(Verdict.NOT_QUEUED, run)
    if run.due_at > d.now:
        return Answer(Verdict.EARLY, run, run.due_at)
    limit = d.deadline_of(run)
    if limit is not None and limit <= d.now and not run.begun:
        end_run(d, run, RunStatus.MISSED, Reason.DEADLINE)
        admit(d)
        return Answer(Verdict.GONE)
    most = d.limits.max_concurrency
    if len(d.runs) > most and sum(other.held for other in d.runs) >= most:
        refuse_claim(d, run)
        return Answer(Verdict.NOT_QUEUED, run)
    begun = begin(d, run, event.claimer, event.nonce, event.staged)
    admit(d)  # the last of `max_runs` frees places
    return Answer(Verdict.OK, begun)


def started(d: Draft, event: events.Started) -> Answer:
    run = d.run(event.run_id)
    if run is None or run.token != event.token or not run.held:
        return Answer(Verdict.FENCED)
    if run.status is RunStatus.RUNNING:
        return Answer(Verdict.OK, run)
    running = replace(run, status=RunStatus.RUNNING, changed_at=d.now)
    d.put(running)
    return Answer(Verdict.OK, running)


def finish(d: Draft, event: events.Finish) -> Answer:
    run = d.run(event.run_id)
    if run is not None and run.held and run.token == event.token:
        noted = replace(run, note=event.note) if event.note else run
        finish_attempt(d, noted, event.status, event.retryable)
        settle(d)
        return Answer(Verdict.OK, now_of(d, event.run_id))
    if run is not None and run.token == event.token and run.reason is Reason.BACKOFF:
        return Answer(Verdict.OK, run)  # an earlier call with this token had this effect
    for ended in d.ended:
        if ended.run_id == event.run_id and ended.token == event.token != 0:
            return Answer(Verdict.FENCED if _was_lost(ended) else Verdict.OK, ended)
    return Answer(Verdict.FENCED)


def _was_lost(ended: Run) -> bool:
    """Return whether the run ended because its holder was lost, without a report."""
    return ended.reason is Reason.LOST or not ended.claimer


def release(d: Draft, event: events.ReturnClaim) -> Answer:
    run = d.run(event.run_id)
    if run is None or run.token != event.token or not run.held:
        return Answer(Verdict.FENCED)
    if event.unstarted:
        if run.cancel:
            end_run(d, run, RunStatus.CANCELLED, run.cancel)
        else:
            hold_back(d, run)
    elif event.begun or d.rules_of(run.definition).at_most_once:
        lose(d, run)
    elif run.returns >= RETURNED_AT_MOST:
        lose(d, replace(run, returns=0) if event.waits else run)
    elif run.cancel:
        end_run(d, run, RunStatus.CANCELLED, run.cancel)
    elif event.waits:
        hold_back(d, run)
    else:
        queue_again(d, replace(run, returns=run.returns + 1))
    settle(d)
    return Answer(Verdict.OK, now_of(d, event.run_id))


def poison(d: Draft, event: events.DeadLetter) -> Answer:
    run = d.run(event.run_id)
    if run is None:
        return Answer(Verdict.GONE)
    stale = event.version is not None and run.token > event.version
    if run.status is not RunStatus.QUEUED or stale:  # a message of an earlier attempt
        return Answer(Verdict.HELD if run.held else Verdict.NOT_QUEUED, run)
    end_run(d, run, RunStatus.FAILED, Reason.POISON)
    settle(d)
    return Answer(Verdict.OK, now_of(d, event.run_id))


def cancel_run(d: Draft, event: events.CancelRun) -> Answer:
    run = d.run(event.run_id)
    if run is not None:
        attempts.cancel_run(d, run, Reason.CANCELLED)
        settle(d)
        return Answer(Verdict.OK, now_of(d, event.run_id))
    for waiting in d.line:
        if waiting.run_id == event.run_id:
            d.line.remove(waiting)
            end_unstarted(d, waiting, RunStatus.CANCELLED, Reason.CANCELLED)
            settle(d)
            return Answer(Verdict.OK, now_of(d, event.run_id))
    ended = next((run for run in d.ended if run.run_id == event.run_id), None)
    return Answer(Verdict.CONFLICT if ended else Verdict.GONE, ended)
