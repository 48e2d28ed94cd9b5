"""Fast paths of `decide` for nearly all runs: fire, claim and finish the only run of a job.

Each returns the decision of `decide_at_length`, or None in an unusual case. A property test
compares them. The code copies structs with `replace`, which costs less than a new struct.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from punctual.domain.answer import Verdict
from punctual.domain.decision import Decision
from punctual.domain.draft import WRITERS
from punctual.domain.durations import CLAIM_LEASE
from punctual.domain.events import Claim, Evaluate, Finish
from punctual.domain.identifiers import occurrence_id
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import Lease, Reason, Run, RunStatus, Trigger
from punctual.domain.schedules.schedule import Every, Once, next_after

_NO_JITTER = timedelta(0)


def _is_plain(head: JobState) -> bool:
    """Return whether only the next occurrence matters: no wait queue, catch-up or `max_runs`."""
    return (
        head.state is JobStatus.SCHEDULED
        and not head.line
        and not head.ended
        and head.behind is None
        and head.limits.max_runs is None
        and len(head.rules) == 1
        and head.rules[head.definition].deadline_seconds is None
        and not (isinstance(head.schedule, Every) and head.schedule.from_completion)
    )


def _next_timer(head: JobState) -> datetime | None:
    """Return when the next occurrence is due, or None if none follows."""
    return None if head.next_at is None else head.next_at + head.limits.jitter


def fire(
    head: JobState,
    event: Evaluate,
    now: datetime,
    writer: str,
    _recorded: frozenset[str],
    _together: bool,
) -> Decision | None:
    """Return the decision that fires the next occurrence ahead of its time, or a due `Once`."""
    at, schedule, limits = head.next_at, head.schedule, head.limits
    if at is None or schedule is None or head.runs or not _is_plain(head):
        return None
    jitter = limits.jitter if limits.jitter_ms else _NO_JITTER
    due = at + jitter
    if due > now:
        if event.horizon is None or due > event.horizon:
            return None
    elif not isinstance(schedule, Once) or due < now - limits.grace:
        return None
    following = None if isinstance(schedule, Once) else next_after(schedule, at)
    run = Run(occurrence_id(head.job_id, at), RunStatus.QUEUED, head.definition, at, due, now, now)
    run = replace(run, sent_at=max(now, due), sends=1)
    wanted = None if following is None else following + jitter
    new = replace(
        head,
        version=head.version + 1,
        mark=at,
        next_at=following,
        runs=(run,),
        latest=run.run_id,
        timer_at=wanted,
        writers=(*head.writers[1 - WRITERS :], writer),
        ended_at=None,
    )
    put = None if wanted == head.timer_at or wanted in event.brought else wanted
    return Decision(new, True, timer_at=put, sends=(run,))


def claim(
    head: JobState,
    event: Claim,
    now: datetime,
    writer: str,
    _recorded: frozenset[str],
    _together: bool,
) -> Decision | None:
    """Return the decision that claims the only run."""
    if len(head.runs) != 1 or event.staged:
        return None
    run, wanted = head.runs[0], _next_timer(head)
    if run.run_id != event.run_id or run.status is not RunStatus.QUEUED or run.due_at > now:
        return None
    if not _is_plain(head):
        return None
    token = head.version + 1
    claimed = replace(
        run,
        status=RunStatus.RUNNING,
        reason=Reason.NONE,
        token=token,
        claimer=event.claimer,
        nonce=event.nonce,
        started_at=run.started_at or now,
        attempt_at=now,
        changed_at=now,
        sent_at=None,
        sends=0,
    )
    new = replace(
        head,
        version=token,
        started=head.started + (run.trigger is Trigger.SCHEDULE and not run.begun),
        runs=(claimed,),
        timer_at=wanted,
        writers=(*head.writers[1 - WRITERS :], writer),
        ended_at=None,
    )
    lease = Lease(token=token, until=now + CLAIM_LEASE)
    put = None if wanted == head.timer_at else wanted
    return Decision(new, True, Verdict.OK, claimed, timer_at=put, leases={run.run_id: lease})


def finish(
    head: JobState,
    event: Finish,
    now: datetime,
    writer: str,
    recorded: frozenset[str],
    together: bool,
) -> Decision | None:
    """Return the decision that ends the only run with SUCCESS."""
    if len(head.runs) != 1 or event.status is not RunStatus.SUCCESS or recorded:
        return None
    run, wanted = head.runs[0], _next_timer(head)
    if run.run_id != event.run_id or run.token != event.token or not run.held:
        return None
    if not _is_plain(head) or (wanted is not None and wanted <= now):
        return None
    ended = replace(
        run,
        status=RunStatus.SUCCESS,
        reason=Reason.NONE,
        ended_at=now,
        changed_at=now,
        next_at=None,
        cancel=Reason.NONE,
        note=event.note or run.note,
    )
    new = replace(
        head,
        version=head.version + 1,
        state=JobStatus.COMPLETED if wanted is None else JobStatus.SCHEDULED,
        runs=(),
        ended=() if together else (ended,),
        timer_at=wanted,
        writers=(*head.writers[1 - WRITERS :], writer),
        ended_at=(head.ended_at or now) if wanted is None else None,
    )
    put = None if wanted == head.timer_at else wanted
    leases = {run.run_id: None}
    return Decision(new, True, Verdict.OK, ended, timer_at=put, leases=leases, records=(ended,))
