"""The events of executors and timers: evaluate, claim, start, finish, return, cancel a run."""

from msgspec.structs import replace

from punctual.domain import events
from punctual.domain.decision import OK, Answer, Verdict, find_live_or_ended
from punctual.domain.draft import Draft
from punctual.domain.durations import MAX_FAILED_STARTS, MAX_RETURNED_CLAIMS
from punctual.domain.job_state import Rules
from punctual.domain.leases import CLAIM_LEASE
from punctual.domain.run import Lease, Reason, Run, RunStatus
from punctual.domain.task_limits import MAX_WAITED_SCRIPT_SECONDS
from punctual.domain.transitions import attempts
from punctual.domain.transitions.attempts import (
    claim_run,
    delay_run,
    end_run,
    end_waiting_run,
    finish_attempt,
    lose_attempt,
    requeue,
    wait_for_resources,
)
from punctual.domain.transitions.firing import process_due
from punctual.domain.transitions.pause import resume_at_its_time
from punctual.domain.transitions.wait_queue import (
    admit,
    end_if_past_deadline,
    queue_after_backoff,
    refuse_claim,
    resend_unclaimed,
)


def evaluate(draft: Draft, event: events.Evaluate) -> Answer:
    for run in list(draft.runs):
        if run.is_held:
            _lose_if_expired(draft, run, event.leases.get(run.run_id))
    queue_after_backoff(draft)
    resend_unclaimed(draft)
    resume_at_its_time(draft)
    process_due(draft, event.fire_ahead_until)
    return OK


def _lose_if_expired(draft: Draft, run: Run, stored_lease: Lease | None) -> None:
    """Mark the attempt LOST if its lease expired. The swap then requires the lease as read."""
    lease = stored_lease
    if lease is None or lease.token != run.token:
        lease = Lease(token=run.token, until=(run.attempt_at or run.changed_at) + CLAIM_LEASE)
    if draft.now < lease.until:
        return
    if stored_lease is not None:
        draft.required_leases[run.run_id] = stored_lease
    if run.status is RunStatus.CLAIMED and draft.rules_of(run.definition).task_type == "script":
        # A detached runner binds its claim before user code begins. So nothing has begun.
        _return_unstarted(draft, run, start_failed=True, last_reason=Reason.LOST)
    else:
        lose_attempt(draft, run)


def claim(draft: Draft, event: events.Claim) -> Answer:
    run = draft.find_run(event.run_id)
    if run is None:
        return Answer(Verdict.GONE)
    if run.is_held:
        is_same_claim = run.executor_id == event.executor_id and run.nonce == event.nonce
        return Answer(Verdict.OK if is_same_claim else Verdict.HELD, run)
    if run.status is not RunStatus.QUEUED:
        return Answer(Verdict.NOT_QUEUED, run)
    if run.due_at > draft.now:
        return Answer(Verdict.EARLY, run, run.due_at)
    if end_if_past_deadline(draft, run):
        admit(draft)
        return Answer(Verdict.GONE)
    max_runs = draft.limits.max_concurrency
    if len(draft.runs) > max_runs and sum(other.is_held for other in draft.runs) >= max_runs:
        refuse_claim(draft, run)
        return Answer(Verdict.NOT_QUEUED, run)
    starts_later = event.starts_later or (
        event.hands_over_scripts and _is_detached_script(draft.rules_of(run.definition), event)
    )
    claimed_run = claim_run(draft, run, event.executor_id, event.nonce, starts_later)
    admit(draft)  # the last of `max_runs` frees places
    return Answer(Verdict.OK, claimed_run)


def _is_detached_script(rules: Rules, event: events.Claim) -> bool:
    if rules.task_type != "script":
        return False
    memory_mb = event.function_memory_mb
    is_in_container = memory_mb is not None and rules.memory_mb > memory_mb
    is_long = rules.timeout_seconds > MAX_WAITED_SCRIPT_SECONDS
    return is_long or rules.has_artifact or is_in_container


def _return_unstarted(
    draft: Draft, run: Run, start_failed: bool = False, last_reason: Reason = Reason.NONE
) -> None:
    """Return a claimed run that certainly did not start. Its attempt does not count.

    A platform that fails again and again ends the run, with the last reason.
    """
    if run.cancel_reason:
        end_run(draft, run, RunStatus.CANCELLED, run.cancel_reason)
        return
    if start_failed:
        run = replace(run, failed_starts=run.failed_starts + 1)
    if run.failed_starts >= MAX_FAILED_STARTS:
        end_run(draft, run, RunStatus.FAILED, last_reason)
    else:
        delay_run(draft, run)


def mark_running(draft: Draft, event: events.Started) -> Answer:
    run = _held_run(draft, event.run_id, event.token, event.runner_id)
    if run is None:
        return Answer(Verdict.FENCED)
    runner_id = event.runner_id or run.runner_id
    if run.status is RunStatus.RUNNING and run.runner_id == runner_id:
        return Answer(Verdict.OK, run)
    is_start = run.status is RunStatus.CLAIMED
    is_first_start = is_start and not run.past_attempts  # the claims before it began nothing
    running_run = replace(
        run,
        status=RunStatus.RUNNING,
        started_at=draft.now if is_first_start else run.started_at,
        attempt_at=draft.now if is_start else run.attempt_at,
        held_since=run.attempt_at if is_start else run.held_since,
        changed_at=draft.now,
        runner_id=runner_id,
        failed_starts=0,
    )
    draft.put_run(running_run)
    return Answer(Verdict.OK, running_run)


def _held_run(draft: Draft, run_id: str, token: int, runner_id: str | None) -> Run | None:
    """Return the run if this token and runner hold it."""
    run = draft.find_run(run_id)
    if run is None or run.token != token or not run.is_held or not run.is_bound_to(runner_id):
        return None
    return run


def finish(draft: Draft, event: events.Finish) -> Answer:
    run = draft.find_run(event.run_id)
    if run is not None and not run.is_bound_to(event.runner_id):
        return Answer(Verdict.FENCED)
    if run is not None and run.is_held and run.token == event.token:
        finished_run = (
            replace(run, inline_output=event.inline_output) if event.inline_output else run
        )
        finish_attempt(draft, finished_run, event.status, event.retryable)
        process_due(draft)
        return Answer(Verdict.OK, find_live_or_ended(draft, event.run_id))
    if run is not None and run.token == event.token and run.reason is Reason.BACKOFF:
        return Answer(Verdict.OK, run)  # an earlier call with this token had this effect
    for ended_run in draft.unrecorded:
        if ended_run.run_id == event.run_id and ended_run.token == event.token != 0:
            is_own = not ended_run.was_lost and ended_run.is_bound_to(event.runner_id)
            return Answer(Verdict.OK if is_own else Verdict.FENCED, ended_run)
    return Answer(Verdict.FENCED)


def return_claim(draft: Draft, event: events.ReturnClaim) -> Answer:
    run = _held_run(draft, event.run_id, event.token, event.runner_id)
    if run is None:
        return Answer(Verdict.FENCED)
    if event.never_started:
        if run.runner_id and run.status is RunStatus.RUNNING:
            return Answer(Verdict.FENCED)  # its runner has reported the start
        if event.lacks_resources and not run.cancel_reason:
            wait_for_resources(draft, run)
        elif event.at_once and not run.cancel_reason and run.return_count < MAX_RETURNED_CLAIMS:
            requeue(draft, replace(run, return_count=run.return_count + 1))
        else:
            _return_unstarted(draft, run, event.start_failed)
    elif event.work_begun or draft.rules_of(run.definition).at_most_once:
        lose_attempt(draft, run)
    elif run.return_count >= MAX_RETURNED_CLAIMS:
        lose_attempt(draft, replace(run, return_count=0) if event.with_delay else run)
    elif run.cancel_reason:
        end_run(draft, run, RunStatus.CANCELLED, run.cancel_reason)
    elif event.with_delay:
        delay_run(draft, run)
    else:
        requeue(draft, replace(run, return_count=run.return_count + 1))
    process_due(draft)
    return Answer(Verdict.OK, find_live_or_ended(draft, event.run_id))


def dead_letter(draft: Draft, event: events.DeadLetter) -> Answer:
    run = draft.find_run(event.run_id)
    if run is None:
        return Answer(Verdict.GONE)
    is_stale = event.version is not None and run.token > event.version
    if run.status is not RunStatus.QUEUED or is_stale:  # a message of an earlier attempt
        return Answer(Verdict.HELD if run.is_held else Verdict.NOT_QUEUED, run)
    end_run(draft, run, RunStatus.FAILED, Reason.POISON)
    process_due(draft)
    return Answer(Verdict.OK, find_live_or_ended(draft, event.run_id))


def cancel_run(draft: Draft, event: events.CancelRun) -> Answer:
    run = draft.find_run(event.run_id)
    if run is not None:
        attempts.cancel_run(draft, run, Reason.CANCELLED)
        process_due(draft)
        return Answer(Verdict.OK, find_live_or_ended(draft, event.run_id))
    for waiting in draft.wait_queue:
        if waiting.run_id == event.run_id:
            draft.wait_queue.remove(waiting)
            end_waiting_run(draft, waiting, RunStatus.CANCELLED, Reason.CANCELLED)
            process_due(draft)
            return Answer(Verdict.OK, find_live_or_ended(draft, event.run_id))
    ended_run = next((run for run in draft.unrecorded if run.run_id == event.run_id), None)
    return Answer(Verdict.CONFLICT if ended_run else Verdict.GONE, ended_run)
