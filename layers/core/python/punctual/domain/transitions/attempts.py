"""The claim of a run, the end of its attempt, and the retry or the end of the run."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain import run as past
from punctual.domain.draft import Draft
from punctual.domain.durations import (
    CLAIM_LEASE,
    LOST_AT_MOST,
    RETURN,
    RETURN_MOST,
    RETURNED_AT_MOST,
)
from punctual.domain.identifiers import fraction
from punctual.domain.job_state import JobStatus, Rules
from punctual.domain.run import NOT_RUN, Lease, Reason, Run, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.schedule import Every, after_completion


def end_run(d: Draft, run: Run, status: RunStatus, reason: Reason = Reason.NONE) -> None:
    """End a live run. It stays in the job state until its history row is known to exist."""
    d.remove(run.run_id)
    if d.sends:
        d.sends = [sent for sent in d.sends if sent.run_id != run.run_id]
    if run.held or run.run_id in d.leases:
        d.leases[run.run_id] = None
    d.ended.append(
        replace(
            run,
            status=status,
            reason=reason,
            ended_at=d.now,
            changed_at=d.now,
            next_at=None,
            cancel=Reason.NONE,
        )
    )
    if status in NOT_RUN:
        d.latest_not_run = run.run_id
        d.not_latest(run.run_id)
    if run.trigger is Trigger.SCHEDULE:
        count_from_completion(d, d.now)


def end_unstarted(d: Draft, waiting: WaitingRun, status: RunStatus, reason: Reason) -> None:
    """End a waiting run that never started."""
    if status in NOT_RUN:
        d.latest_not_run = waiting.run_id
        d.not_latest(waiting.run_id)
    d.ended.append(
        Run(
            run_id=waiting.run_id,
            status=status,
            definition=waiting.definition,
            scheduled_at=waiting.scheduled_at,
            due_at=waiting.due_at,
            created_at=waiting.created_at,
            changed_at=d.now,
            trigger=waiting.trigger,
            reason=reason,
            own_payload=waiting.own_payload,
            retried_from=waiting.retried_from,
            ended_at=d.now,
        )
    )
    if waiting.trigger is Trigger.SCHEDULE:
        count_from_completion(d, d.now)


def count_from_completion(d: Draft, ended_at: datetime) -> None:
    """Set the next time of an interval that counts from completion. Each outcome calls this."""
    schedule = d.schedule
    if not isinstance(schedule, Every) or not schedule.from_completion:
        return
    if is_one_alive(d):
        return  # after a change of schedule, the last of several live runs counts
    if d.next_at is not None and d.next_at + d.jitter <= d.now:
        return  # it is due, and its own outcome counts
    if d.state is JobStatus.CANCELLED or runs_are_used_up(d):
        d.next_at = None
    else:
        d.mark = max(ended_at, d.mark or ended_at)  # a run fired ahead can end before its time
        d.next_at = after_completion(schedule, d.mark)


def is_one_alive(d: Draft) -> bool:
    alive: list[Run | WaitingRun] = [*d.runs, *d.line]
    return any(run.trigger is Trigger.SCHEDULE for run in alive)


def runs_are_used_up(d: Draft) -> bool:
    return d.limits.max_runs is not None and d.started >= d.limits.max_runs


def begin(d: Draft, run: Run, claimer: str, nonce: str, staged: bool) -> Run:
    """Claim a queued run under a new token."""
    token = d.head.version + 1
    claimed = replace(
        run,
        status=RunStatus.CLAIMED if staged else RunStatus.RUNNING,
        reason=Reason.NONE,
        token=token,
        claimer=claimer,
        nonce=nonce,
        started_at=run.started_at or d.now,
        attempt_at=d.now,
        changed_at=d.now,
        sent_at=None,
        sends=0,
    )
    d.put(claimed)
    d.leases[run.run_id] = Lease(token=token, until=d.now + CLAIM_LEASE)
    if run.trigger is Trigger.SCHEDULE and not run.begun:
        d.started += 1
        if runs_are_used_up(d):
            drop_the_rest(d)
    return claimed


def drop_the_rest(d: Draft) -> None:
    """Skip all scheduled runs that have not begun. The last of `max_runs` has started."""
    d.next_at = None
    for run in [r for r in d.runs if r.trigger is Trigger.SCHEDULE and not r.begun]:
        end_run(d, run, RunStatus.SKIPPED, Reason.MAX_RUNS)
    for waiting in [w for w in d.line if w.trigger is Trigger.SCHEDULE]:
        d.line.remove(waiting)
        end_unstarted(d, waiting, RunStatus.SKIPPED, Reason.MAX_RUNS)


def finish_attempt(d: Draft, run: Run, status: RunStatus, retryable: bool) -> None:
    rules = d.rules_of(run.definition)
    failed = status in (RunStatus.FAILED, RunStatus.TIMED_OUT)
    if failed and run.cancel:
        end_run(d, run, RunStatus.CANCELLED, run.cancel)
    elif failed and retryable and not rules.at_most_once and _tries_left(run, rules):
        _back_off(d, run, status, rules)
    elif status is RunStatus.CANCELLED:
        end_run(d, run, RunStatus.CANCELLED, run.cancel or Reason.CANCELLED)
    else:
        end_run(d, run, status)


def _tries_left(run: Run, rules: Rules) -> bool:
    return len(run.past) - run.past.count(past.LOST) < rules.max_retries


def _back_off(d: Draft, run: Run, status: RunStatus, rules: Rules) -> None:
    letter = past.FAILED if status is RunStatus.FAILED else past.TIMED_OUT
    d.attempts.append((run, letter))
    waited = replace(
        run,
        status=RunStatus.WAITING,
        reason=Reason.BACKOFF,
        past=run.past + letter,
        next_at=d.now + delay(run, rules),
        changed_at=d.now,
    )
    d.put(waited)
    d.leases[run.run_id] = None


def delay(run: Run, rules: Rules) -> timedelta:
    """Return the wait after a failed attempt. Jitter is a hash, from half to all of the backoff.

    The loop stops at the maximum, since 100 retries with a large multiplier would overflow a float.
    """
    retry = rules.retry
    failures = len(run.past) - run.past.count(past.LOST)
    seconds = min(retry.backoff_seconds, retry.max_backoff_seconds)
    for _ in range(failures):
        seconds = seconds * retry.multiplier
        if seconds >= retry.max_backoff_seconds or retry.multiplier <= 1:
            break
    seconds = min(seconds, retry.max_backoff_seconds)
    if retry.jitter:
        seconds *= 0.5 + fraction(run.run_id, str(run.attempt)) / 2
    return timedelta(seconds=seconds)


def lose(d: Draft, run: Run) -> None:
    """Mark the attempt LOST, and queue the next one at once unless too many were lost."""
    rules = d.rules_of(run.definition)
    d.leases[run.run_id] = None
    d.attempts.append((run, past.LOST))
    if run.cancel:
        # The run has no holder. It takes no later report or output from the former one.
        end_run(d, replace(run, claimer="", nonce=""), RunStatus.CANCELLED, run.cancel)
    elif rules.at_most_once or run.past.count(past.LOST) + 1 >= LOST_AT_MOST:
        end_run(d, run, RunStatus.FAILED, Reason.LOST)
    else:
        queue_again(d, replace(run, past=run.past + past.LOST))


def hold_back(d: Draft, run: Run) -> None:
    """Repeat the same attempt after a wait that grows with each return."""
    waited = replace(
        run,
        status=RunStatus.WAITING,
        reason=Reason.BACKOFF,
        claimer="",
        nonce="",
        returns=run.returns + 1,
        next_at=d.now + min(RETURN * 2 ** min(run.returns, RETURNED_AT_MOST), RETURN_MOST),
        changed_at=d.now,
    )
    d.put(waited)
    d.leases[run.run_id] = None


def queue_again(d: Draft, run: Run) -> None:
    again = replace(
        run,
        status=RunStatus.QUEUED,
        reason=Reason.NONE,
        claimer="",
        nonce="",
        changed_at=d.now,
        sent_at=d.now,
        sends=1,
    )
    d.put(again)
    d.leases[run.run_id] = None
    d.sends.append(again)


def cancel_run(d: Draft, run: Run, reason: Reason) -> None:
    """End a run without a holder, or send a cancel request to the holder."""
    if run.held:
        if not run.cancel:
            d.put(replace(run, cancel=reason, changed_at=d.now))
        d.kills.append(run.run_id)
    else:
        end_run(d, run, RunStatus.CANCELLED, reason)
