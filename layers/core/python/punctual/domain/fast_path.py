"""Fast paths of `decide` for nearly all runs: fire, claim and finish the only run of a job.

Each returns the decision of `decide_without_fast_path`, or None in an unusual case. A property
test compares them. The code copies structs with `replace`, which costs less than a new struct.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.decision import Decision, Verdict
from punctual.domain.draft import MAX_WRITE_IDS
from punctual.domain.events import Claim, Evaluate, Finish
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.leases import CLAIM_LEASE
from punctual.domain.operations.memory import without_old
from punctual.domain.run import Lease, Reason, Run, RunStatus, Trigger, with_claim
from punctual.domain.schedules.schedule import Once, next_after
from punctual.domain.schedules.values import counts_from_completion

_NO_JITTER = timedelta(0)


def _is_plain(state: JobState) -> bool:
    """Return whether only the next occurrence matters: no wait queue, catch-up or `max_runs`."""
    return (
        state.status is JobStatus.SCHEDULED
        and not state.wait_queue
        and not state.unrecorded
        and state.catch_up is None
        and state.limits.max_runs is None
        and len(state.rules) == 1
        and state.rules[state.definition].deadline_seconds is None
        and not counts_from_completion(state.schedule)
    )


def _next_timer_at(state: JobState) -> datetime | None:
    """Return when the next occurrence is due, or None if none follows."""
    return None if state.next_at is None else state.next_at + state.limits.jitter


def fire(
    state: JobState,
    event: Evaluate,
    now: datetime,
    write_id: str,
    _recorded_run_ids: frozenset[str],
    _transactional: bool,
) -> Decision | None:
    """Return the decision that fires the next occurrence ahead of its time, or a due `Once`."""
    scheduled_at, schedule, limits = state.next_at, state.schedule, state.limits
    if scheduled_at is None or schedule is None or state.runs or not _is_plain(state):
        return None
    jitter = limits.jitter if limits.jitter_ms else _NO_JITTER
    due_at = scheduled_at + jitter
    if due_at > now:
        if event.fire_ahead_until is None or due_at > event.fire_ahead_until:
            return None
    elif not isinstance(schedule, Once) or due_at < now - limits.grace:
        return None
    next_at = None if isinstance(schedule, Once) else next_after(schedule, scheduled_at)
    run = Run(
        occurrence_id(state.job_id, scheduled_at),
        RunStatus.QUEUED,
        state.definition,
        scheduled_at,
        due_at,
        now,
        now,
    )
    run = replace(run, sent_at=max(now, due_at), send_count=1)
    timer_at = None if next_at is None else next_at + jitter
    new_state = replace(
        state,
        version=state.version + 1,
        planned_until=scheduled_at,
        next_at=next_at,
        runs=(run,),
        latest_run_id=run.run_id,
        timer_at=timer_at,
        write_ids=(*state.write_ids[1 - MAX_WRITE_IDS :], write_id),
        operation_memory=without_old(state.operation_memory, now),
        ended_at=None,
    )
    put_timer_at = (
        None if timer_at == state.timer_at or timer_at in event.trigger_times else timer_at
    )
    return Decision(new_state, True, timer_at=put_timer_at, runs_to_send=(run,))


def claim(
    state: JobState,
    event: Claim,
    now: datetime,
    write_id: str,
    _recorded_run_ids: frozenset[str],
    _transactional: bool,
) -> Decision | None:
    """Return the decision that claims the only run."""
    if len(state.runs) != 1 or event.starts_later or event.hands_over_scripts:
        return None
    run, timer_at = state.runs[0], _next_timer_at(state)
    if run.run_id != event.run_id or run.status is not RunStatus.QUEUED or run.due_at > now:
        return None
    if not _is_plain(state):
        return None
    token = state.version + 1
    claimed_run = with_claim(run, RunStatus.RUNNING, token, event.executor_id, event.nonce, now)
    new_state = replace(
        state,
        version=token,
        started_runs=state.started_runs + (run.trigger is Trigger.SCHEDULE and not run.has_begun),
        runs=(claimed_run,),
        timer_at=timer_at,
        write_ids=(*state.write_ids[1 - MAX_WRITE_IDS :], write_id),
        operation_memory=without_old(state.operation_memory, now),
        ended_at=None,
    )
    lease = Lease(token=token, until=now + CLAIM_LEASE)
    put_timer_at = None if timer_at == state.timer_at else timer_at
    return Decision(
        new_state, True, Verdict.OK, claimed_run, timer_at=put_timer_at, leases={run.run_id: lease}
    )


def finish(
    state: JobState,
    event: Finish,
    now: datetime,
    write_id: str,
    recorded_run_ids: frozenset[str],
    transactional: bool,
) -> Decision | None:
    """Return the decision that ends the only run with SUCCESS."""
    if len(state.runs) != 1 or event.status is not RunStatus.SUCCESS or recorded_run_ids:
        return None
    run, timer_at = state.runs[0], _next_timer_at(state)
    if run.run_id != event.run_id or run.token != event.token or not run.is_held:
        return None
    if not run.is_bound_to(event.runner_id):
        return None
    if not _is_plain(state) or (timer_at is not None and timer_at <= now):
        return None
    ended_run = replace(
        run,
        status=RunStatus.SUCCESS,
        reason=Reason.NONE,
        ended_at=now,
        changed_at=now,
        next_at=None,
        cancel_reason=Reason.NONE,
        inline_output=event.inline_output or run.inline_output,
    )
    new_state = replace(
        state,
        version=state.version + 1,
        status=JobStatus.COMPLETED if timer_at is None else JobStatus.SCHEDULED,
        runs=(),
        unrecorded=() if transactional else (ended_run,),
        timer_at=timer_at,
        write_ids=(*state.write_ids[1 - MAX_WRITE_IDS :], write_id),
        operation_memory=without_old(state.operation_memory, now),
        ended_at=(state.ended_at or now) if timer_at is None else None,
    )
    put_timer_at = None if timer_at == state.timer_at else timer_at
    leases = {run.run_id: None}
    return Decision(
        new_state,
        True,
        Verdict.OK,
        ended_run,
        timer_at=put_timer_at,
        leases=leases,
        runs_to_record=(ended_run,),
    )
