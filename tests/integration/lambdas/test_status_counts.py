"""Counts are exact, wherever the function that adds them dies and however Lambda splits again."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.client import DynamoClient
from punctual.domain.identifiers import slot_of
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.monitor import Stats
from tests.integration.lambdas.test_status import World
from tests.support.builders import a_job_state, a_run, after, an_id
from tests.support.deployed.api import an_api

JOBS = [an_id(number) for number in range(1, 4)]
QUEUED = a_run()
SOONER = a_run(an_id(900), scheduled_at=after(-60), due_at=after(-60))


class Died(BaseException):
    """The environment is gone: no code of ours sees it coming."""


class Dying(DynamoClient):
    """Dies at some of its transactions, counted from 0: before, or when it is written."""

    def __init__(self, world: World) -> None:
        self.__dict__.update(world.status._counters._dynamo.__dict__)
        self.calls = 0
        self.deaths: frozenset[tuple[int, bool]] = frozenset()

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        number, self.calls = self.calls, self.calls + 1
        if (number, False) in self.deaths:
            raise Died
        answer = super().transact(writes)
        if (number, True) in self.deaths:
            raise Died
        return answer


class Counting:
    """The status function, and its rows for a tenant of each trial's own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dying = Dying(world)
        self.table = world.store.settings.control_table
        world.status._counters._dynamo = self.dying
        self._trials = 0

    def records(self) -> tuple[str, list[Any]]:
        """Three jobs that lie in slots of their own, each with runs in two minutes."""
        self._trials += 1
        tenant, of = f"t{self._trials}", self.world.stream.of
        lives = []
        for job in JOBS:
            one = a_job_state(job, tenant=tenant, version=1)
            heads = [
                one,
                replace(one, version=2, runs=(QUEUED, SOONER)),
                replace(one, version=3, runs=(SOONER,), unrecorded=(ended(QUEUED),)),
                replace(one, version=4, unrecorded=(ended(QUEUED), ended(SOONER))),
            ]
            lives.append([None, *heads])
        return tenant, [of(life[number], life[number + 1]) for number in range(4) for life in lives]

    def handed(self, records: Sequence[Any], deaths: Sequence[tuple[int, bool]]) -> None:
        """As Lambda does: what failed is halved, and goes on where it failed."""
        self.dying.calls, self.dying.deaths = 0, frozenset(deaths)
        waiting = [list(records)]
        while waiting:
            batch = waiting.pop(0)
            try:
                assert self.world.follow(*batch) == []
            except Died:
                half = -(-len(batch) // 2)
                waiting[:0] = [some for some in (batch[:half], batch[half:]) if some]
        self.dying.deaths = frozenset()

    def shown(self, tenant: str) -> Stats:
        found: Stats = self.world.stats(tenant)
        return found


def ended(run: Run) -> Run:
    at = run.due_at + timedelta(seconds=1)
    return replace(
        run,
        status=RunStatus.SUCCESS,
        token=3,
        started_at=at,
        attempt_at=at,
        ended_at=at + timedelta(seconds=1),
        changed_at=at + timedelta(seconds=1),
    )


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with an_api(now=after(30)) as api:
        yield World(api, "none")


@pytest.fixture(scope="module")
def counting(world: World) -> Counting:
    return Counting(world)


@pytest.fixture(scope="module")
def right(counting: Counting) -> Stats:
    """What is counted where nothing goes wrong."""
    tenant, records = counting.records()
    counting.handed(records, [])
    found = counting.shown(tenant)
    assert found.jobs == {"SCHEDULED": 3}
    assert found.runs == {"SUCCESS": 6}
    assert counting.dying.calls == 1, "what there is, two minutes, and what is counted"
    return found


MOMENTS = [(number, done) for number in range(3) for done in (False, True)]


def test_the_jobs_lie_in_slots_of_their_own() -> None:
    assert len({slot_of(job) for job in JOBS}) == len(JOBS)


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_death_at_any_moment_and_again_in_what_was_split_counts_nothing_twice(
    counting: Counting, right: Stats, deaths: int
) -> None:
    for some in combinations(MOMENTS, deaths):
        tenant, records = counting.records()
        counting.handed(records, some)
        assert counting.shown(tenant) == right, some


def test_what_is_cut_elsewhere_when_it_comes_again_is_counted_once(
    counting: Counting, right: Stats
) -> None:
    """A poller that lost its place begins at the last that it knows, with more behind."""
    for first in (1, 5, 11):
        for back in range(0, first, 2):
            tenant, records = counting.records()
            counting.handed(records[:first], [])
            counting.handed(records[back:], [(0, True)])
            assert counting.shown(tenant) == right, (first, back)


def test_readers_beside_each_other_do_not_hide_what_the_other_counted(
    counting: Counting, right: Stats
) -> None:
    """Lambda reads a shard by several at a time, each with slots of its own."""
    tenant, records = counting.records()
    mine, theirs = records[0::3], [one for n, one in enumerate(records) if n % 3]
    counting.dying.calls, counting.dying.deaths = 0, frozenset({(0, True)})
    with pytest.raises(Died):
        counting.world.follow(*mine)
    counting.handed(theirs, [])
    counting.handed(mine[:2], [])
    counting.handed(mine[2:], [])
    assert counting.shown(tenant) == right


def test_what_was_set_aside_is_counted_when_it_is_handed_on_much_later(
    counting: Counting, right: Stats
) -> None:
    tenant, records = counting.records()
    counting.handed(records[:3], [])
    counting.handed(records[6:], [])
    counting.handed(records[3:6], [])
    assert counting.shown(tenant) == right
