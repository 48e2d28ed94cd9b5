"""What comes next over all jobs of a tenant: by time, a bounded number at once."""

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
from punctual.engine.queries.slices import finish
from punctual.engine.queries.upcoming import UpcomingRuns
from tests.support.aws.adapters import World
from tests.support.builders import NOON, a_body, a_head, a_run, after, an_id
from tests.support.ports import Ports

DAY = timedelta(days=1)
START = (NOON, "")
ENOUGH = 1_000


def once(number: int, at: datetime, **fields: Any) -> JobState:
    made = {"schedule": Once(at), "kind": ScheduleKind.FUTURE, "next_at": at}
    return a_head(an_id(number), **{**made, **fields})


def each(number: int, seconds: int, **fields: Any) -> JobState:
    schedule = Every(seconds, anchor_at=NOON)
    made = {"schedule": schedule, "kind": ScheduleKind.INTERVAL, "next_at": after(seconds)}
    return a_head(an_id(number), **{**made, **fields})


def a_forecast(world: World, **sizes: int) -> UpcomingRuns:
    heads = world.ports.job_states
    return UpcomingRuns(heads, JobList(heads, world.clock, no_log), **sizes)


def accept(world: World, *heads: JobState) -> None:
    bodies = [a_body(head.job_id, tenant=head.tenant, name=head.job_id) for head in heads]
    world.ports.job_states.put_definitions(bodies)
    assert all(world.ports.job_states.swap([Swap(head, 0) for head in heads]))
    world.settle()


def coming(
    ports: Ports, place: tuple[datetime, str], limit: int = ENOUGH, most: int = ENOUGH
) -> UpcomingStates:
    found = ports.job_states.upcoming("acme", place, NOON + DAY, limit, most)
    assert found is not None
    return found


Listed = list[tuple[datetime, str]]


def pages(forecast: UpcomingRuns, limit: int, start: datetime = NOON) -> Iterator[Listed]:
    token: tuple[str, ...] | None = None
    for _ in range(1_000):
        page = finish(forecast.upcoming("acme", start, NOON + DAY, limit, token, NOON))
        assert len(page.items) <= limit
        yield [(one.at, one.job_id) for one in page.items]
        token = page.next_cursor
        if token is None:
            return
    raise AssertionError("the list does not end")


def listed(forecast: UpcomingRuns, limit: int, start: datetime = NOON) -> Listed:
    return list(chain.from_iterable(pages(forecast, limit, start)))


def test_what_comes_first_is_first_whatever_its_id(world: World) -> None:
    heads = [once(n, after(10 * (7 * n % 10) + 10)) for n in range(10)]
    accept(world, *heads, once(11, NOON + DAY), once(12, NOON - DAY))
    by_time = sorted(heads, key=lambda head: head.next_at or NOON)
    assert list(coming(world.ports, START).states) == by_time
    found = coming(world.ports, START, limit=4)
    assert list(found.states) == by_time[:4]
    assert found.complete_until == (by_time[3].next_at, by_time[3].job_id)


def test_what_comes_at_one_moment_goes_on_by_id(world: World) -> None:
    heads = [once(n, after(10)) for n in range(9)]
    accept(world, *reversed(heads))
    place = START
    met: list[JobState] = []
    for _ in range(4):
        found = coming(world.ports, place, limit=3)
        met += found.states
        if found.complete_until is None:
            break
        place = found.complete_until
    assert met == heads
    assert found.states == []


def test_those_before_the_place_are_told_only_if_they_come_again(world: World) -> None:
    waits = Every(5, anchor_at=NOON, from_completion=True)
    again = each(3, 10)
    accept(world, once(1, after(5)), again, each(4, 5, schedule=waits), each(5, 40))
    accept(world, a_head(an_id(6), schedule=Cron("* * * * *"), next_at=after(60)))
    heads = coming(world.ports, (after(20), ""), limit=1).states
    assert [head.job_id for head in heads] == [an_id(3), an_id(5)]


def test_more_than_can_be_put_in_order_is_a_value(world: World) -> None:
    accept(world, *(each(n, 10) for n in range(200)))
    assert world.ports.job_states.upcoming("acme", (after(20), ""), NOON + DAY, 5, 16) is None
    assert len(coming(world.ports, (after(20), ""), limit=5, most=200).states) == 200


def test_only_jobs_of_the_tenant_that_wait_for_a_time_come(world: World) -> None:
    at = after(10)
    accept(world, once(1, at), once(2, at, tenant="acme#"), once(3, at, status=JobStatus.PAUSED))
    accept(world, once(4, at, next_at=None), once(5, at, status=JobStatus.COMPLETED, ended_at=NOON))
    world.ports.job_states.swap([Swap(blank_state(JobKey("acme", an_id(6)), 1, "w", NOON), 0)])
    assert [head.job_id for head in coming(world.ports, START).states] == [an_id(1)]


def test_a_change_moves_a_job_and_an_end_removes_it(world: World) -> None:
    heads = world.ports.job_states
    head = once(1, after(10))
    accept(world, head, once(2, after(20)))
    moved = replace(head, version=2, next_at=after(30), schedule=Once(after(30)))
    assert list(heads.swap([Swap(moved, 1)])) == [True]
    assert [one.job_id for one in coming(world.ports, START).states] == [an_id(2), an_id(1)]
    assert list(heads.swap([Swap(replace(moved, version=3, next_at=None), 2)])) == [True]
    assert [one.job_id for one in coming(world.ports, START).states] == [an_id(2)]


def test_what_is_fired_ahead_comes_until_it_begins(world: World) -> None:
    run = a_run(scheduled_at=after(5), due_at=after(5))
    head = each(1, 10, runs=(run,))
    accept(world, head, once(2, after(7), next_at=None, runs=(run,)))
    accept(world, each(3, 60, runs=(a_run(),)))  # queued at its time: not ahead
    assert [one.job_id for one in coming(world.ports, START).states] == [
        an_id(1),
        an_id(2),
        an_id(3),
    ]
    assert coming(world.ports, START, limit=2).complete_until == (after(5), an_id(2))
    begun = replace(run, status=RunStatus.RUNNING, started_at=after(5))
    world.ports.job_states.swap([Swap(replace(head, version=2, runs=(begun,)), 1)])
    assert coming(world.ports, START, limit=2).complete_until == (after(10), an_id(1))


def test_an_occurrence_fired_ahead_is_listed_until_its_time(world: World) -> None:
    run = a_run(scheduled_at=after(5), due_at=after(5))
    accept(world, once(1, after(5), next_at=None, runs=(run,)), each(2, 43_200, runs=(run,)))
    both = [(after(5), an_id(1)), (after(5), an_id(2))]
    forecast = a_forecast(world)
    assert listed(forecast, 1) == [*both, (after(43_200), an_id(2))]
    page = finish(forecast.upcoming("acme", NOON, NOON + DAY, 9, None, after(5)))
    assert [one.at for one in page.items] == [after(43_200)]


@pytest.mark.parametrize("limit", [1, 7, 200])
@pytest.mark.parametrize("start", [NOON, after(50_000)])
def test_pages_put_together_are_the_whole_list_in_order(
    world: World, limit: int, start: datetime
) -> None:
    rhythms = [(n, 9_000 + 700 * n) for n in range(4)]
    accept(world, *(each(n, seconds) for n, seconds in rhythms))
    accept(world, *(once(n, after(3_600 * (n % 5) + 47_000)) for n in range(10, 20)))
    accept(world, each(30, 20_000, limits=replace(a_head().limits, max_runs=2)))
    wanted = [
        (after(at), an_id(n))
        for n, seconds in [*rhythms, (30, 20_000)]
        for at in range(seconds, 86_400, seconds)
        if n != 30 or at <= 40_000
    ]
    wanted += [(after(3_600 * (n % 5) + 47_000), an_id(n)) for n in range(10, 20)]
    assert listed(a_forecast(world), limit, start) == sorted(
        one for one in wanted if one[0] >= start
    )


@pytest.mark.parametrize("limit", [7, 200])
def test_more_jobs_than_can_be_put_in_order_are_listed_in_parts(world: World, limit: int) -> None:
    """Whole and without doubles, while new jobs come and others move on."""
    heads = [each(n, 20_000 + n) for n in range(40)]
    accept(world, *heads, *(once(n, after(30_000)) for n in range(60, 70)))
    wanted = {(after(k * (20_000 + n)), an_id(n)) for n in range(40) for k in range(1, 5)}
    wanted = {(at, job) for at, job in wanted if at < NOON + DAY and at >= after(25_000)}
    wanted |= {(after(30_000), an_id(n)) for n in range(60, 70)}
    found: Listed = []
    moving = list(enumerate(heads))[::3]
    forecast = a_forecast(world, most=16, part=20)
    for number, page in enumerate(pages(forecast, limit, after(25_000))):
        found += page
        assert page == sorted(page)
        if number == 1:
            accept(world, each(100, 30_000))
            on = [replace(head, version=2, next_at=after(40_000 + 2 * n)) for n, head in moving]
            assert all(world.ports.job_states.swap([Swap(head, 1) for head in on]))
    assert len(found) == len(set(found))
    assert {one for one in found if one[1] != an_id(100)} == wanted


def test_parts_without_anything_to_come_are_passed_over(world: World) -> None:
    accept(world, *(each(n, 40_000, status=JobStatus.PAUSED) for n in range(3, 60)))
    accept(world, *(each(n, 40_000) for n in (*range(3), *range(60, 120))))
    met = list(pages(a_forecast(world, most=16, part=5), 200, after(50_000)))
    jobs = [job for page in met for _, job in page]
    assert sorted(jobs) == [an_id(n) for n in (*range(3), *range(60, 120))]
    assert [] in met
