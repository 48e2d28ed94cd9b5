"""`decide`: the one function that changes a job state. docs/architecture.md draws the states."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from punctual.domain import events, fast_path
from punctual.domain.decision import OK, Answer, Decision, Verdict, find_live_or_ended
from punctual.domain.draft import Draft
from punctual.domain.events import Event
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.operations.memory import is_full, remember, remembers
from punctual.domain.transitions import commands, execution, pause
from punctual.domain.transitions.wait_queue import MAX_WAITING_RUNS

__all__ = ["Decision", "Verdict", "decide", "decide_without_fast_path"]


def decide(
    state: JobState,
    event: Event,
    now: datetime,
    write_id: str = "",
    recorded_run_ids: frozenset[str] = frozenset(),
    transactional: bool = False,
) -> Decision:
    """Return the decision for `event` at `now`.

    `write_id` is that of this swap. `recorded_run_ids` holds the ids of ended runs with a history
    row. The next change removes these runs from the job state. With `transactional`, history rows
    commit in one transaction with this swap. Runs that end now then need not enter the state.
    """
    if state.is_blank:
        return Decision(state=state, changed=False, verdict=Verdict.GONE)
    fast_handler = _FAST_PATHS.get(type(event))
    decision = (
        None
        if fast_handler is None
        else fast_handler(state, event, now, write_id, recorded_run_ids, transactional)
    )
    return decision or decide_without_fast_path(
        state, event, now, write_id, recorded_run_ids, transactional
    )


def decide_without_fast_path(
    state: JobState,
    event: Event,
    now: datetime,
    write_id: str,
    recorded_run_ids: frozenset[str],
    transactional: bool,
) -> Decision:
    """Return the decision for any job state and event, without a fast path."""
    draft = Draft(state, now)
    answer = _HANDLERS[type(event)](draft, event)
    _update_completion(draft)
    trigger_times = event.trigger_times if isinstance(event, events.Evaluate) else ()
    unrecorded = draft.without_recorded(recorded_run_ids)
    runs_to_record = draft.runs_ready_to_record(unrecorded)
    kept_runs = draft.growing_entries(unrecorded) if transactional else unrecorded
    new_state, timer_at = draft.freeze(write_id, kept_runs, trigger_times)
    return Decision(
        state=new_state,
        changed=new_state is not state,
        verdict=answer.verdict,
        run=answer.run,
        retry_at=answer.retry_at,
        timer_at=timer_at,
        leases=draft.leases,
        required_leases=draft.required_leases,
        runs_to_send=tuple(draft.runs_to_send),
        runs_to_record=runs_to_record,
        run_ids_to_stop=tuple(draft.run_ids_to_stop),
        ended_attempts=tuple(draft.ended_attempts),
    )


def _update_completion(draft: Draft) -> None:
    """Set COMPLETED if nothing is left to run, or SCHEDULED again after a request."""
    has_work = bool(draft.runs or draft.wait_queue)
    if draft.status is JobStatus.COMPLETED and has_work:
        draft.status = JobStatus.SCHEDULED
    elif (
        draft.status is JobStatus.SCHEDULED
        and not has_work
        and draft.next_at is None
        and draft.catch_up is None
    ):
        draft.status = JobStatus.COMPLETED


def _pause(draft: Draft, event: events.Pause) -> Answer:
    return _act_once(draft, event.operation_id, lambda: pause.pause(draft, event))


def _resume(draft: Draft, event: events.Resume) -> Answer:
    return _act_once(draft, event.operation_id, lambda: pause.resume(draft, event))


def _act_once(draft: Draft, operation_id: str, act: Callable[[], None]) -> Answer:
    """Pause or resume the job, unless this operation has done so before.

    The status does not tell, because a person may have changed it back since.
    """
    if operation_id and remembers(draft.operation_memory, operation_id):
        return OK
    if draft.status in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        return Answer(Verdict.CONFLICT)
    if operation_id:
        if is_full(draft.operation_memory, draft.now):
            return Answer(Verdict.FULL)
        draft.operation_memory = remember(draft.operation_memory, operation_id, draft.now)
    act()
    return OK


def _cancel(draft: Draft, _: events.Cancel) -> Answer:
    commands.cancel(draft)
    return OK


def _update(draft: Draft, event: events.Update) -> Answer:
    if draft.status is JobStatus.CANCELLED:
        return Answer(Verdict.CONFLICT)
    commands.update(draft, event)
    return OK


def _start_run(draft: Draft, event: events.StartRun) -> Answer:
    if draft.status is JobStatus.CANCELLED:
        return Answer(Verdict.CONFLICT)
    if find_live_or_ended(draft, event.run_id) is None and all(
        waiting.run_id != event.run_id for waiting in draft.wait_queue
    ):
        if len(draft.wait_queue) >= MAX_WAITING_RUNS:
            return Answer(Verdict.FULL)
        commands.start_run(draft, event)
    return Answer(Verdict.OK, find_live_or_ended(draft, event.run_id))


def _backfill(draft: Draft, event: events.Backfill) -> Answer:
    if draft.status is JobStatus.CANCELLED:
        return Answer(Verdict.CONFLICT)
    if len(draft.wait_queue) + len(event.runs) > MAX_WAITING_RUNS:
        return Answer(Verdict.FULL)
    commands.backfill(draft, event)
    return OK


_HANDLERS: dict[type[Event], Callable[[Draft, Any], Answer]] = {
    events.Evaluate: execution.evaluate,
    events.Claim: execution.claim,
    events.Started: execution.mark_running,
    events.Finish: execution.finish,
    events.ReturnClaim: execution.return_claim,
    events.DeadLetter: execution.dead_letter,
    events.Pause: _pause,
    events.Resume: _resume,
    events.Cancel: _cancel,
    events.CancelRun: execution.cancel_run,
    events.Update: _update,
    events.StartRun: _start_run,
    events.Backfill: _backfill,
}

_FAST_PATHS: dict[type[Event], Callable[..., Decision | None]] = {
    events.Evaluate: fast_path.fire,
    events.Claim: fast_path.claim,
    events.Finish: fast_path.finish,
}
