"""Counts are exact after a crash at any call and any split of the batch."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Any

import pytest
from msgspec.structs import replace

from punctual.aws.dynamodb.client import DynamoClient
from punctual.domain.run import Run, RunStatus
from punctual.engine.ports.monitor import Stats
from tests.support.aws.status_world import World
from tests.support.builders import a_job_state, a_run, after, an_id
from tests.support.deployed.drivers.api import an_api

JOBS = [an_id(number) for number in range(1, 4)]
QUEUED = a_run()
SOONER = a_run(an_id(900), scheduled_at=after(-60), due_at=after(-60))


class Crashed(BaseException):
    """The environment is gone. No code can catch this."""


class CrashingClient(DynamoClient):
    """Crashes at some transactions, counted from 0, before or after the write."""

    def __init__(self, world: World) -> None:
        self.__dict__.update(world.status._counters._dynamo.__dict__)
        self.calls = 0
        self.crashes: frozenset[tuple[int, bool]] = frozenset()

    def transact(self, writes: Sequence[Mapping[str, Any]]) -> bool:
        number, self.calls = self.calls, self.calls + 1
        if (number, False) in self.crashes:
            raise Crashed
        answer = super().transact(writes)
        if (number, True) in self.crashes:
            raise Crashed
        return answer


class CountTrials:
    """The status function, with a separate tenant for each trial."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = CrashingClient(world)
        self.table = world.store.settings.control_table
        world.status._counters._dynamo = self.client
        self._trials = 0

    def records(self) -> tuple[str, list[Any]]:
        """Return the records of three jobs, each with runs in two minutes."""
        self._trials += 1
        tenant, of = f"t{self._trials}", self.world.stream.of
        lives = []
        for job in JOBS:
            first = a_job_state(job, tenant=tenant, version=1)
            heads = [
                first,
                replace(first, version=2, runs=(QUEUED, SOONER)),
                replace(first, version=3, runs=(SOONER,), unrecorded=(ended(QUEUED),)),
                replace(first, version=4, unrecorded=(ended(QUEUED), ended(SOONER))),
            ]
            lives.append([None, *heads])
        return tenant, [of(life[number], life[number + 1]) for number in range(4) for life in lives]

    def deliver(self, records: Sequence[Any], crashes: Sequence[tuple[int, bool]]) -> None:
        """Handle the records as Lambda does, which halves a failed batch."""
        self.client.calls, self.client.crashes = 0, frozenset(crashes)
        waiting = [list(records)]
        while waiting:
            batch = waiting.pop(0)
            try:
                assert self.world.follow(*batch) == []
            except Crashed:
                half = -(-len(batch) // 2)
                waiting[:0] = [part for part in (batch[:half], batch[half:]) if part]
        self.client.crashes = frozenset()

    def stats(self, tenant: str) -> Stats:
        stats: Stats = self.world.stats(tenant)
        return stats


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
def counting(world: World) -> CountTrials:
    return CountTrials(world)


@pytest.fixture(scope="module")
def expected(counting: CountTrials) -> Stats:
    """The counts without any fault."""
    tenant, records = counting.records()
    counting.deliver(records, [])
    stats = counting.stats(tenant)
    assert stats.jobs == {"SCHEDULED": 3}
    assert stats.runs == {"SUCCESS": 6}
    assert counting.client.calls == 1, "one transaction for totals, minutes and counted changes"
    return stats


MOMENTS = [(number, done) for number in range(3) for done in (False, True)]


@pytest.mark.parametrize("crashes", [1, 2])
def test_crash_at_any_transaction_counts_each_change_once(
    counting: CountTrials, expected: Stats, crashes: int
) -> None:
    for moments in combinations(MOMENTS, crashes):
        tenant, records = counting.records()
        counting.deliver(records, moments)
        assert counting.stats(tenant) == expected, moments


def test_redelivery_with_other_batch_bounds_is_counted_once(
    counting: CountTrials, expected: Stats
) -> None:
    """A stream reader restarts at its last checkpoint, and its batch now has more records."""
    for first in (1, 5, 11):
        for back in range(0, first, 2):
            tenant, records = counting.records()
            counting.deliver(records[:first], [])
            counting.deliver(records[back:], [(0, True)])
            assert counting.stats(tenant) == expected, (first, back)


def test_concurrent_readers_count_all_changes(counting: CountTrials, expected: Stats) -> None:
    """Lambda reads a shard with several readers. Each has its own jobs."""
    tenant, records = counting.records()
    mine, theirs = records[0::3], [record for n, record in enumerate(records) if n % 3]
    counting.client.calls, counting.client.crashes = 0, frozenset({(0, True)})
    with pytest.raises(Crashed):
        counting.world.follow(*mine)
    counting.deliver(theirs, [])
    counting.deliver(mine[:2], [])
    counting.deliver(mine[2:], [])
    assert counting.stats(tenant) == expected


def test_records_redriven_late_are_counted(counting: CountTrials, expected: Stats) -> None:
    tenant, records = counting.records()
    counting.deliver(records[:3], [])
    counting.deliver(records[6:], [])
    counting.deliver(records[3:6], [])
    assert counting.stats(tenant) == expected
