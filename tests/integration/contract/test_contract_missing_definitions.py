"""A stored job is in each list, or the list is refused. No list leaves it out."""

from collections.abc import Callable
from dataclasses import replace as with_ports
from typing import Any, cast

import pytest

from punctual.domain.durations import HISTORY_RETENTION
from punctual.domain.errors import NotFound, Unavailable
from punctual.domain.job_state import JobStatus
from punctual.domain.schedules.schedule import Once
from punctual.engine.ports.job_states import JobStates, StoredState, Swap
from punctual.engine.ports.lists.job_index import JobFilters, JobQuery
from punctual.engine.ports.rows import JobKey, JobStatePage
from punctual.engine.queries.jobs import JobQueries
from punctual.engine.queries.slices import finish
from tests.support.aws.adapters import World
from tests.support.builders import NOON, a_definition_row, a_job_state, after, an_id
from tests.support.ports import job_queries

JOBS = [an_id(n) for n in range(1, 4)]
BARE = JOBS[1]


class LogStub:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **facts: Any) -> None:
        self.lines.append((event, facts))


def a_search(world: World, states: JobStates | None = None) -> tuple[JobQueries, LogStub]:
    log = LogStub()
    ports = with_ports(world.ports, job_states=states or world.ports.job_states)
    return job_queries(ports, world.clock, cast(Any, None), log), log


@pytest.fixture
def stored_world(world: World) -> World:
    """Store three upcoming jobs. One lacks the definition that its state names."""
    states = [a_job_state(job_id, schedule=Once(after(60)), next_at=after(60)) for job_id in JOBS]
    world.ports.job_states.put_definitions(
        [a_definition_row(job_id) for job_id in JOBS if job_id != BARE]
    )
    assert world.ports.job_states.swap([Swap(state, 0) for state in states]) == [True] * 3
    world.settle()
    return world


QUERIES: list[Callable[[JobQueries], Any]] = [
    lambda search: finish(search.jobs("acme", JobQuery(), 50, None)),
    lambda search: finish(search.jobs("acme", JobQuery(JobFilters(name_prefix="a")), 50, None)),
    lambda search: search.job("acme", BARE),
    lambda search: finish(search.upcoming("acme", NOON, after(3_600), 50, None)),
]


@pytest.mark.parametrize("run_query", QUERIES, ids=["list", "filtered", "get", "upcoming"])
def test_missing_definition_is_logged_and_the_list_refused(
    stored_world: World, run_query: Callable[[JobQueries], Any]
) -> None:
    search, log = a_search(stored_world)
    with pytest.raises(Unavailable):
        run_query(search)
    assert log.lines == [("definition_missing", {"tenant": "acme", "job_id": BARE})]
    stored_world.ports.job_states.put_definitions([a_definition_row(BARE)])
    run_query(search)
    assert len(log.lines) == 1


def test_missing_definition_does_not_affect_other_tenants_and_pages(stored_world: World) -> None:
    search, log = a_search(stored_world)
    assert finish(search.jobs("globex", JobQuery(), 50, None)).items == []
    (newest,) = finish(search.jobs("acme", JobQuery(), 1, None)).items
    assert (newest.state.job_id, log.lines) == (JOBS[2], [])


class Expiring:
    """Return the job `BARE` as it was before it expired and its rows were removed."""

    def __init__(self, states: JobStates) -> None:
        self._heads = states
        self._expired = a_job_state(
            BARE, status=JobStatus.CANCELLED, ended_at=NOON - HISTORY_RETENTION
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._heads, name)

    def page(self, *args: Any) -> JobStatePage:
        page = self._heads.page(*args)
        return page._replace(without_definition=[self._expired])

    def load(self, keys: Any) -> Any:
        return {**self._heads.load(keys), JobKey("acme", BARE): StoredState(self._expired, {})}


def test_listing_leaves_out_job_that_expires_between_reads(stored_world: World) -> None:
    search, log = a_search(stored_world, cast(JobStates, Expiring(stored_world.ports.job_states)))
    views = finish(search.jobs("acme", JobQuery(), 50, None)).items
    assert [view.state.job_id for view in views] == [JOBS[2], JOBS[0]]
    with pytest.raises(NotFound):
        search.job("acme", BARE)
    assert log.lines == []
