"""Upcoming runs are read from few job states, however many jobs are scheduled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from punctual.domain.job_state import JobLimits, JobState, ScheduleKind
from punctual.domain.schedules.cron.expression import Calendar
from punctual.domain.schedules.schedule import Cron, Every, Once
from punctual.engine.ports.job_states import JobStates, Swap
from punctual.engine.ports.log import no_log
from punctual.engine.ports.rows import DefinitionRow, JobKey, JobStatePage, UpcomingStates
from punctual.engine.queries.job_list import JobList
from punctual.engine.queries.schedules.upcoming import (
    JOBS_PER_PART,
    MAX_MERGED_JOBS,
    MAX_PARTS_READ,
    UpcomingRuns,
)
from punctual.engine.queries.slices import finish
from punctual.node.sqlite.store import Store
from tests.support.builders import (
    NOON,
    ManualClock,
    a_definition_row,
    a_job_state,
    a_run,
    after,
    an_id,
)

DAY = timedelta(days=1)
JOB_COUNT = 3_000


class CountingJobStates:
    """Counts the job states that are read."""

    def __init__(self, states: JobStates) -> None:
        self._job_states = states
        self.read = 0

    def upcoming(self, *args: Any) -> UpcomingStates | None:
        upcoming = self._job_states.upcoming(*args)
        self.read += 0 if upcoming is None else len(upcoming.states)
        return upcoming

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        page = self._job_states.page(tenant, before, limit)
        self.read += len(page.items)
        return page

    def load_definitions(
        self, refs: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return self._job_states.load_definitions(refs)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path, ManualClock(NOON))
    yield store
    store.close()


def accept(store: Store, states: Sequence[JobState]) -> None:
    with store.transaction():
        store.job_states.put_definitions([a_definition_row(state.job_id) for state in states])
        assert all(store.job_states.swap([Swap(state, 0) for state in states]))


def once(number: int, at: datetime) -> JobState:
    return a_job_state(an_id(number), schedule=Once(at), kind=ScheduleKind.FUTURE, next_at=at)


def hourly(number: int) -> JobState:
    return a_job_state(an_id(number), schedule=Every(3_600, anchor_at=NOON), next_at=after(3_600))


def counting_queries(store: Store) -> tuple[UpcomingRuns, CountingJobStates]:
    counting = CountingJobStates(store.job_states)
    states = cast(JobStates, counting)
    return UpcomingRuns(states, JobList(states, ManualClock(NOON), no_log)), counting


def steps(store: Store, read: Callable[[], object]) -> int:
    """Return the number of instructions that SQLite executes."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    store.transaction().db.set_progress_handler(step, 1)
    read()
    store.transaction().db.set_progress_handler(None, 1)
    return taken


@pytest.mark.parametrize("start", [NOON, after(1_500), after(2_999)])
def test_upcoming_page_reads_one_job_state_for_each_time(store: Store, start: datetime) -> None:
    accept(store, [once(n, after(n)) for n in range(JOB_COUNT)])
    forecast, states = counting_queries(store)
    page = finish(forecast.upcoming("acme", start, NOON + DAY, 10, None, NOON))
    assert [occurrence.at for occurrence in page.items] == [
        start + timedelta(seconds=n)
        for n in range(10)
        if start + timedelta(seconds=n) < after(JOB_COUNT)
    ]
    assert states.read <= 11


@pytest.mark.parametrize("start", [NOON, after(1_500), after(3_600)])
def test_upcoming_page_takes_constant_store_steps_with_more_jobs(
    store: Store, start: datetime
) -> None:
    def read() -> object:
        return finish(forecast.upcoming("acme", start, NOON + DAY, 10, None, NOON))

    forecast, _ = counting_queries(store)
    accept(store, [once(n, after(1_000 + n)) for n in range(30)])
    accept(store, [once(n, after(3_600)) for n in range(30, 60)])
    few = steps(store, read)
    accept(store, [once(n, after(1_000 + n % 1_000)) for n in range(60, JOB_COUNT)])
    accept(store, [once(n, after(3_600)) for n in range(JOB_COUNT, 2 * JOB_COUNT)])
    assert steps(store, read) < few + 200


def test_upcoming_page_of_many_recurring_jobs_reads_limited_states(store: Store) -> None:
    accept(store, [hourly(n) for n in range(MAX_MERGED_JOBS + JOBS_PER_PART)])
    forecast, states = counting_queries(store)
    finish(forecast.upcoming("acme", NOON, NOON + DAY, 10, None, NOON))
    assert states.read <= 11
    page = finish(forecast.upcoming("acme", after(3_601), NOON + DAY, 10, None, NOON))
    assert len(page.items) == 10
    assert states.read <= 11 + JOBS_PER_PART * MAX_PARTS_READ


def test_upcoming_runs_with_max_runs_are_counted_without_a_walk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_second = Cron("* * * * * *", exclude=(date(2026, 3, 3),))
    limits = JobLimits(max_runs=200_000)
    states = [
        a_job_state(an_id(n), schedule=each_second, limits=limits, next_at=after(1))
        for n in range(30)
    ]
    accept(store, states)
    calls = 0
    next_local = Calendar.next_local

    def counted_calls(calendar: Calendar, local: int) -> int:
        nonlocal calls
        calls += 1
        return next_local(calendar, local)

    monkeypatch.setattr(Calendar, "next_local", counted_calls)
    forecast, _ = counting_queries(store)
    last = after(200_000 + 86_400)  # a day is excluded
    start = last - timedelta(seconds=1)
    page = finish(forecast.upcoming("acme", start, last + DAY, 100, None, NOON))
    assert [occurrence.at for occurrence in page.items] == [start] * 30 + [last] * 30
    assert calls < 30 * 20


def test_active_jobs_are_found_without_reading_scheduled_jobs(store: Store) -> None:
    active = [a_job_state(an_id(n), runs=(a_run(an_id(n)),)) for n in range(5)]
    accept(store, active)
    few = steps(store, lambda: list(store.job_states.active_states("acme")))
    accept(store, [once(n, after(n)) for n in range(10, JOB_COUNT)])
    assert steps(store, lambda: list(store.job_states.active_states("acme"))) == few
    assert list(store.job_states.active_states("acme")) == active
