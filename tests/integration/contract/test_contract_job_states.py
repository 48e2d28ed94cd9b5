"""Job states: a read returns what was written, and one swap of each version wins."""

from datetime import date, timedelta

import pytest
from msgspec.structs import replace

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.job_state import (
    CatchUp,
    JobLimits,
    JobState,
    JobStatus,
    Lane,
    MisfirePolicy,
    Priority,
    Rules,
    ScheduleKind,
)
from punctual.domain.run import Reason, RunStatus, Trigger, WaitingRun
from punctual.domain.schedules.schedule import Cron, Every, Once, Schedule
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.rows import JobKey
from tests.support.aws.adapters import World
from tests.support.builders import JOB, NOON, a_job_state, a_run, after, an_id, key_of
from tests.support.ports import Ports

MICRO = timedelta(microseconds=1)
TENANTS = (
    "a",
    "a#",
    "#a",
    "a#b",
    "a#0",
    "a|b",
    "a/b",
    "a:b",
    "a\\b",
    "a%23",
    'a"b',
    "a'b",
    "日本🕰",
    "עברית",
)


def load(ports: Ports, state: JobState) -> JobState | None:
    stored = ports.job_states.load([key_of(state)]).get(key_of(state))
    return None if stored is None else stored.state


def write(ports: Ports, state: JobState, expect: int = 0) -> JobState:
    assert list(ports.job_states.swap([Swap(state, expect)])) == [True]
    return state


def next_state(state: JobState, writer: str, by: int = 1) -> JobState:
    return replace(
        state,
        version=state.version + by,
        write_ids=(*state.write_ids[-3:], writer),
        updated_at=after(1),
    )


@pytest.mark.parametrize(
    "schedule",
    [
        None,
        Once(NOON + MICRO),
        Every(seconds=90, anchor_at=NOON, start_at=after(5), end_at=after(1e6)),
        Cron("0 9 * * MON", "Europe/Berlin", exclude=(date(2026, 12, 24),), dst_gap="SKIP"),
    ],
)
def test_state_is_read_as_it_was_written(ports: Ports, schedule: Schedule | None) -> None:
    state = a_job_state(
        schedule=schedule,
        kind=ScheduleKind.INTERVAL,
        status=JobStatus.PAUSED,
        rules={
            1: Rules(
                definition_ref="1-x", effective_at=NOON, lane=Lane.LONG, priority=Priority.HIGH
            ),
            22: Rules(definition_ref="22-ü", effective_at=after(0.000001), deadline_seconds=5),
        },
        limits=JobLimits(max_concurrency=100, misfire=MisfirePolicy.RUN_ALL, jitter_ms=1),
        planned_until=NOON - MICRO,
        next_at=NOON + MICRO,
        runs=(
            a_run(
                status=RunStatus.WAITING,
                reason=Reason.BACKOFF,
                next_at=after(1),
                past_attempts="FTL",
            ),
        ),
        wait_queue=(
            WaitingRun("r2", 22, NOON, NOON + MICRO, NOON, Trigger.BACKFILL, True, True, "r0"),
        ),
        unrecorded=(
            a_run("r3", RunStatus.MISSED, occurrence_count=12, last_at=after(2), ended_at=after(3)),
        ),
        catch_up=CatchUp(until=NOON, policy=MisfirePolicy.SKIP, after_pause=True),
        latest_run_id="r1",
        latest_not_run_id="r3",
        timer_at=NOON,
        write_ids=("a", "b", "c", "d"),
    )
    write(ports, state)
    assert load(ports, state) == state


def test_missing_state_is_left_out(ports: Ports) -> None:
    state = write(ports, a_job_state())
    missing = JobKey("acme", an_id(2))
    assert set(ports.job_states.load([key_of(state), missing])) == {key_of(state)}


def test_empty_batches_do_nothing(ports: Ports) -> None:
    assert dict(ports.job_states.load([])) == {}
    assert list(ports.job_states.swap([])) == []
    assert list(ports.job_states.renew_leases([])) == []


def test_key_given_twice_has_one_answer(ports: Ports) -> None:
    state = write(ports, a_job_state())
    assert set(ports.job_states.load([key_of(state)] * 3)) == {key_of(state)}


def test_swap_raises_the_version_it_expects(ports: Ports) -> None:
    first = write(ports, a_job_state())
    second = write(ports, next_state(first, "v"), expect=1)
    assert load(ports, first) == second


@pytest.mark.parametrize("expect", [1, 7])
def test_swap_of_a_missing_state_loses(ports: Ports, expect: int) -> None:
    state = a_job_state(version=expect + 1)
    assert list(ports.job_states.swap([Swap(state, expect)])) == [False]
    assert load(ports, state) is None


@pytest.mark.parametrize("expect", [0, 1, 3])
def test_swap_of_another_version_loses_and_changes_nothing(ports: Ports, expect: int) -> None:
    first = write(ports, a_job_state())
    second = write(ports, next_state(first, "v"), expect=1)
    late = replace(second, version=expect + 1, write_ids=("late",), status=JobStatus.CANCELLED)
    assert list(ports.job_states.swap([Swap(late, expect)])) == [False]
    assert load(ports, first) == second


def test_one_of_many_swaps_of_one_version_wins(ports: Ports) -> None:
    first = write(ports, a_job_state())
    won = [list(ports.job_states.swap([Swap(next_state(first, f"w{n}"), 1)])) for n in range(10)]
    assert won == [[True]] + [[False]] * 9
    stored = load(ports, first)
    assert stored is not None
    assert stored.write_ids[-1] == "w0"


def test_version_may_skip_numbers(ports: Ports) -> None:
    """An evaluation takes the version for which a slow writer put a timer."""
    first = write(ports, a_job_state())
    leapt = write(ports, next_state(first, "v", by=5), expect=1)
    assert load(ports, first) == leapt
    assert list(ports.job_states.swap([Swap(next_state(first, "slow"), 1)])) == [False]


def test_each_swap_of_a_large_batch_wins_or_loses_alone(ports: Ports) -> None:
    states = [a_job_state(an_id(n)) for n in range(250)]
    ports.job_states.swap([Swap(state, 0) for state in states[::5]])
    again = [replace(state, write_ids=("second",)) for state in states]
    answers = list(ports.job_states.swap([Swap(state, 0) for state in again]))
    assert answers == [index % 5 != 0 for index in range(250)]
    loaded = ports.job_states.load([key_of(state) for state in states])
    assert [loaded[key_of(state)].state.write_ids[-1] for state in states] == [
        "second" if won else "w" for won in answers
    ]


def test_repeated_swap_that_won_before_wins(ports: Ports) -> None:
    first = write(ports, a_job_state())
    own = Swap(next_state(first, "mine"), 1)
    assert list(ports.job_states.swap([own])) == [True]
    assert list(ports.job_states.swap([own])) == [True]
    assert load(ports, first) == own.state


def test_repeated_creation_that_won_before_wins(ports: Ports) -> None:
    own = Swap(a_job_state(write_id="mine"), 0)
    assert list(ports.job_states.swap([own])) == [True]
    assert list(ports.job_states.swap([own])) == [True]


def test_repeated_swap_wins_after_later_swaps_by_others(ports: Ports) -> None:
    first = write(ports, a_job_state())
    own = Swap(next_state(first, "mine"), 1)
    second = write(ports, own.state, 1)
    third = write(ports, next_state(second, "x"), 2)
    fourth = write(ports, next_state(third, "y"), 3)
    assert list(ports.job_states.swap([own])) == [True]
    assert load(ports, first) == fourth


def test_swap_loses_if_only_others_wrote(ports: Ports) -> None:
    first = write(ports, a_job_state())
    write(ports, next_state(first, "other"), 1)
    assert list(ports.job_states.swap([Swap(next_state(first, "mine"), 1)])) == [False]


def test_write_id_of_an_earlier_swap_does_not_win_a_later_one(ports: Ports) -> None:
    first = write(ports, a_job_state())
    own = write(ports, next_state(first, "mine"), 1)
    other = write(ports, next_state(own, "other"), 2)
    again = replace(next_state(own, "mine"), status=JobStatus.CANCELLED)
    assert list(ports.job_states.swap([Swap(again, 2)])) == [False]
    assert load(ports, first) == other


def test_repeated_swap_without_a_write_id_loses(ports: Ports) -> None:
    write(ports, a_job_state(write_id=""))
    assert list(ports.job_states.swap([Swap(a_job_state(write_id=""), 0)])) == [False]


def test_blank_state_stops_a_creation(ports: Ports) -> None:
    blank = write(ports, blank_state(JobKey("acme", JOB), 3, "look", NOON))
    assert load(ports, blank) == blank
    assert list(ports.job_states.swap([Swap(a_job_state(), 0)])) == [False]
    created = write(ports, a_job_state(version=4), expect=3)
    assert load(ports, blank) == created


def test_expired_state_is_gone_and_can_be_created_again(world: World) -> None:
    ports = world.ports
    ended = write(ports, a_job_state(status=JobStatus.COMPLETED, ended_at=NOON))
    world.clock.set(NOON + HISTORY_RETENTION - MICRO)
    assert load(ports, ended) == ended
    world.clock.set(NOON + HISTORY_RETENTION)
    assert load(ports, ended) is None
    new = write(ports, a_job_state(write_id="new"))
    assert load(ports, new) == new


def test_states_of_similar_tenants_stay_apart(ports: Ports) -> None:
    states = [a_job_state(tenant=tenant, latest_run_id=tenant) for tenant in TENANTS]
    assert all(ports.job_states.swap([Swap(state, 0) for state in states]))
    loaded = ports.job_states.load([key_of(state) for state in states])
    assert [loaded[key_of(state)].state for state in states] == states


def test_long_wait_queue_fits(ports: Ports) -> None:
    waiting = tuple(WaitingRun(an_id(n), 1, NOON, NOON, NOON) for n in range(1_000))
    state = write(ports, a_job_state(wait_queue=waiting))
    assert load(ports, state) == state
