"""A client that follows the change feed ends with what the lists show, under every seed.

The changes come from random plays of the engine with faults. On the node they go through the
embedded store: transactions fail, and its process restarts. On AWS they go through the
writer of the status function: batches fail in the middle and come again, and rows appear late.
"""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple, cast
from zlib import crc32

import pytest

from punctual.aws.dynamodb.lists import change_feed as aws_feed
from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed
from punctual.aws.dynamodb.stream_records import Record
from punctual.domain.errors import Unavailable
from punctual.engine.ports.job_states import StoredState, Swap
from punctual.engine.ports.rows import JobKey, RunKey, RunRow
from punctual.engine.queries.changes import ChangeQueries
from punctual.engine.queries.run_views import run_of_waiting
from punctual.lambdas.status.change_feed import ChangeFeedWriter
from punctual.lambdas.status.changes import Changes, compare_states
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.node.sqlite.store import Store
from tests.support.aws.feed_table import FeedTable
from tests.support.builders import ManualClock
from tests.support.list_plays.feed_clients import Clients, Shown, shown_run
from tests.support.simulation.invariants import StoryInvariants
from tests.support.simulation.memory import Memory
from tests.support.simulation.random_plays import random_play
from tests.support.simulation.random_stories import random_story
from tests.support.simulation.world import START

SEEDS = range(500)
BLOCKS = [SEEDS[first : first + 50] for first in range(0, len(SEEDS), 50)]
TAIL = timedelta(seconds=40)  # after which all is settled


class Swapped(NamedTuple):
    at: datetime
    old: StoredState | None
    new: StoredState


class Recorded(NamedTuple):
    at: datetime
    row: RunRow


Event = Swapped | Recorded


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each play keep the writes of job states and history rows."""
    before_swap, before_row = StoryInvariants.before_swap, StoryInvariants.before_row

    def swap(self: Any, old: StoredState | None, new: StoredState) -> None:
        before_swap(self, old, new)
        self.__dict__.setdefault("events", []).append(Swapped(self._clock(), old, new))

    def row(self: Any, old: RunRow | None, new: RunRow) -> None:
        before_row(self, old, new)
        self.__dict__.setdefault("events", []).append(Recorded(self._clock(), new))

    monkeypatch.setattr(StoryInvariants, "before_swap", swap)
    monkeypatch.setattr(StoryInvariants, "before_row", row)


def play(seed: int) -> tuple[Memory, Sequence[Event]]:
    world = random_play(random_story(seed), seed, max_faults=(0, 1, 2, 5)[seed % 4]).play()
    return world.memory, world.invariants.__dict__.get("events", [])


def lists(states: Sequence[StoredState], rows: Sequence[RunRow]) -> Shown:
    """Return what the lists of jobs and runs show."""
    shown: Shown = {}
    for state, _ in states:
        if not state.is_blank:
            shown["job", state.job_id] = (state.status.value, str(state.edition))
            waiting = (run_of_waiting(state, entry) for entry in state.wait_queue)
            for run in (*state.unrecorded, *state.runs, *waiting):
                shown["run", run.run_id] = shown_run(run)
    for row in rows:
        shown["run", row.run.run_id] = shown_run(row.run)
    return shown


def follow_on_node(seed: int, folder: Path) -> int:
    memory, events = play(seed)
    chance = random.Random(f"node {seed}")
    clock, states, rows = ManualClock(START), dict[JobKey, StoredState](), dict[RunKey, RunRow]()
    store = Store.open(folder, clock)
    store.job_states.put_definitions(list(memory.job_states._definitions.values()))
    clients = Clients(tenant_of(events), chance)
    waiting = list(events)
    while waiting:
        size = chance.randint(1, 4)
        group, waiting = waiting[:size], waiting[size:]
        clock.now = max(clock.now, group[-1].at)
        if chance.random() < 0.1:
            with pytest.raises(ZeroDivisionError):
                apply_and_fail(store, group)
        with store.transaction():
            apply_events(store, group)
        for event in group:
            if isinstance(event, Swapped):
                states[JobKey(event.new.state.tenant, event.new.state.job_id)] = event.new
            else:
                rows[key_of_row(event.row)] = event.row
        if chance.random() < 0.05:  # the process is killed, and starts again
            store.close()
            store = Store.open(folder, clock)
        shown = lists(list(states.values()), list(rows.values()))
        clients.step(queries_of(store), clock.now, shown)
    count = clients.finish(
        queries_of(store), clock.now, lists(list(states.values()), list(rows.values()))
    )
    store.close()
    return count


def queries_of(store: Store) -> ChangeQueries:
    return ChangeQueries(store.changes, store.job_states, store.history)


def apply_events(store: Store, events: Sequence[Event]) -> None:
    for event in events:
        if isinstance(event, Swapped):
            version = 0 if event.old is None else event.old.state.version
            assert store.job_states.swap([Swap(event.new.state, version)]) == [True]
        else:
            store.history.put_runs([event.row])


def apply_and_fail(store: Store, events: Sequence[Event]) -> None:
    with store.transaction():
        apply_events(store, events)
        raise ZeroDivisionError


def follow_on_aws(seed: int) -> int:
    memory, events = play(seed)
    chance = random.Random(f"aws {seed}")
    clock = ManualClock(START)
    table = FeedTable(clock, chance, slowest=chance.choice((0.1, 3.9)))
    feed = DynamoChangeFeed(cast(Any, table), "lists", chance.choice((1, 2, 4)), clock)
    writer = ChangeFeedWriter(feed, DefinitionCache(cast(Any, memory.job_states)))
    queries = ChangeQueries(feed, memory.job_states, memory.history)
    clients = Clients(tenant_of(events), chance)
    shards = shards_of(events)
    states, ended = dict[JobKey, StoredState](), dict[RunKey, RunRow]()
    while any(shards):
        records = min((shard for shard in shards if shard), key=lambda shard: shard[0].changed_at)
        batch = records[: chance.randint(1, 5)]
        del records[: len(batch)]
        lag = timedelta(seconds=chance.choice((0, 0.5, 1.5)))
        clock.now = max(clock.now, batch[-1].changed_at + lag)
        changes = [(record, compare_states(record.old, record.new)) for record in batch]
        for record, job_changes in changes:
            assert record.new is not None
            states[JobKey(record.new.tenant, record.new.job_id)] = StoredState(record.new, {})
            for change in job_changes.runs:
                if change.has_ended:
                    key = RunKey(record.new.tenant, record.new.job_id, change.run.run_id)
                    ended[key] = memory.history.rows[key]
        write_batch(writer, table, changes, memory, clock, chance)
        shown = lists(list(states.values()), list(ended.values()))
        clients.step(queries, clock.now, shown)
    clock.now += TAIL
    return clients.finish(queries, clock.now, lists(list(states.values()), list(ended.values())))


def write_batch(
    writer: ChangeFeedWriter,
    table: FeedTable,
    changes: Sequence[tuple[Record, Changes]],
    memory: Memory,
    clock: ManualClock,
    chance: random.Random,
) -> None:
    """Write a batch. It may be killed before or after its write. Then it comes again, or halved."""
    if chance.random() < 0.2:
        table.fails_next = chance.choice(("before", "after"))
        with pytest.raises(Unavailable):
            writer.write(changes, memory.history.rows)
        clock.now += timedelta(seconds=chance.choice((0, 1, 15)))
        middle = len(changes) // 2
        parts = chance.choice(([changes], [changes[:middle], changes[middle:]]))
    else:
        parts = [changes]
    for part in parts:
        writer.write(part, memory.history.rows)


def shards_of(events: Sequence[Event]) -> list[list[Record]]:
    """Return the records of two shards of the stream. Each holds all changes of its jobs."""
    shards: list[list[Record]] = [[], []]
    for number, event in enumerate(events):
        if isinstance(event, Swapped):
            old = None if event.old is None else event.old.state
            state = event.new.state
            record = Record(f"{number:06d}", f"e{number}", event.at, old, state)
            shards[crc32(state.job_id.encode()) % 2].append(record)
    return shards


def key_of_row(row: RunRow) -> RunKey:
    return RunKey(row.tenant, row.job_id, row.run.run_id)


def tenant_of(events: Sequence[Event]) -> str:
    (tenant,) = {event.new.state.tenant for event in events if isinstance(event, Swapped)}
    return tenant


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_client_of_the_node_ends_with_the_lists(block: range, tmp_path: Path) -> None:
    followed = sum(follow_on_node(seed, tmp_path / str(seed)) for seed in block)
    assert followed > len(block) // 2


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_client_on_aws_ends_with_the_lists(block: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws_feed, "MAX_REMEMBERED_ROWS", 6)
    monkeypatch.setattr(aws_feed, "MAX_CHANGES_PER_ANSWER", 10)
    followed = sum(map(follow_on_aws, block))
    assert followed > len(block) // 2
