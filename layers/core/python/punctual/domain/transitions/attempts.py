"""The claim of a run, the end of its attempt, and the retry or the end of the run."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.draft import Draft
from punctual.domain.durations import (
    MAX_LOST_ATTEMPTS,
    MAX_RESOURCE_WAIT,
    MAX_RETURN_DELAY,
    MAX_RETURNED_CLAIMS,
    MIN_RESOURCE_WAIT,
    RETURN_DELAY,
)
from punctual.domain.identifiers import hash_fraction
from punctual.domain.job_state import JobStatus, Rules
from punctual.domain.leases import CLAIM_LEASE
from punctual.domain.run import (
    FAILED_LETTER,
    LOST_LETTER,
    NOT_RUN_STATUSES,
    TIMED_OUT_LETTER,
    Lease,
    Reason,
    Run,
    RunStatus,
    Trigger,
    WaitingRun,
    from_waiting,
    with_claim,
)
from punctual.domain.schedules.schedule import Every, after_completion


def end_run(draft: Draft, run: Run, status: RunStatus, reason: Reason = Reason.NONE) -> None:
    """End a live run. It stays in the job state until its history row is known to exist."""
    draft.remove_run(run.run_id)
    if draft.runs_to_send:
        draft.runs_to_send = [
            queued for queued in draft.runs_to_send if queued.run_id != run.run_id
        ]
    if run.is_held or run.run_id in draft.leases:
        draft.leases[run.run_id] = None
    if not run.is_held:
        run = replace(run, attempt_at=None, held_since=None)  # it ends between two attempts
        if run.trigger is Trigger.SCHEDULE and run.scheduled_at > draft.now:
            draft.settle_ahead(run.scheduled_at)
    draft.unrecorded.append(
        replace(
            run,
            status=status,
            reason=reason,
            ended_at=draft.now,
            changed_at=draft.now,
            next_at=None,
            cancel_reason=Reason.NONE,
        )
    )
    if status in NOT_RUN_STATUSES:
        draft.latest_not_run_id = run.run_id
        draft.unset_latest(run.run_id)
    if run.trigger is Trigger.SCHEDULE:
        set_next_after_completion(draft, draft.now)


def end_waiting_run(draft: Draft, waiting: WaitingRun, status: RunStatus, reason: Reason) -> None:
    """End a waiting run that never started."""
    if status in NOT_RUN_STATUSES:
        draft.latest_not_run_id = waiting.run_id
        draft.unset_latest(waiting.run_id)
    draft.unrecorded.append(
        from_waiting(waiting, status, draft.now, reason=reason, ended_at=draft.now)
    )
    if waiting.trigger is Trigger.SCHEDULE:
        set_next_after_completion(draft, draft.now)


def set_next_after_completion(draft: Draft, ended_at: datetime) -> None:
    """Set the next time of an interval that counts from completion. Each outcome calls this."""
    schedule = draft.schedule
    if not isinstance(schedule, Every) or not schedule.from_completion:
        return
    if has_scheduled_run(draft):
        return  # after a change of schedule, the last of several live runs counts
    if draft.next_at is not None and draft.next_at + draft.jitter <= draft.now:
        return  # it is due, and its own outcome counts
    if draft.status is JobStatus.CANCELLED or is_max_runs_reached(draft):
        draft.next_at = None
    else:
        # A run that was fired ahead can end before its time.
        draft.planned_until = max(ended_at, draft.planned_until or ended_at)
        draft.next_at = after_completion(schedule, draft.planned_until)


def has_scheduled_run(draft: Draft) -> bool:
    live_runs: list[Run | WaitingRun] = [*draft.runs, *draft.wait_queue]
    return any(run.trigger is Trigger.SCHEDULE for run in live_runs)


def is_max_runs_reached(draft: Draft) -> bool:
    return draft.limits.max_runs is not None and draft.started_runs >= draft.limits.max_runs


def claim_run(draft: Draft, run: Run, executor_id: str, nonce: str, starts_later: bool) -> Run:
    """Claim a queued run under a new token."""
    token = draft.original.version + 1
    status = RunStatus.CLAIMED if starts_later else RunStatus.RUNNING
    claimed_run = with_claim(run, status, token, executor_id, nonce, draft.now)
    draft.put_run(claimed_run)
    draft.leases[run.run_id] = Lease(token=token, until=draft.now + CLAIM_LEASE)
    if run.trigger is Trigger.SCHEDULE and not run.has_begun:
        draft.started_runs += 1
        if is_max_runs_reached(draft):
            skip_unstarted_runs(draft)
    return claimed_run


def skip_unstarted_runs(draft: Draft) -> None:
    """Skip all scheduled runs that have not begun. The last of `max_runs` has started."""
    draft.next_at = None
    for run in [
        live_run
        for live_run in draft.runs
        if live_run.trigger is Trigger.SCHEDULE and not live_run.has_begun
    ]:
        end_run(draft, run, RunStatus.SKIPPED, Reason.MAX_RUNS)
    for waiting_run in [
        waiting_run for waiting_run in draft.wait_queue if waiting_run.trigger is Trigger.SCHEDULE
    ]:
        draft.wait_queue.remove(waiting_run)
        end_waiting_run(draft, waiting_run, RunStatus.SKIPPED, Reason.MAX_RUNS)


def finish_attempt(draft: Draft, run: Run, status: RunStatus, retryable: bool) -> None:
    rules = draft.rules_of(run.definition)
    is_failure = status in (RunStatus.FAILED, RunStatus.TIMED_OUT)
    if is_failure and run.cancel_reason:
        end_run(draft, run, RunStatus.CANCELLED, run.cancel_reason)
    elif is_failure and retryable and not rules.at_most_once and _has_retries_left(run, rules):
        _back_off(draft, run, status, rules)
    elif status is RunStatus.CANCELLED:
        end_run(draft, run, RunStatus.CANCELLED, run.cancel_reason or Reason.CANCELLED)
    else:
        end_run(draft, run, status)


def _has_retries_left(run: Run, rules: Rules) -> bool:
    return len(run.past_attempts) - run.past_attempts.count(LOST_LETTER) < rules.max_retries


def _back_off(draft: Draft, run: Run, status: RunStatus, rules: Rules) -> None:
    letter = FAILED_LETTER if status is RunStatus.FAILED else TIMED_OUT_LETTER
    draft.ended_attempts.append((run, letter))
    waiting_run = replace(
        run,
        status=RunStatus.WAITING,
        reason=Reason.BACKOFF,
        past_attempts=run.past_attempts + letter,
        next_at=draft.now + retry_delay(run, rules),
        changed_at=draft.now,
    )
    draft.put_run(waiting_run)
    draft.leases[run.run_id] = None


def retry_delay(run: Run, rules: Rules) -> timedelta:
    """Return the wait after a failed attempt. Jitter is a hash, from half to all of the backoff.

    The loop stops at the maximum, since 100 retries with a large multiplier would overflow a float.
    """
    retry = rules.retry
    failures = len(run.past_attempts) - run.past_attempts.count(LOST_LETTER)
    seconds = min(retry.backoff_seconds, retry.max_backoff_seconds)
    for _ in range(failures):
        seconds = seconds * retry.multiplier
        if seconds >= retry.max_backoff_seconds or retry.multiplier <= 1:
            break
    seconds = min(seconds, retry.max_backoff_seconds)
    if retry.jitter:
        seconds *= 0.5 + hash_fraction(run.run_id, str(run.attempt)) / 2
    return timedelta(seconds=seconds)


def lose_attempt(draft: Draft, run: Run) -> None:
    """Mark the attempt LOST, and queue the next one at once unless too many were lost."""
    rules = draft.rules_of(run.definition)
    draft.leases[run.run_id] = None
    draft.ended_attempts.append((run, LOST_LETTER))
    if run.cancel_reason:
        # The run has no holder. It takes no later report or output from the former one.
        end_run(
            draft, replace(run, executor_id="", nonce=""), RunStatus.CANCELLED, run.cancel_reason
        )
    elif rules.at_most_once or run.past_attempts.count(LOST_LETTER) + 1 >= MAX_LOST_ATTEMPTS:
        end_run(draft, run, RunStatus.FAILED, Reason.LOST)
    else:
        requeue(draft, replace(run, past_attempts=run.past_attempts + LOST_LETTER))


def delay_run(draft: Draft, run: Run) -> None:
    """Repeat the same attempt after a wait that grows with each return."""
    waiting_run = replace(
        run,
        status=RunStatus.WAITING,
        reason=Reason.BACKOFF,
        executor_id="",
        nonce="",
        return_count=run.return_count + 1,
        next_at=draft.now
        + min(RETURN_DELAY * 2 ** min(run.return_count, MAX_RETURNED_CLAIMS), MAX_RETURN_DELAY),
        changed_at=draft.now,
    )
    draft.put_run(waiting_run)
    draft.leases[run.run_id] = None


def wait_for_resources(draft: Draft, run: Run) -> None:
    """Repeat the same attempt when room may be free. Such a wait counts against nothing."""
    waiting_run = replace(
        run,
        status=RunStatus.WAITING,
        reason=Reason.RESOURCES,
        executor_id="",
        nonce="",
        next_at=draft.now + resource_wait(run, draft.rules_of(run.definition), draft.now),
        changed_at=draft.now,
    )
    draft.put_run(waiting_run)
    draft.leases[run.run_id] = None


def resource_wait(run: Run, rules: Rules, now: datetime) -> timedelta:
    """Return the time until a run without room is tried again.

    It grows with the time that the run has waited. So many waiting runs cost little, and those of
    higher priority ask more often. Runs that began to wait together are spread by a hash.
    """
    wait = min(max((now - run.due_at) / 4, MIN_RESOURCE_WAIT), MAX_RESOURCE_WAIT)
    by_priority = (rules.priority + 1) / 2
    return wait * by_priority * (0.5 + hash_fraction(run.run_id, str(run.token)) / 2)


def requeue(draft: Draft, run: Run) -> None:
    queued_run = replace(
        run,
        status=RunStatus.QUEUED,
        reason=Reason.NONE,
        executor_id="",
        nonce="",
        changed_at=draft.now,
        sent_at=draft.now,
        send_count=1,
        queued_again_at=draft.now,
    )
    draft.put_run(queued_run)
    draft.leases[run.run_id] = None
    draft.runs_to_send.append(queued_run)


def cancel_run(draft: Draft, run: Run, reason: Reason) -> None:
    """End a run without a holder, or send a cancel request to the holder."""
    if run.is_held:
        if not run.cancel_reason:
            draft.put_run(replace(run, cancel_reason=reason, changed_at=draft.now))
        draft.run_ids_to_stop.append(run.run_id)
    else:
        end_run(draft, run, RunStatus.CANCELLED, reason)
