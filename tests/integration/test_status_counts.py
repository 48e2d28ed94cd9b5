"""Counts are exact, wherever the function that adds them dies and however Lambda splits again."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws import keys, status_keys
from punctual.aws.attributes import size, to_attribute
from punctual.aws.dynamo import Dynamo
from punctual.aws.tallies import Change, Tallies
from punctual.domain.head import State
from punctual.domain.placement import SLOTS, slot_of
from punctual.domain.run import Run, Status
from punctual.engine.views import Stats
from tests.builders import a_head, a_run, after, an_id
from tests.integration.serverless_api import Hand, deployed
from tests.integration.test_serverless_status import World

JOBS = [an_id(number) for number in range(1, 4)]
QUEUED = a_run()
SOONER = a_run(an_id(900), scheduled_at=after(-60), due_at=after(-60))


class Died(BaseException):
    """The environment is gone: no code of ours sees it coming."""


class Dying(Dynamo):
    """Dies at some of its conditional writes, counted from 0: before, or when it is written."""

    def __init__(self, world: World) -> None:
        self.__dict__.update(world.status._tallies._dynamo.__dict__)
        self.calls = 0
        self.deaths: frozenset[tuple[int, bool]] = frozenset()

    def update_if(self, *given: Any, **named: Any) -> Any:
        number, self.calls = self.calls, self.calls + 1
        if (number, False) in self.deaths:
            raise Died
        answer = super().update_if(*given, **named)
        if (number, True) in self.deaths:
            raise Died
        return answer


class Counting:
    """The status function, and its rows for a tenant of each trial's own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dying = Dying(world)
        self.table = world.store.settings.control_table
        world.status._tallies._dynamo = self.dying
        self._trials = 0

    def records(self) -> tuple[str, list[Any]]:
        """Three jobs that lie in slots of their own, each with runs in two minutes."""
        self._trials += 1
        tenant, of = f"t{self._trials}", self.world.stream.of
        lives = []
        for job in JOBS:
            one = a_head(job, tenant=tenant, version=1)
            heads = [
                one,
                replace(one, version=2, runs=(QUEUED, SOONER)),
                replace(one, version=3, runs=(SOONER,), ended=(ended(QUEUED),)),
                replace(one, version=4, ended=(ended(QUEUED), ended(SOONER))),
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
        status=Status.SUCCESS,
        token=3,
        started_at=at,
        attempt_at=at,
        ended_at=at + timedelta(seconds=1),
        changed_at=at + timedelta(seconds=1),
    )


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    clock = Hand(after(30))
    with deployed(clock) as api:
        yield World(api, clock, "none")


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
    assert counting.dying.calls == 3, "what there is, and two minutes"
    return found


MOMENTS = [(number, done) for number in range(6) for done in (False, True)]


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
            counting.handed(records[back:], [(1, True)])
            assert counting.shown(tenant) == right, (first, back)


def test_readers_beside_each_other_do_not_hide_what_the_other_counted(
    counting: Counting, right: Stats
) -> None:
    """Lambda reads a shard by several at a time, each with slots of its own."""
    tenant, records = counting.records()
    mine, theirs = records[0::3], [one for n, one in enumerate(records) if n % 3]
    counting.dying.calls, counting.dying.deaths = 0, frozenset({(2, True)})
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


def test_a_row_of_the_version_before_is_counted_on(counting: Counting, right: Stats) -> None:
    """It remembered names of batches as text, in attributes of the same names."""
    tenant, records = counting.records()
    slots = [f"b{slot_of(job)}" for job in JOBS]
    row = {name: to_attribute("0123456789abcdef") for name in slots}
    at = status_keys.totals(tenant)
    item = {**at.item(), keys.FORMAT: to_attribute(1), **row, "job_PAUSED": to_attribute(4)}
    counting.dying.put(counting.table, [item])
    counting.handed(records, [(2, True)])
    assert counting.shown(tenant).jobs == {**right.jobs, "PAUSED": 4}
    assert counting.shown(tenant).runs == right.runs


def test_a_row_of_all_slots_stays_under_a_kilobyte(counting: Counting) -> None:
    """Beyond that each addition would cost two units."""
    counts = {f"job_{one}": 10**6 for one in State} | {f"run_{one}": 10**9 for one in Status}
    tallies = Tallies(counting.dying, counting.table)
    tallies.add("whole", [Change(slot, 10**39 + slot, counts) for slot in range(SLOTS)])
    at = status_keys.totals("whole")
    assert size(counting.dying.read(counting.table, [at])[at]) < 1024
