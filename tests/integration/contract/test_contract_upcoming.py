"""The upcoming occurrences of all jobs of a tenant: by time, a bounded number at once."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.domain.job_state import JobState, JobStatus, ScheduleKind
from punctual.domain.run import RunStatus
from punctual.domain.schedules.schedule import Cron, Every, Once
from punctual.engine.changes.timer_placement import blank_state
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.log import no_log
from punctual.engine.ports.rows import JobKey, UpcomingStates
from punctual.engine.queries.job_list import JobList
from punctual.engine.queries.schedules.upcoming import UpcomingRuns
from punctual.engine.queries.slices import finish
from tests.support.aws.adapters import World
from tests.support.builders import NOON, a_definition_row, a_job_state, a_run, after, an_id
from tests.support.ports import Ports

DAY = timedelta(days=1)
START = (NOON, "")
ENOUGH = 1_000


def a_one_time_job(number: int, at: datetime, **fields: Any) -> JobState:
    defaults = {"schedule": Once(at), "kind": ScheduleKind.FUTURE, "next_at": at}
    return a_job_state(an_id(number), **{**defaults, **fields})


def an_interval_job(number: int, seconds: int, **fields: Any) -> JobState:
    schedule = Every(seconds, anchor_at=NOON)
    defaults = {"schedule": schedule, "kind": ScheduleKind.INTERVAL, "next_at": after(seconds)}
    return a_job_state(an_id(number), **{**defaults, **fields})


def upcoming_runs(world: World, **sizes: int) -> UpcomingRuns:
    states = world.ports.job_states
    return UpcomingRuns(states, JobList(states, world.clock, no_log), **sizes)


def accept(world: World, *states: JobState) -> None:
    definitions = [
        a_definition_row(state.job_id, tenant=state.tenant, name=state.job_id) for state in states
    ]
    world.ports.job_states.put_definitions(definitions)
    assert all(world.ports.job_states.swap([Swap(state, 0) for state in states]))
    world.settle()


def upcoming_states(
    ports: Ports, start: tuple[datetime, str], limit: int = ENOUGH, max_jobs: int = ENOUGH
) -> UpcomingStates:
    states_page = ports.job_states.upcoming("acme", start, NOON + DAY, limit, max_jobs)
    assert states_page is not None
    return states_page


Listed = list[tuple[datetime, str]]


def pages(forecast: UpcomingRuns, limit: int, start: datetime = NOON) -> Iterator[Listed]:
    token: tuple[str, ...] | None = None
    for _ in range(1_000):
        page = finish(forecast.upcoming("acme", start, NOON + DAY, limit, token, NOON))
        assert len(page.items) <= limit
        yield [(entry.at, entry.job_id) for entry in page.items]
        token = page.next_cursor
        if token is None:
            return
    raise AssertionError("the list does not end")


def list_all(forecast: UpcomingRuns, limit: int, start: datetime = NOON) -> Listed:
    return list(chain.from_iterable(pages(forecast, limit, start)))


def test_upcoming_states_are_ordered_by_time(world: World) -> None:
    states = [a_one_time_job(n, after(10 * (7 * n % 10) + 10)) for n in range(10)]
    accept(world, *states, a_one_time_job(11, NOON + DAY), a_one_time_job(12, NOON - DAY))
    by_time = sorted(states, key=lambda state: state.next_at or NOON)
    assert list(upcoming_states(world.ports, START).states) == by_time
    page = upcoming_states(world.ports, START, limit=4)
    assert list(page.states) == by_time[:4]
    assert page.complete_until == (by_time[3].next_at, by_time[3].job_id)


def test_upcoming_states_of_one_time_are_ordered_by_id(world: World) -> None:
    states = [a_one_time_job(n, after(10)) for n in range(9)]
    accept(world, *reversed(states))
    cursor = START
    states_read: list[JobState] = []
    for _ in range(4):
        page = upcoming_states(world.ports, cursor, limit=3)
        states_read += page.states
        if page.complete_until is None:
            break
        cursor = page.complete_until
    assert states_read == states
    assert page.states == []


def test_upcoming_states_before_the_cursor_are_listed_only_if_they_recur(world: World) -> None:
    waits = Every(5, anchor_at=NOON, from_completion=True)
    recurring = an_interval_job(3, 10)
    accept(
        world,
        a_one_time_job(1, after(5)),
        recurring,
        an_interval_job(4, 5, schedule=waits),
        an_interval_job(5, 40),
    )
    accept(world, a_job_state(an_id(6), schedule=Cron("* * * * *"), next_at=after(60)))
    states = upcoming_states(world.ports, (after(20), ""), limit=1).states
    assert [state.job_id for state in states] == [an_id(3), an_id(5)]


def test_upcoming_states_over_the_limit_return_none(world: World) -> None:
    accept(world, *(an_interval_job(n, 10) for n in range(200)))
    assert world.ports.job_states.upcoming("acme", (after(20), ""), NOON + DAY, 5, 16) is None
    assert len(upcoming_states(world.ports, (after(20), ""), limit=5, max_jobs=200).states) == 200


def test_upcoming_states_are_scheduled_jobs_of_the_tenant(world: World) -> None:
    at = after(10)
    accept(
        world,
        a_one_time_job(1, at),
        a_one_time_job(2, at, tenant="acme#"),
        a_one_time_job(3, at, status=JobStatus.PAUSED),
    )
    accept(
        world,
        a_one_time_job(4, at, next_at=None),
        a_one_time_job(5, at, status=JobStatus.COMPLETED, ended_at=NOON),
    )
    world.ports.job_states.swap([Swap(blank_state(JobKey("acme", an_id(6)), 1, "w", NOON), 0)])
    assert [state.job_id for state in upcoming_states(world.ports, START).states] == [an_id(1)]


def test_change_moves_an_upcoming_job_and_end_removes_it(world: World) -> None:
    states = world.ports.job_states
    state = a_one_time_job(1, after(10))
    accept(world, state, a_one_time_job(2, after(20)))
    moved = replace(state, version=2, next_at=after(30), schedule=Once(after(30)))
    assert list(states.swap([Swap(moved, 1)])) == [True]
    assert [
        upcoming_state.job_id for upcoming_state in upcoming_states(world.ports, START).states
    ] == [an_id(2), an_id(1)]
    assert list(states.swap([Swap(replace(moved, version=3, next_at=None), 2)])) == [True]
    assert [
        upcoming_state.job_id for upcoming_state in upcoming_states(world.ports, START).states
    ] == [an_id(2)]


def test_run_fired_ahead_is_upcoming_until_it_begins(world: World) -> None:
    run = a_run(scheduled_at=after(5), due_at=after(5))
    state = an_interval_job(1, 10, runs=(run,))
    accept(world, state, a_one_time_job(2, after(7), next_at=None, runs=(run,)))
    accept(world, an_interval_job(3, 60, runs=(a_run(),)))  # queued at its time, not ahead
    assert [
        upcoming_state.job_id for upcoming_state in upcoming_states(world.ports, START).states
    ] == [
        an_id(1),
        an_id(2),
        an_id(3),
    ]
    assert upcoming_states(world.ports, START, limit=2).complete_until == (after(5), an_id(2))
    begun = replace(run, status=RunStatus.RUNNING, started_at=after(5))
    world.ports.job_states.swap([Swap(replace(state, version=2, runs=(begun,)), 1)])
    assert upcoming_states(world.ports, START, limit=2).complete_until == (after(10), an_id(1))


def test_occurrence_fired_ahead_is_listed_until_its_time(world: World) -> None:
    run = a_run(scheduled_at=after(5), due_at=after(5))
    accept(
        world,
        a_one_time_job(1, after(5), next_at=None, runs=(run,)),
        an_interval_job(2, 43_200, runs=(run,)),
    )
    both = [(after(5), an_id(1)), (after(5), an_id(2))]
    forecast = upcoming_runs(world)
    assert list_all(forecast, 1) == [*both, (after(43_200), an_id(2))]
    page = finish(forecast.upcoming("acme", NOON, NOON + DAY, 9, None, after(5)))
    assert [entry.at for entry in page.items] == [after(43_200)]


@pytest.mark.parametrize("limit", [1, 7, 200])
@pytest.mark.parametrize("start", [NOON, after(50_000)])
def test_pages_together_are_the_complete_list_in_order(
    world: World, limit: int, start: datetime
) -> None:
    rhythms = [(n, 9_000 + 700 * n) for n in range(4)]
    accept(world, *(an_interval_job(n, seconds) for n, seconds in rhythms))
    accept(world, *(a_one_time_job(n, after(3_600 * (n % 5) + 47_000)) for n in range(10, 20)))
    accept(world, an_interval_job(30, 20_000, limits=replace(a_job_state().limits, max_runs=2)))
    expected = [
        (after(at), an_id(n))
        for n, seconds in [*rhythms, (30, 20_000)]
        for at in range(seconds, 86_400, seconds)
        if n != 30 or at <= 40_000
    ]
    expected += [(after(3_600 * (n % 5) + 47_000), an_id(n)) for n in range(10, 20)]
    assert list_all(upcoming_runs(world), limit, start) == sorted(
        entry for entry in expected if entry[0] >= start
    )


@pytest.mark.parametrize("limit", [7, 200])
def test_too_many_jobs_to_sort_are_listed_in_parts(world: World, limit: int) -> None:
    """The list is complete and without duplicates while jobs are added and moved."""
    states = [an_interval_job(n, 20_000 + n) for n in range(40)]
    accept(world, *states, *(a_one_time_job(n, after(30_000)) for n in range(60, 70)))
    expected = {(after(k * (20_000 + n)), an_id(n)) for n in range(40) for k in range(1, 5)}
    expected = {(at, job) for at, job in expected if at < NOON + DAY and at >= after(25_000)}
    expected |= {(after(30_000), an_id(n)) for n in range(60, 70)}
    entries: Listed = []
    moving = list(enumerate(states))[::3]
    forecast = upcoming_runs(world, max_jobs=16, part_size=20)
    for number, page in enumerate(pages(forecast, limit, after(25_000))):
        entries += page
        assert page == sorted(page)
        if number == 1:
            accept(world, an_interval_job(100, 30_000))
            moved_states = [
                replace(state, version=2, next_at=after(40_000 + 2 * n)) for n, state in moving
            ]
            assert all(world.ports.job_states.swap([Swap(state, 1) for state in moved_states]))
    assert len(entries) == len(set(entries))
    assert {entry for entry in entries if entry[1] != an_id(100)} == expected


def test_parts_without_upcoming_occurrences_are_skipped(world: World) -> None:
    accept(world, *(an_interval_job(n, 40_000, status=JobStatus.PAUSED) for n in range(3, 60)))
    accept(world, *(an_interval_job(n, 40_000) for n in (*range(3), *range(60, 120))))
    all_pages = list(pages(upcoming_runs(world, max_jobs=16, part_size=5), 200, after(50_000)))
    jobs = [job for page in all_pages for _, job in page]
    assert sorted(jobs) == [an_id(n) for n in (*range(3), *range(60, 120))]
    assert [] in all_pages
