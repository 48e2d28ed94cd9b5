"""A job that stands is in every list of it, or the list is refused: never is it left out."""

from collections.abc import Callable
from dataclasses import replace as with_ports
from typing import Any, cast

import pytest

from punctual.domain.errors import NotFound, Unavailable
from punctual.domain.schedules.schedule import Once
from punctual.engine.ports.job_states import JobStates, Swap
from punctual.engine.ports.rows import HeadPage
from punctual.engine.queries.jobs import JobFilters, JobQueries
from punctual.engine.queries.slices import finish
from tests.builders import NOON, a_body, a_head, after, an_id
from tests.integration.adapters import World

JOBS = [an_id(n) for n in range(1, 4)]
BARE = JOBS[1]


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, event: str, /, **facts: Any) -> None:
        self.lines.append((event, facts))


def a_search(world: World, heads: JobStates | None = None) -> tuple[JobQueries, Told]:
    told = Told()
    ports = with_ports(world.ports, heads=heads or world.ports.heads)
    return JobQueries(ports, world.clock, cast(Any, None), told), told


@pytest.fixture
def kept(world: World) -> World:
    """Three jobs to come, of which one lacks the definition that its head names."""
    heads = [a_head(job_id, schedule=Once(after(60)), next_at=after(60)) for job_id in JOBS]
    world.ports.heads.put_bodies([a_body(job_id) for job_id in JOBS if job_id != BARE])
    assert world.ports.heads.swap([Swap(head, 0) for head in heads]) == [True] * 3
    world.settle()
    return world


ASKED: list[Callable[[JobQueries], Any]] = [
    lambda search: finish(search.jobs("acme", JobFilters(), 50, None)),
    lambda search: finish(search.jobs("acme", JobFilters(name_prefix="a"), 50, None)),
    lambda search: search.job("acme", BARE),
    lambda search: finish(search.upcoming("acme", NOON, after(3_600), 50, None)),
]


@pytest.mark.parametrize("ask", ASKED, ids=["list", "filtered", "one", "upcoming"])
def test_a_definition_that_is_missing_is_told_and_refused(
    kept: World, ask: Callable[[JobQueries], Any]
) -> None:
    search, told = a_search(kept)
    with pytest.raises(Unavailable):
        ask(search)
    assert told.lines == [("definition_missing", {"tenant": "acme", "job_id": BARE})]
    kept.ports.heads.put_bodies([a_body(BARE)])
    ask(search)
    assert len(told.lines) == 1


def test_other_tenants_and_pages_are_not_concerned(kept: World) -> None:
    search, told = a_search(kept)
    assert finish(search.jobs("globex", JobFilters(), 50, None)).items == []
    (newest,) = finish(search.jobs("acme", JobFilters(), 1, None)).items
    assert (newest.head.job_id, told.lines) == (JOBS[2], [])


class Meanwhile:
    """Something happens between the read of heads and that of their bodies."""

    def __init__(self, world: World, standing: bool) -> None:
        self._heads = world.ports.heads
        self._standing = standing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._heads, name)

    def page(self, *asked: Any) -> HeadPage:
        page = self._heads.page(*asked)
        changed = [(head, body) for head, body in page.items if head.job_id != BARE]
        return page._replace(items=changed, bare=[a_head(BARE)])

    def load(self, keys: Any) -> Any:
        return self._heads.load(keys) if self._standing else {}


def test_what_was_changed_meanwhile_is_listed_as_it_is_now(kept: World) -> None:
    kept.ports.heads.put_bodies([a_body(BARE)])
    search, told = a_search(kept, cast(JobStates, Meanwhile(kept, standing=True)))
    found = finish(search.jobs("acme", JobFilters(), 50, None)).items
    assert [view.head.job_id for view in found] == JOBS[::-1]
    assert told.lines == []


def test_what_went_meanwhile_is_listed_no_more(kept: World) -> None:
    search, told = a_search(kept, cast(JobStates, Meanwhile(kept, standing=False)))
    found = finish(search.jobs("acme", JobFilters(), 50, None)).items
    assert [view.head.job_id for view in found] == [JOBS[2], JOBS[0]]
    with pytest.raises(NotFound):
        search.job("acme", BARE)
    assert told.lines == []
