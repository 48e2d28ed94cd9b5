"""The invariants that hold after every decision."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from punctual.domain.decide import Decision, Verdict, decide, decide_without_fast_path
from punctual.domain.events import Claim, Evaluate, Event, Finish
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.run import ENDED_RUN_STATUSES, Reason, Run, RunStatus, Trigger, WaitingRun
from tests.support.builders_jobs import next_due_at

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "architecture.md"
ACTIVE_STATUSES = frozenset(
    {RunStatus.WAITING, RunStatus.QUEUED, RunStatus.CLAIMED, RunStatus.RUNNING}
)
Transitions = frozenset[tuple[str, str]]


def allowed_transitions(title: str) -> Transitions:
    """Return the steps in the table under a heading of docs/architecture.md."""
    part = ARCHITECTURE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\w+) \|", part, re.MULTILINE)
    return frozenset((a, b) for a, b in rows if a != "from")


RUN_TRANSITIONS, JOB_TRANSITIONS = (
    allowed_transitions("States of a run"),
    allowed_transitions("States of a job"),
)


def statuses(state: JobState) -> dict[str, str]:
    run_statuses = {run.run_id: run.status.value for run in (*state.unrecorded, *state.runs)}
    return run_statuses | {waiting.run_id: RunStatus.WAITING.value for waiting in state.wait_queue}


def transitions_of(before: JobState, decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield the status changes of runs in this decision.

    A row that is only recorded does not count.
    """
    old = statuses(before)
    new = {run.run_id: run.status.value for run in decision.runs_to_record} | statuses(
        decision.state
    )
    for run_id in old.keys() | new.keys():
        a, b = old.get(run_id, "new"), new.get(run_id, "new")
        recorded = a in {s.value for s in ENDED_RUN_STATUSES} and b == "new"
        if a != b and not recorded:
            yield a, b


def checked_decide(
    state: JobState, event: Event, now: datetime, writer: str, recorded: frozenset[str]
) -> Decision:
    """Decide, and check that the decision is pure and keeps every invariant."""
    before = msgspec.json.encode(state)
    decision = decide(state, event, now, writer, recorded)
    assert decide(state, event, now, writer, recorded) == decision
    if isinstance(event, Evaluate | Claim | Finish):
        check_fast_path(state, event, now, writer, recorded)
    assert msgspec.json.encode(state) == before
    check_versions(state, decision, writer)
    check_transitions(state, decision)
    check_claim(state, event, decision, now)
    check_state(decision.state)
    check_room(state, decision.state)
    check_effects(decision)
    check_timer(state, decision, event, now)
    check_ids(decision.state)
    return decision


def check_fast_path(
    state: JobState, event: Event, now: datetime, writer: str, recorded: frozenset[str]
) -> None:
    """Check that the fast path of an event gives the same decision as the full path."""
    for transactional in (False, True):
        full_decision = decide_without_fast_path(state, event, now, writer, recorded, transactional)
        assert decide(state, event, now, writer, recorded, transactional) == full_decision


def check_versions(state: JobState, decision: Decision, writer: str) -> None:
    if decision.changed:
        assert decision.state.version == state.version + 1
        assert decision.state.write_ids[-1] == writer
        assert decision.state.edition in (state.edition, state.edition + 1)
    else:
        assert decision.state is state
        assert not (decision.runs_to_send and state.status is JobStatus.CANCELLED)


def check_transitions(state: JobState, decision: Decision) -> None:
    for step in transitions_of(state, decision):
        assert step in RUN_TRANSITIONS, step
    a, b = state.status.value, decision.state.status.value
    assert a == b or (a, b) in JOB_TRANSITIONS, (a, b)
    old = {run.run_id: run for run in state.runs}
    for run in decision.state.runs:
        former = old.get(run.run_id)
        if former is not None:
            assert run.token >= former.token
            assert run.past_attempts.startswith(former.past_attempts)
            order = (RunStatus.QUEUED, RunStatus.CLAIMED, RunStatus.RUNNING)
            if run.is_held and former.is_held:
                assert run.token == former.token
                assert order.index(run.status) >= order.index(former.status)


def check_claim(state: JobState, event: Event, decision: Decision, now: datetime) -> None:
    """Check that only a claim creates a holder, and only within the limit."""
    held_run_ids = {run.run_id for run in state.runs if run.is_held}
    new = [run for run in decision.state.runs if run.is_held and run.run_id not in held_run_ids]
    if not new:
        return
    assert isinstance(event, Claim)
    (run,) = new
    assert decision.verdict is Verdict.OK
    assert run.run_id == event.run_id
    assert run.due_at <= now
    assert run.token == decision.state.version
    assert len(held_run_ids) < state.limits.max_concurrency
    assert state.status is not JobStatus.CANCELLED
    former = next(old for old in state.runs if old.run_id == run.run_id)
    assert (
        former.has_begun
        or run.trigger is not Trigger.SCHEDULE
        or state.status is not JobStatus.PAUSED
    )
    assert set(decision.leases) >= {run.run_id}


def check_state(state: JobState) -> None:
    alive = bool(state.runs or state.wait_queue)
    if state.status is JobStatus.CANCELLED:
        assert all(run.is_held and run.cancel_reason for run in state.runs)
        assert not state.wait_queue
    if state.status is JobStatus.COMPLETED:
        assert not alive
    if state.status in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        assert state.next_at is None
        assert state.catch_up is None
        assert (state.ended_at is not None) == (not alive)
    if state.status is JobStatus.SCHEDULED:
        assert alive or state.next_at is not None or state.catch_up is not None
    assert (state.pause is not None) == (state.status is JobStatus.PAUSED)
    if state.status is JobStatus.PAUSED:
        for run in state.runs:
            assert run.has_begun or run.trigger is not Trigger.SCHEDULE
    assert (
        state.planned_until is None or state.next_at is None or state.next_at > state.planned_until
    )


def check_room(before: JobState, state: JobState) -> None:
    assert len(state.runs) <= max(state.limits.max_concurrency, len(before.runs))
    if len(state.runs) < state.limits.max_concurrency:
        for waiting in state.wait_queue:
            assert state.status is JobStatus.PAUSED, "it waits although a place is free"
            assert waiting.trigger is Trigger.SCHEDULE
    going = sum(run.is_held or run.status is RunStatus.QUEUED for run in state.runs)
    for run in state.runs:
        if run.status is RunStatus.WAITING and run.reason is Reason.CONCURRENCY:
            assert going >= state.limits.max_concurrency


def check_effects(decision: Decision) -> None:
    runs = {run.run_id: run for run in decision.state.runs}
    for sent in decision.runs_to_send:
        assert runs[sent.run_id] == sent
        assert sent.status is RunStatus.QUEUED
    for run_id in decision.run_ids_to_stop:
        assert runs[run_id].is_held
        assert runs[run_id].cancel_reason
    for record in decision.runs_to_record:
        assert record.status in ENDED_RUN_STATUSES
        assert record.ended_at is not None
        assert record.run_id not in runs
    for run_id, lease in decision.leases.items():
        held = run_id in runs and runs[run_id].is_held
        assert (lease is not None) == held


def check_timer(former: JobState, decision: Decision, event: Event, now: datetime) -> None:
    """Check that future work has a timer, and that an evaluation leaves no due work."""
    state = decision.state
    times = list(future_times(state))
    if state.catch_up is None or state.status is not JobStatus.SCHEDULED:
        assert state.timer_at == min(times, default=None)
    else:
        assert state.timer_at is not None
        assert state.timer_at <= now
    if isinstance(event, Evaluate) and state.catch_up is None and state.timer_at is not None:
        assert state.timer_at > now or state.planned_until != former.planned_until, (
            "evaluations repeat without an end"
        )
    if decision.timer_at is not None:
        assert decision.timer_at == state.timer_at


def future_times(state: JobState) -> Iterator[datetime]:
    due_at = next_due_at(state)
    if state.status is JobStatus.SCHEDULED and due_at is not None:
        yield due_at
    if state.pause is not None and state.pause.until is not None:
        yield state.pause.until
    unstarted: list[Run | WaitingRun] = [
        run for run in state.runs if not run.is_held and not run.past_attempts
    ]
    for run in (*unstarted, *state.wait_queue):
        deadline = state.rules[run.definition].deadline_seconds
        if deadline is not None:
            yield run.due_at + timedelta(seconds=deadline)
    for between in state.runs:
        if between.status is RunStatus.WAITING and between.next_at is not None:
            yield between.next_at


def check_ids(state: JobState) -> None:
    alive: list[Run | WaitingRun] = [*state.runs, *state.wait_queue]
    ids = [run.run_id for run in (*alive, *state.unrecorded)]
    assert len(ids) == len(set(ids))
    assert {state.definition, *(run.definition for run in alive)} <= set(state.rules)
    assert all(run.status in ACTIVE_STATUSES for run in state.runs)
    assert all(run.status in ENDED_RUN_STATUSES for run in state.unrecorded)
