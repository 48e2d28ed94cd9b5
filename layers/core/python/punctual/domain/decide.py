"""`decide`: the one function that changes a job state. docs/architecture.md draws the states."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from punctual.domain import events, fast_path
from punctual.domain.answer import OK, Answer, Verdict, now_of
from punctual.domain.decision import Decision
from punctual.domain.draft import Draft
from punctual.domain.events import Event
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.transitions import commands, execution
from punctual.domain.transitions.wait_queue import LINE_MOST

__all__ = ["Decision", "Verdict", "decide", "decide_at_length"]


def decide(
    head: JobState,
    event: Event,
    now: datetime,
    writer: str = "",
    recorded: frozenset[str] = frozenset(),
    together: bool = False,
) -> Decision:
    """Return the decision for `event` at `now`.

    `writer` is the write id of this swap. `recorded` holds the ids of ended runs that have a
    history row. The next change removes them from the job state. With `together`, history rows
    commit in one transaction with this swap. Runs that end now then need not enter the state.
    """
    if head.blank:
        return Decision(head=head, changed=False, verdict=Verdict.GONE)
    short = _SHORT.get(type(event))
    decision = None if short is None else short(head, event, now, writer, recorded, together)
    return decision or decide_at_length(head, event, now, writer, recorded, together)


def decide_at_length(
    head: JobState,
    event: Event,
    now: datetime,
    writer: str,
    recorded: frozenset[str],
    together: bool,
) -> Decision:
    """Return the decision for any job state and event, without a fast path."""
    draft = Draft(head, now)
    answer = _HANDLERS[type(event)](draft, event)
    _complete(draft)
    brought = event.brought if isinstance(event, events.Evaluate) else ()
    unrecorded = draft.unrecorded(recorded)
    records = draft.to_record(unrecorded)
    stays = draft.growing(unrecorded) if together else unrecorded
    new, timer_at = draft.freeze(writer, stays, brought)
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
        records=records,
        kills=tuple(draft.kills),
        attempts=tuple(draft.attempts),
    )


def _complete(d: Draft) -> None:
    """Set COMPLETED if nothing is left to run, or SCHEDULED again after a request."""
    busy = bool(d.runs or d.line)
    if d.state is JobStatus.COMPLETED and busy:
        d.state = JobStatus.SCHEDULED
    elif d.state is JobStatus.SCHEDULED and not busy and d.next_at is None and d.behind is None:
        d.state = JobStatus.COMPLETED


def _pause(d: Draft, _: events.Pause) -> Answer:
    if d.state in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        return Answer(Verdict.CONFLICT)
    commands.pause(d)
    return OK


def _resume(d: Draft, event: events.Resume) -> Answer:
    if d.state in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        return Answer(Verdict.CONFLICT)
    commands.resume(d, event)
    return OK


def _cancel(d: Draft, _: events.Cancel) -> Answer:
    commands.cancel(d)
    return OK


def _update(d: Draft, event: events.Update) -> Answer:
    if d.state is JobStatus.CANCELLED:
        return Answer(Verdict.CONFLICT)
    commands.update(d, event)
    return OK


def _order(d: Draft, event: events.StartRun) -> Answer:
    if d.state is JobStatus.CANCELLED:
        return Answer(Verdict.CONFLICT)
    if now_of(d, event.run_id) is None and all(w.run_id != event.run_id for w in d.line):
        if len(d.line) >= LINE_MOST:
            return Answer(Verdict.FULL)
        commands.order(d, event)
    return Answer(Verdict.OK, now_of(d, event.run_id))


def _backfill(d: Draft, event: events.Backfill) -> Answer:
    if d.state is JobStatus.CANCELLED:
        return Answer(Verdict.CONFLICT)
    if len(d.line) + len(event.runs) > LINE_MOST:
        return Answer(Verdict.FULL)
    commands.backfill(d, event)
    return OK


_HANDLERS: dict[type[Event], Callable[[Draft, Any], Answer]] = {
    events.Evaluate: execution.look,
    events.Claim: execution.claim,
    events.Started: execution.started,
    events.Finish: execution.finish,
    events.ReturnClaim: execution.release,
    events.DeadLetter: execution.poison,
    events.Pause: _pause,
    events.Resume: _resume,
    events.Cancel: _cancel,
    events.CancelRun: execution.cancel_run,
    events.Update: _update,
    events.StartRun: _order,
    events.Backfill: _backfill,
}

_SHORT: dict[type[Event], Callable[..., Decision | None]] = {
    events.Evaluate: fast_path.fire,
    events.Claim: fast_path.claim,
    events.Finish: fast_path.finish,
}
