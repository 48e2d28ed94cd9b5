"""What comes next reads few heads, however many jobs wait."""

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
from punctual.engine.queries.slices import finish
from punctual.engine.queries.upcoming import (
    JOBS_PER_PART,
    MAX_MERGED_JOBS,
    MAX_PARTS_READ,
    UpcomingRuns,
)
from punctual.node.clock import ManualClock
from punctual.node.sqlite.store import Store
from tests.support.builders import NOON, a_definition_row, a_job_state, a_run, after, an_id

DAY = timedelta(days=1)
MANY = 3_000


class CountingHeads:
    """Notes how many heads were answered in all."""

    def __init__(self, heads: JobStates) -> None:
        self._heads = heads
        self.read = 0

    def coming(self, *asked: Any) -> UpcomingStates | None:
        found = self._heads.upcoming(*asked)
        self.read += 0 if found is None else len(found.states)
        return found

    def page(self, tenant: str, before: str | None, limit: int) -> JobStatePage:
        found = self._heads.page(tenant, before, limit)
        self.read += len(found.items)
        return found

    def bodies(
        self, wanted: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        return self._heads.load_definitions(wanted)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path, ManualClock(NOON))
    yield store
    store.close()


def accept(store: Store, heads: Sequence[JobState]) -> None:
    with store.transaction():
        store.job_states.put_definitions([a_definition_row(head.job_id) for head in heads])
        assert all(store.job_states.swap([Swap(head, 0) for head in heads]))


def once(number: int, at: datetime) -> JobState:
    return a_job_state(an_id(number), schedule=Once(at), kind=ScheduleKind.FUTURE, next_at=at)


def hourly(number: int) -> JobState:
    return a_job_state(an_id(number), schedule=Every(3_600, anchor_at=NOON), next_at=after(3_600))


def counted(store: Store) -> tuple[UpcomingRuns, CountingHeads]:
    counting = CountingHeads(store.job_states)
    heads = cast(JobStates, counting)
    return UpcomingRuns(heads, JobList(heads, ManualClock(NOON), no_log)), counting


def steps(store: Store, look: Callable[[], object]) -> int:
    """How many instructions the store's machine takes."""
    taken = 0

    def step() -> int:
        nonlocal taken
        taken += 1
        return 0

    store.transaction().db.set_progress_handler(step, 1)
    look()
    store.transaction().db.set_progress_handler(None, 1)
    return taken


@pytest.mark.parametrize("start", [NOON, after(1_500), after(2_999)])
def test_as_many_heads_are_read_as_times_are_shown(store: Store, start: datetime) -> None:
    accept(store, [once(n, after(n)) for n in range(MANY)])
    forecast, heads = counted(store)
    page = finish(forecast.upcoming("acme", start, NOON + DAY, 10, None, NOON))
    assert [one.at for one in page.items] == [
        start + timedelta(seconds=n)
        for n in range(10)
        if start + timedelta(seconds=n) < after(MANY)
    ]
    assert heads.read <= 11


@pytest.mark.parametrize("start", [NOON, after(1_500), after(3_600)])
def test_the_store_takes_the_same_steps_however_many_jobs_wait(
    store: Store, start: datetime
) -> None:
    def look() -> object:
        return finish(forecast.upcoming("acme", start, NOON + DAY, 10, None, NOON))

    forecast, _ = counted(store)
    accept(store, [once(n, after(1_000 + n)) for n in range(30)])
    accept(store, [once(n, after(3_600)) for n in range(30, 60)])
    few = steps(store, look)
    accept(store, [once(n, after(1_000 + n % 1_000)) for n in range(60, MANY)])
    accept(store, [once(n, after(3_600)) for n in range(MANY, 2 * MANY)])
    assert steps(store, look) < few + 200


def test_many_recurring_jobs_are_read_a_bounded_number_at_once(store: Store) -> None:
    accept(store, [hourly(n) for n in range(MAX_MERGED_JOBS + JOBS_PER_PART)])
    forecast, heads = counted(store)
    finish(forecast.upcoming("acme", NOON, NOON + DAY, 10, None, NOON))
    assert heads.read <= 11
    page = finish(forecast.upcoming("acme", after(3_601), NOON + DAY, 10, None, NOON))
    assert len(page.items) == 10
    assert heads.read <= 11 + JOBS_PER_PART * MAX_PARTS_READ


def test_runs_that_are_numbered_are_not_walked_one_by_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_second = Cron("* * * * * *", exclude=(date(2026, 3, 3),))
    limits = JobLimits(max_runs=200_000)
    heads = [
        a_job_state(an_id(n), schedule=each_second, limits=limits, next_at=after(1))
        for n in range(30)
    ]
    accept(store, heads)
    asked = 0
    next_local = Calendar.next_local

    def counted_calls(calendar: Calendar, local: int) -> int:
        nonlocal asked
        asked += 1
        return next_local(calendar, local)

    monkeypatch.setattr(Calendar, "next_local", counted_calls)
    forecast, _ = counted(store)
    last = after(200_000 + 86_400)  # a day is excluded
    start = last - timedelta(seconds=1)
    page = finish(forecast.upcoming("acme", start, last + DAY, 100, None, NOON))
    assert [one.at for one in page.items] == [start] * 30 + [last] * 30
    assert asked < 30 * 20


def test_what_is_busy_is_found_without_looking_at_what_waits(store: Store) -> None:
    busy = [a_job_state(an_id(n), runs=(a_run(an_id(n)),)) for n in range(5)]
    accept(store, busy)
    few = steps(store, lambda: list(store.job_states.active_states("acme")))
    accept(store, [once(n, after(n)) for n in range(10, MANY)])
    assert steps(store, lambda: list(store.job_states.active_states("acme"))) == few
    assert list(store.job_states.active_states("acme")) == busy
