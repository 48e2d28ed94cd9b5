"""A job state remembers which operations paused or resumed the job, for a bounded time."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.jobs import state_rows
from punctual.domain.decide import Verdict, decide, decide_without_fast_path
from punctual.domain.events import Claim, Evaluate, Event, Finish, Pause, Resume
from punctual.domain.job_state import JobState, JobStatus
from punctual.domain.operations.memory import (
    MAX_REMEMBERED_OPERATIONS,
    MEMORY_HOURS,
    remember,
    remembers,
    without_old,
)
from punctual.domain.operations.operation import MAX_SLICE_AGE
from punctual.domain.run import RunStatus
from punctual.node.sqlite.state_rows import STATE_CODEC
from tests.support.builders import an_id
from tests.support.builders_jobs import NOON, a_job, after, every
from tests.support.item_size import item_size

DUE_AT = after(60)
PAUSE, RESUME = Pause(operation_id="one"), Resume(operation_id="two")
HOUR = timedelta(hours=1)


def do(state: JobState, *events: Event, hours: float = 0) -> JobState:
    for event in events:
        decision = decide(state, event, NOON + hours * HOUR, "w")
        assert decision.verdict is Verdict.OK
        state = decision.state
    return state


def a_full_job() -> JobState:
    memory = b""
    for number in range(MAX_REMEMBERED_OPERATIONS):
        memory = remember(memory, an_id(number), NOON)
    return replace(a_job(every(60)), operation_memory=memory)


def test_repeated_pause_leaves_a_job_that_was_resumed_since() -> None:
    resumed = do(a_job(every(60)), PAUSE, Resume())
    assert resumed.status is JobStatus.SCHEDULED
    repeated = decide(resumed, PAUSE, NOON, "w")
    assert (repeated.verdict, repeated.changed, repeated.state) == (Verdict.OK, False, resumed)
    assert do(resumed, Pause(operation_id="other")).status is JobStatus.PAUSED


def test_repeated_resume_leaves_a_job_that_was_paused_since() -> None:
    paused = do(a_job(every(60)), Pause(), RESUME, Pause())
    assert do(paused, RESUME) is paused


@pytest.mark.parametrize(
    ("event", "other"), [(PAUSE, Resume()), (RESUME, Pause())], ids=["pause", "resume"]
)
def test_operation_that_changes_nothing_is_remembered_too(event: Event, other: Event) -> None:
    """The job has the status already. It gets another one before the slice is repeated."""
    state = do(a_job(every(60)), *([Pause()] if event is PAUSE else []))
    acted = do(state, event)
    assert (acted.status, acted.edition) == (state.status, state.edition)
    assert acted.operation_memory
    changed = do(acted, other)
    assert do(changed, event) is changed


def test_memory_outlasts_every_repeat_of_a_slice() -> None:
    assert MAX_SLICE_AGE + HOUR <= MEMORY_HOURS * HOUR
    for minutes in range(0, 60, 7):
        acted_at = NOON + timedelta(minutes=minutes)
        memory = remember(b"", "one", acted_at)
        assert without_old(memory, acted_at + MEMORY_HOURS * HOUR) == memory
        assert without_old(memory, acted_at + (MEMORY_HOURS + 1) * HOUR) == b""


def test_old_entries_go_with_the_next_change() -> None:
    acted = do(a_job(every(60)), PAUSE)
    assert do(acted, Resume(), hours=MEMORY_HOURS).operation_memory == acted.operation_memory
    assert do(acted, Resume(), hours=MEMORY_HOURS + 1).operation_memory == b""
    unchanged = decide(acted, Evaluate(), NOON + 9 * HOUR, "w")
    assert not unchanged.changed  # no write only for this


def test_entry_of_a_clock_that_was_wrong_goes_too() -> None:
    memory = remember(b"", "one", NOON + timedelta(days=9_000))
    assert without_old(memory, NOON) == b""


def test_job_with_too_many_operations_takes_no_other() -> None:
    full = do(a_full_job(), Evaluate())
    refused = decide(full, PAUSE, NOON, "w")
    assert (refused.verdict, refused.changed) == (Verdict.FULL, False)
    assert do(full, Pause(operation_id=an_id(0))) is full
    assert do(full, Pause()).status is JobStatus.PAUSED
    later = do(full, PAUSE, hours=MEMORY_HOURS + 1)
    assert later.status is JobStatus.PAUSED
    assert remembers(later.operation_memory, "one")
    assert not remembers(later.operation_memory, an_id(0))


@pytest.mark.parametrize("hours", [0, MEMORY_HOURS + 1])
def test_fast_path_keeps_and_drops_entries_as_the_full_path(hours: int) -> None:
    memory = remember(b"", "one", DUE_AT - hours * HOUR)
    state = replace(a_job(every(60)), next_at=DUE_AT, operation_memory=memory)
    evaluate = Evaluate(trigger_times=(DUE_AT,), fire_ahead_until=DUE_AT)
    now = after(59.5)
    fired = decide(state, evaluate, now, "w")
    assert fired == decide_without_fast_path(state, evaluate, now, "w", frozenset(), False)
    claim = Claim(fired.runs_to_send[0].run_id, "me", "n")
    claimed = decide(replace(fired.state, operation_memory=memory), claim, DUE_AT, "x")
    assert claimed.run is not None
    finish = Finish(claim.run_id, claimed.run.token, RunStatus.SUCCESS)
    finished = decide(replace(claimed.state, operation_memory=memory), finish, DUE_AT, "y")
    expected = b"" if hours else memory
    assert {d.state.operation_memory for d in (fired, claimed, finished)} == {expected}


def test_rows_of_both_stores_keep_the_memory() -> None:
    state = a_full_job()
    row = state_rows.to_row(state)
    assert state_rows.from_row(row).state == state
    assert STATE_CODEC.decode(STATE_CODEC.encode(state)) == state


def test_entry_adds_twelve_bytes_to_a_row_of_dynamodb() -> None:
    plain, full = a_job(every(60)), a_full_job()
    one = replace(plain, operation_memory=remember(b"", "one", NOON))
    empty, single, most = (item_size(state_rows.to_row(state)) for state in (plain, one, full))
    assert (single - empty, most - single) == (15, 12 * (MAX_REMEMBERED_OPERATIONS - 1))
