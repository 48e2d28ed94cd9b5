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
ALIVE_STATES = frozenset(
    {RunStatus.WAITING, RunStatus.QUEUED, RunStatus.CLAIMED, RunStatus.RUNNING}
)
Steps = frozenset[tuple[str, str]]


def allowed_steps(title: str) -> Steps:
    """Return the steps in the table under a heading of docs/architecture.md."""
    part = ARCHITECTURE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| (\w+) \|", part, re.MULTILINE)
    return frozenset((a, b) for a, b in rows if a != "from")


RUN_STEPS, JOB_STEPS = allowed_steps("States of a run"), allowed_steps("States of a job")


def statuses(head: JobState) -> dict[str, str]:
    found = {run.run_id: run.status.value for run in (*head.unrecorded, *head.runs)}
    return found | {waiting.run_id: RunStatus.WAITING.value for waiting in head.wait_queue}


def steps_of(before: JobState, decision: Decision) -> Iterator[tuple[str, str]]:
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


def decided(
    head: JobState, event: Event, now: datetime, writer: str, recorded: frozenset[str]
) -> Decision:
    """Decide, and check that the decision is pure and keeps every invariant."""
    before = msgspec.json.encode(head)
    decision = decide(head, event, now, writer, recorded)
    assert decide(head, event, now, writer, recorded) == decision
    if isinstance(event, Evaluate | Claim | Finish):
        check_short_ways(head, event, now, writer, recorded)
    assert msgspec.json.encode(head) == before
    check_versions(head, decision, writer)
    check_steps(head, decision)
    check_claim(head, event, decision, now)
    check_state(decision.state)
    check_room(head, decision.state)
    check_effects(decision)
    check_timer(head, decision, event, now)
    check_ids(decision.state)
    return decision


def check_short_ways(
    head: JobState, event: Event, now: datetime, writer: str, recorded: frozenset[str]
) -> None:
    """Check that the fast path of an event gives the same decision as the full path."""
    for together in (False, True):
        at_length = decide_without_fast_path(head, event, now, writer, recorded, together)
        assert decide(head, event, now, writer, recorded, together) == at_length


def check_versions(head: JobState, decision: Decision, writer: str) -> None:
    if decision.changed:
        assert decision.state.version == head.version + 1
        assert decision.state.write_ids[-1] == writer
        assert decision.state.edition in (head.edition, head.edition + 1)
    else:
        assert decision.state is head
        assert not (decision.runs_to_send and head.status is JobStatus.CANCELLED)


def check_steps(head: JobState, decision: Decision) -> None:
    for step in steps_of(head, decision):
        assert step in RUN_STEPS, step
    a, b = head.status.value, decision.state.status.value
    assert a == b or (a, b) in JOB_STEPS, (a, b)
    old = {run.run_id: run for run in head.runs}
    for run in decision.state.runs:
        former = old.get(run.run_id)
        if former is not None:
            assert run.token >= former.token
            assert run.past_attempts.startswith(former.past_attempts)
            order = (RunStatus.QUEUED, RunStatus.CLAIMED, RunStatus.RUNNING)
            if run.is_held and former.is_held:
                assert run.token == former.token
                assert order.index(run.status) >= order.index(former.status)


def check_claim(head: JobState, event: Event, decision: Decision, now: datetime) -> None:
    """Check that only a claim creates a holder, and only within the limit."""
    held = {run.run_id for run in head.runs if run.is_held}
    new = [run for run in decision.state.runs if run.is_held and run.run_id not in held]
    if not new:
        return
    assert isinstance(event, Claim)
    (run,) = new
    assert decision.verdict is Verdict.OK
    assert run.run_id == event.run_id
    assert run.due_at <= now
    assert run.token == decision.state.version
    assert len(held) < head.limits.max_concurrency
    assert head.status is not JobStatus.CANCELLED
    former = next(old for old in head.runs if old.run_id == run.run_id)
    assert (
        former.has_begun
        or run.trigger is not Trigger.SCHEDULE
        or head.status is not JobStatus.PAUSED
    )
    assert set(decision.leases) >= {run.run_id}


def check_state(head: JobState) -> None:
    alive = bool(head.runs or head.wait_queue)
    if head.status is JobStatus.CANCELLED:
        assert all(run.is_held and run.cancel_reason for run in head.runs)
        assert not head.wait_queue
    if head.status is JobStatus.COMPLETED:
        assert not alive
    if head.status in (JobStatus.COMPLETED, JobStatus.CANCELLED):
        assert head.next_at is None
        assert head.catch_up is None
        assert (head.ended_at is not None) == (not alive)
    if head.status is JobStatus.SCHEDULED:
        assert alive or head.next_at is not None or head.catch_up is not None
    if head.status is JobStatus.PAUSED:
        for run in head.runs:
            assert run.has_begun or run.trigger is not Trigger.SCHEDULE
    assert head.planned_until is None or head.next_at is None or head.next_at > head.planned_until


def check_room(before: JobState, head: JobState) -> None:
    assert len(head.runs) <= max(head.limits.max_concurrency, len(before.runs))
    if len(head.runs) < head.limits.max_concurrency:
        for waiting in head.wait_queue:
            assert head.status is JobStatus.PAUSED, "it waits though there is room"
            assert waiting.trigger is Trigger.SCHEDULE
    going = sum(run.is_held or run.status is RunStatus.QUEUED for run in head.runs)
    for run in head.runs:
        if run.status is RunStatus.WAITING and run.reason is Reason.CONCURRENCY:
            assert going >= head.limits.max_concurrency


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
    head = decision.state
    moments = list(to_come(head))
    if head.catch_up is None or head.status is not JobStatus.SCHEDULED:
        assert head.timer_at == min(moments, default=None)
    else:
        assert head.timer_at is not None
        assert head.timer_at <= now
    if isinstance(event, Evaluate) and head.catch_up is None and head.timer_at is not None:
        assert head.timer_at > now or head.planned_until != former.planned_until, (
            "it is looked at without an end"
        )
    if decision.timer_at is not None:
        assert decision.timer_at == head.timer_at


def to_come(head: JobState) -> Iterator[datetime]:
    due_at = next_due_at(head)
    if head.status is JobStatus.SCHEDULED and due_at is not None:
        yield due_at
    unstarted: list[Run | WaitingRun] = [run for run in head.runs if not run.has_begun]
    for run in (*unstarted, *head.wait_queue):
        deadline = head.rules[run.definition].deadline_seconds
        if deadline is not None:
            yield run.due_at + timedelta(seconds=deadline)
    for between in head.runs:
        if between.status is RunStatus.WAITING and between.next_at is not None:
            yield between.next_at


def check_ids(head: JobState) -> None:
    alive: list[Run | WaitingRun] = [*head.runs, *head.wait_queue]
    ids = [run.run_id for run in (*alive, *head.unrecorded)]
    assert len(ids) == len(set(ids))
    assert {head.definition, *(run.definition for run in alive)} <= set(head.rules)
    assert all(run.status in ALIVE_STATES for run in head.runs)
    assert all(run.status in ENDED_RUN_STATUSES for run in head.unrecorded)
