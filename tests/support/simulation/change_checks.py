"""Check the reason of each firing, skip, end and removal of a run.

Each rule looks at one swap, with the job before and after it and the clients' calls. The time of a
decision is the one that it wrote itself, so these rules need no tolerance.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from punctual.domain.job_state import JobLimits, JobState, JobStatus, MisfirePolicy, OverlapPolicy
from punctual.domain.run import Reason, Run, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.schedule import Every
from punctual.domain.utc import MICROSECOND
from tests.support.simulation.schedule_times import next_time

FAR = timedelta(hours=1)  # more than any distance of times in a story


@dataclass
class Requests:
    """The clients' requests for one job, also those that failed."""

    cancelled: bool = False
    cancelled_runs: set[str] = field(default_factory=set)
    missed: set[MisfirePolicy | None] = field(default_factory=set)  # by resume


@dataclass
class StateChange:
    """One swap of one job."""

    old: JobState
    new: JobState
    requests: Requests
    begun: int  # scheduled runs begun since the last change of the schedule

    @property
    def limits(self) -> list[JobLimits]:
        """Return the limits before and after the swap. A change settles due occurrences by both."""
        return [self.old.limits, self.new.limits]

    @property
    def is_resumed(self) -> bool:
        return self.old.status is JobStatus.PAUSED and self.new.status in (
            JobStatus.SCHEDULED,
            JobStatus.COMPLETED,
        )

    @property
    def is_resumed_by_time(self) -> bool:
        return self.is_resumed and self.old.edition == self.new.edition

    def end_of_pause(self, at: datetime) -> datetime:
        """Return the time up to which an occurrence of the pause counts as missed."""
        if not self.is_resumed_by_time:
            return at
        assert self.old.pause is not None
        assert self.old.pause.until is not None, "a pause without a time ends by itself"
        assert self.old.pause.until <= at, "a pause ends before its time"
        return self.old.pause.until - MICROSECOND

    @property
    def is_rescheduled(self) -> bool:
        return self.old.schedule != self.new.schedule

    @property
    def is_cancelled(self) -> bool:
        return self.old.status is not JobStatus.CANCELLED and self.new.status is JobStatus.CANCELLED

    @property
    def at(self) -> datetime | None:
        """Return the time of the decision, if a client's call made it."""
        if self.old.edition != self.new.edition:
            return self.new.updated_at
        known_ids = {run.run_id for run in self.old.runs} | {
            waiting.run_id for waiting in self.old.wait_queue
        }
        created = [run.created_at for run in self.new.runs if run.run_id not in known_ids]
        created += [
            waiting.created_at for waiting in self.new.wait_queue if waiting.run_id not in known_ids
        ]
        return max(created, default=None)

    def policies(self, limits: JobLimits) -> set[MisfirePolicy]:
        """Return the misfire policies in force."""
        misfire_policies = {limits.misfire}
        if self.is_resumed and not self.is_resumed_by_time and self.requests.missed:
            misfire_policies = {missed or limits.misfire for missed in self.requests.missed}
        if self.old.catch_up is not None:
            misfire_policies.add(self.old.catch_up.policy)
        return misfire_policies

    def is_overdue(self, scheduled_at: datetime, at: datetime, limits: JobLimits) -> bool:
        """Return True if the misfire policy applies, after the grace or after a pause."""
        if self.is_resumed and not self.is_resumed_by_time:
            return self.is_in_pause(scheduled_at, at, limits)
        due_at = scheduled_at + limits.jitter
        # A catch-up goes on up to the time that it began with, perhaps by a clock that is ahead.
        catch_up = self.old.catch_up
        is_in_catch_up = catch_up is not None and due_at <= catch_up.until
        is_in_outage = due_at < at - limits.grace
        return is_in_outage or is_in_catch_up or self.is_in_pause(scheduled_at, at, limits)

    def is_in_pause(self, scheduled_at: datetime, at: datetime, limits: JobLimits) -> bool:
        """Return True if the occurrence became due in a pause that this swap ends."""
        return self.is_resumed and scheduled_at + limits.jitter <= self.end_of_pause(at)

    def may_be_missed(self, scheduled_at: datetime, at: datetime, limits: JobLimits) -> bool:
        """Return True also at the end of the grace, which a catch-up includes."""
        due = scheduled_at + limits.jitter
        return due <= (self.end_of_pause(at) if self.is_resumed else at - limits.grace)

    def following(self, scheduled_at: datetime) -> datetime | None:
        """Return the next occurrence, or None for a schedule from completion."""
        schedule = self.old.schedule
        if schedule is None or (isinstance(schedule, Every) and schedule.from_completion):
            return None
        return next_time(schedule, scheduled_at, FAR)


def check_fired(change: StateChange, run: Run | WaitingRun, is_waiting: bool) -> None:
    """Check that a new scheduled run is due, is not missed, and has a right to its place."""
    at, name = run.created_at, f"the occurrence of {run.scheduled_at}"
    assert change.new.status is not JobStatus.CANCELLED, f"{name} is fired after a cancel"
    assert change.old.status is not JobStatus.PAUSED or change.is_resumed, (
        f"{name} is fired in a pause"
    )
    jitters = {limits.jitter for limits in change.limits}
    assert run.due_at - run.scheduled_at in jitters, f"{name} is due at {run.due_at}"
    limits_of_runs = [limits.max_runs for limits in change.limits if limits.max_runs is not None]
    assert not limits_of_runs or change.begun < max(limits_of_runs), (
        f"{name} is fired beyond max_runs"
    )
    if isinstance(run, WaitingRun) or not run.has_begun:
        limit = _deadline_of(change, run)
        assert limit is None or limit > at, f"{name} is fired after its deadline"
    if all(change.is_overdue(run.scheduled_at, at, limits) for limits in change.limits):
        assert any(
            _may_catch_up(change, run.scheduled_at, at, limits) for limits in change.limits
        ), f"{name} was missed, and runs by no policy of {change.limits}"
    elif is_waiting and change.old.edition == change.new.edition:
        _check_waiting(change, name)


def _may_catch_up(
    change: StateChange, scheduled_at: datetime, at: datetime, limits: JobLimits
) -> bool:
    """Return True if the misfire policy allows this missed occurrence to run."""
    policies = change.policies(limits)
    if MisfirePolicy.RUN_ALL in policies:
        return True
    following = change.following(scheduled_at)
    is_latest = (
        following is None
        or not change.is_overdue(following, at, limits)
        # The pause and an outage after it are caught up one after the other.
        or change.is_in_pause(scheduled_at, at, limits) != change.is_in_pause(following, at, limits)
    )
    return MisfirePolicy.RUN_ONCE in policies and is_latest


def _check_waiting(change: StateChange, name: str) -> None:
    """Check that the overlap policy lets a run wait."""
    limits, new = change.new.limits, change.new
    counted = [waiting for waiting in new.wait_queue if _counts(waiting)]
    if limits.overlap is OverlapPolicy.SKIP:
        raise AssertionError(f"{name} waits, and the policy is SKIP")
    if limits.overlap is OverlapPolicy.QUEUE:
        before = sum(_counts(waiting) for waiting in change.old.wait_queue)
        assert len(counted) <= max(limits.max_waiting, before), f"{name} exceeds max_waiting"
        return
    known_ids = {run.run_id for run in change.old.runs}
    active = [run for run in new.runs if not run.cancel_reason and run.run_id in known_ids]
    scheduled = [run for run in active if run.trigger is Trigger.SCHEDULE]
    places = len(active) + len(counted)
    assert places <= limits.max_concurrency or len(scheduled) + len(counted) <= 1, (
        f"{name} replaces nothing"
    )


def _counts(waiting: WaitingRun) -> bool:
    return waiting.trigger is Trigger.SCHEDULE and not waiting.is_caught_up


def _deadline_of(change: StateChange, run: Run | WaitingRun) -> datetime | None:
    rules = {**change.old.rules, **change.new.rules}.get(run.definition)
    if rules is None or rules.deadline_seconds is None:
        return None
    return run.due_at + timedelta(seconds=rules.deadline_seconds)


def check_ended(change: StateChange, was: Run | WaitingRun | None, run: Run) -> None:
    """Check the reason of a run that ended in this swap, or was never fired."""
    rule = _RULES.get(run.reason)
    assert rule is not None, f"no run ends as {run.status} with {run.reason}"
    assert run.ended_at is not None
    at = run.changed_at if run.occurrence_count > 1 else run.ended_at
    begun = isinstance(was, Run) and bool(was.past_attempts)  # a returned claim began nothing
    if run.status in (RunStatus.SKIPPED, RunStatus.MISSED):
        assert not begun, f"{run.status}, and it had begun"
    assert rule(change, was, run, at), (
        f"{run.status} {run.reason} at {at}: not so for {run.scheduled_at} to {run.last_at}"
    )


Rule = Callable[[StateChange, Run | WaitingRun | None, Run, datetime], bool]


def _finished(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    return isinstance(was, Run) and was.is_held


def _lost(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    return isinstance(was, Run) and was.is_held and run.status is RunStatus.FAILED


def _deadline(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    limit = _deadline_of(change, run)
    return run.status is RunStatus.MISSED and limit is not None and limit <= at


def _outage(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    if change.is_cancelled and change.old.status is not JobStatus.PAUSED:
        overdue = (change.is_overdue(run.scheduled_at, at, limits) for limits in change.limits)
        return run.status is RunStatus.MISSED and any(overdue)
    if run.status is not RunStatus.MISSED or was is not None:
        return False
    last = run.last_at or run.scheduled_at
    return any(
        MisfirePolicy.SKIP in change.policies(limits) and change.may_be_missed(last, at, limits)
        for limits in change.limits
    )


def _coalesced(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    following = change.following(run.last_at or run.scheduled_at)
    return (
        run.status is RunStatus.SKIPPED
        and was is None
        and following is not None
        and any(
            MisfirePolicy.RUN_ONCE in change.policies(limits)
            and change.may_be_missed(following, at, limits)
            for limits in change.limits
        )
    )


def _paused(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    by_policy = change.is_resumed and any(
        MisfirePolicy.SKIP in change.policies(limits) for limits in change.limits
    )
    return (
        run.status is RunStatus.SKIPPED
        and was is None
        and change.old.status is JobStatus.PAUSED
        and (by_policy or change.is_cancelled)
        and (run.last_at or run.scheduled_at) <= at
    )


def _rescheduled(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    last = run.last_at or run.scheduled_at
    held_up = change.old.status is JobStatus.PAUSED or change.old.catch_up is not None
    return (
        run.status is RunStatus.SKIPPED
        and change.is_rescheduled
        and last <= at
        and (held_up or last + change.old.limits.jitter > at)
    )


def _overlap(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    last = run.last_at or run.scheduled_at
    return (
        run.status is RunStatus.SKIPPED
        and was is None
        and any(limits.overlap is OverlapPolicy.SKIP for limits in change.limits)
        and _is_judged_in_time(change, last, at)
        and _is_full(change)
    )


def _queue_full(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    last = run.last_at or run.scheduled_at
    waiting = sum(_counts(item) for item in change.new.wait_queue)
    least = min(limits.max_waiting for limits in change.limits)
    return (
        run.status is RunStatus.SKIPPED
        and was is None
        and any(limits.overlap is OverlapPolicy.QUEUE for limits in change.limits)
        and _is_judged_in_time(change, last, at)
        and _is_full(change)
        and (waiting >= least or change.old.edition != change.new.edition)
    )


def _is_judged_in_time(change: StateChange, last: datetime, at: datetime) -> bool:
    """Return True if the time was due, and was not part of an outage under RUN_ALL."""
    return any(
        last + limits.jitter <= at
        and not (
            change.is_overdue(last, at, limits)
            and change.policies(limits) == {MisfirePolicy.RUN_ALL}
        )
        for limits in change.limits
    )


def _is_full(change: StateChange) -> bool:
    if change.old.edition != change.new.edition:
        return True  # a client's change may have removed the runs that took the places
    return len(change.new.runs) >= min(limits.max_concurrency for limits in change.limits)


def _max_runs(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    max_runs_values = [limits.max_runs for limits in change.limits if limits.max_runs is not None]
    return (
        run.status is RunStatus.SKIPPED
        and bool(max_runs_values)
        and change.begun >= min(max_runs_values)
    )


def _replaced(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    """Return True if a later run exists. A held run was replaced earlier."""
    if isinstance(was, Run) and was.cancel_reason is Reason.REPLACED:
        return run.status is RunStatus.CANCELLED
    new, last = change.new, run.last_at or run.scheduled_at
    others: list[Run | WaitingRun] = [*new.runs, *new.wait_queue, *new.unrecorded]
    is_later = any(item.trigger is Trigger.SCHEDULE and item.scheduled_at > last for item in others)
    return (
        run.status is RunStatus.CANCELLED
        and any(limits.overlap is OverlapPolicy.REPLACE for limits in change.limits)
        and is_later
    )


def _cancelled(change: StateChange, was: Run | WaitingRun | None, run: Run, at: datetime) -> bool:
    is_requested = change.requests.cancelled or run.run_id in change.requests.cancelled_runs
    return (
        run.status is RunStatus.CANCELLED
        and is_requested
        and (was is not None or change.is_cancelled)
    )


_RULES: dict[Reason, Rule] = {
    Reason.NONE: _finished,
    Reason.LOST: _lost,
    Reason.DEADLINE: _deadline,
    Reason.OUTAGE: _outage,
    Reason.COALESCED: _coalesced,
    Reason.PAUSED: _paused,
    Reason.RESCHEDULED: _rescheduled,
    Reason.OVERLAP: _overlap,
    Reason.QUEUE_FULL: _queue_full,
    Reason.MAX_RUNS: _max_runs,
    Reason.REPLACED: _replaced,
    Reason.CANCELLED: _cancelled,
}


def check_order(change: StateChange) -> None:
    """Check that the oldest run is replaced, and that the wait queue keeps its order."""
    was = {run.run_id: run for run in change.old.runs}
    for run in change.new.runs:
        before = was.get(run.run_id)
        if before is None or before.cancel_reason or not run.cancel_reason:
            continue
        if run.cancel_reason is Reason.CANCELLED:
            is_requested = change.requests.cancelled or run.run_id in change.requests.cancelled_runs
            assert is_requested, f"{run.run_id} has a stop request without a call that asks for it"
        else:
            policies = {limits.overlap for limits in change.limits}
            assert OverlapPolicy.REPLACE in policies, f"{run.run_id} is replaced, by {policies}"
            older = [
                other.run_id
                for other in change.new.runs
                if other.trigger is Trigger.SCHEDULE
                and not other.cancel_reason
                and other.scheduled_at < run.scheduled_at
                and other.run_id in was
            ]
            assert not older, f"{run.run_id} is replaced, and {older} are older"
    queued = [
        run
        for run in change.new.runs
        if run.trigger is Trigger.SCHEDULE and run.status is RunStatus.QUEUED and not run.has_begun
    ]
    for waiting in change.new.wait_queue:
        for run in queued:  # of one definition, because a changed schedule may name an earlier time
            if waiting.trigger is Trigger.SCHEDULE and waiting.definition == run.definition:
                in_order = run.scheduled_at <= waiting.scheduled_at
                assert in_order, f"{run.scheduled_at} goes before {waiting.scheduled_at}"


def check_withdrawn(change: StateChange) -> None:
    """Check that a run without a trace was fired ahead and was never claimed."""
    remaining = {run.run_id for run in (*change.new.runs, *change.new.unrecorded)}
    remaining |= {waiting_run.run_id for waiting_run in change.new.wait_queue}
    for run in change.old.runs:
        if run.run_id not in remaining:
            early = change.at is not None and run.due_at > change.at
            unclaimed = run.status is RunStatus.QUEUED and not run.has_begun
            is_ahead = early and unclaimed and run.trigger is Trigger.SCHEDULE
            assert is_ahead, f"{run} left no trace"
    if change.old.status is not JobStatus.PAUSED and change.new.status is JobStatus.PAUSED:
        was = {run.run_id: run for run in change.old.runs}
        for waiting in change.new.wait_queue:
            is_early = waiting.run_id in was and waiting.due_at > change.new.updated_at
            assert not is_early, f"{waiting.due_at} is held by a pause as if it were due before it"
    if not change.is_rescheduled:
        return
    for run in change.new.runs:
        is_early = run.due_at > change.new.updated_at and run in change.old.runs
        assert not (is_early and run.trigger is Trigger.SCHEDULE and not run.has_begun), (
            f"{run.scheduled_at} of the former schedule is not taken back"
        )
