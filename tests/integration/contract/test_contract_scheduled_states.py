"""The states of all jobs that are due before a time, and the forecast made of them."""

from datetime import timedelta
from typing import Any

import pytest

from punctual.domain.job_state import JobLimits, JobPause, JobState, JobStatus, ScheduleKind
from punctual.domain.schedules.schedule import Cron, Every, Once
from punctual.engine.ports.job_states import Swap
from punctual.engine.queries.schedules.forecast import forecast_starts
from punctual.engine.queries.slices import finish
from tests.support.aws.adapters import World
from tests.support.builders import NOON, a_definition_row, a_job_state, a_run, after, an_id
from tests.support.ports import Ports

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)


def a_job(number: int, schedule: Any, seconds: float, **fields: Any) -> JobState:
    kind = ScheduleKind.FUTURE if isinstance(schedule, Once) else ScheduleKind.CRON
    return a_job_state(
        an_id(number), schedule=schedule, kind=kind, next_at=after(seconds), **fields
    )


def accept(world: World, *states: JobState) -> None:
    world.ports.job_states.put_definitions(
        [a_definition_row(state.job_id, tenant=state.tenant) for state in states]
    )
    assert all(world.ports.job_states.swap([Swap(state, 0) for state in states]))
    world.settle()


def scheduled_ids(ports: Ports) -> list[str]:
    return sorted(state.job_id for state in ports.job_states.scheduled_states("acme", NOON + DAY))


def a_pause(minutes: int | None) -> JobPause:
    return JobPause(at=NOON, until=None if minutes is None else NOON + minutes * MINUTE)


def test_states_due_before_a_time_are_read(world: World) -> None:
    hourly = Cron("0 * * * *")
    paused = {"status": JobStatus.PAUSED}
    accept(
        world,
        a_job(1, hourly, 3_600),
        a_job(2, Once(after(5)), 5),
        a_job(3, Once(NOON + DAY), 86_400),
        a_job(4, hourly, 3_600, **paused, pause=a_pause(None)),
        a_job(5, hourly, 3_600, **paused, pause=a_pause(90)),
        a_job(6, hourly, 3_600, **paused, pause=a_pause(24 * 60)),
        a_job(7, hourly, 3_600, tenant="umbrella"),
        a_job(8, hourly, 3_600, status=JobStatus.CANCELLED),
        a_job(9, Every(60, NOON), -120),
    )
    assert scheduled_ids(world.ports) == [an_id(number) for number in (1, 2, 5, 9)]


def test_more_states_than_a_page_are_read_once_each(world: World) -> None:
    states = [a_job(number, Every(60, NOON), 60) for number in range(230)]
    accept(world, *states[:100])
    accept(world, *states[100:200])
    accept(world, *states[200:])
    assert scheduled_ids(world.ports) == [state.job_id for state in states]


@pytest.mark.parametrize("hours", [2, 30])
def test_forecast_counts_the_starts_of_all_jobs(world: World, hours: int) -> None:
    hourly = Cron("0 * * * *")
    ahead: Any = {"scheduled_at": after(60), "due_at": after(60), "created_at": after(-1)}
    fired = a_run("0190a0a0-0000-7000-8000-000000000099", **ahead)
    accept(
        world,
        a_job(1, hourly, 3_600, limits=JobLimits(jitter_ms=90_000)),
        a_job(2, hourly, 3_600, limits=JobLimits(max_runs=1)),
        a_job(3, Every(1_800, NOON), 1_800),
        a_job(4, Every(1_800, NOON, from_completion=True), 1_800),
        a_job(5, Once(after(90)), 90),
        a_job(6, Once(after(-90)), -90),
        a_job(7, hourly, 3_600, status=JobStatus.PAUSED, pause=a_pause(61)),
        a_job(8, hourly, 3_600, runs=(fired,)),
    )
    forecast = finish(forecast_starts(world.ports.job_states, "acme", hours, NOON))
    assert forecast.end == NOON + hours * 60 * MINUTE
    assert forecast.from_completion_jobs == 1
    starts = {(count.at - NOON) // MINUTE: count.number for count in forecast.starts}
    # At 13:00 jobs 2, 3, 4 and 8; with jitter job 1 and at the end of its pause job 7, at 13:01.
    # At 12:01 the run that was fired ahead, and job 5.
    expected = {1: 2, 30: 2, 60: 4, 61: 2, 90: 2}
    if hours == 2:
        assert {minute: number for minute, number in starts.items() if number} == expected
    else:
        assert starts[0] == sum(number for minute, number in expected.items() if minute < 60)
        assert starts[60] == sum(number for minute, number in expected.items() if minute >= 60)
        assert len(starts) == hours
    assert forecast.busiest is not None
    assert forecast.busiest.number >= 4
