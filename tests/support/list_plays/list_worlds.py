"""Worlds for the contract of lists that follow job states: the node, moto, and memory with faults.

On AWS the writers of the status function run after each change. With faults each batch comes twice,
and answers of DynamoDB are lost before or after a call takes effect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.lists.change_feed import DynamoChangeFeed
from punctual.aws.dynamodb.lists.failures import DynamoFailures
from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.aws.dynamodb.lists.runs import TenantRunList
from punctual.aws.dynamodb.stream_records import Record
from punctual.domain.job_state import JobState
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.lists.change_feed import ChangeFeed
from punctual.engine.ports.lists.failures import Failures
from punctual.engine.ports.rows import DefinitionRow, RunRow
from punctual.engine.queries.changes import ChangeQueries
from punctual.identity import new_id
from punctual.lambdas.status.change_feed import ChangeFeedWriter
from punctual.lambdas.status.changes import compare_states
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.failures import FailureWriter
from punctual.lambdas.status.job_list import JobListWriter
from punctual.lambdas.status.run_list import RunListWriter
from punctual.node.sqlite.store import Store
from tests.support.aws.memory_dynamodb import Effect, MemoryDynamoDB, no_answer
from tests.support.aws.moto_adapter import moto
from tests.support.builders import ManualClock
from tests.support.simulation.memory import Memory

SLOTS = 2
FAULT_EVERY = 3  # calls


@dataclass(frozen=True)
class ListWorld:
    """`change` stores a job state with the rows of the runs that it ends."""

    clock: ManualClock
    change_feed: ChangeFeed
    queries: ChangeQueries
    failures: Failures
    put_definitions: Callable[[Sequence[DefinitionRow]], None]
    change: Callable[[JobState, Sequence[RunRow]], None]


@contextmanager
def _node(folder: Path, clock: ManualClock) -> Iterator[ListWorld]:
    store = Store.open(folder / "data", clock)

    def change(state: JobState, rows: Sequence[RunRow]) -> None:
        with store.transaction():
            assert store.job_states.swap([Swap(state, state.version - 1)]) == [True]
            store.history.put_runs(rows)

    queries = ChangeQueries(store.changes, store.job_states, store.history)
    put_definitions = store.job_states.put_definitions
    yield ListWorld(clock, store.changes, queries, store.failures, put_definitions, change)
    store.close()


def _over_dynamodb(
    dynamo: DynamoClient, table: str, clock: ManualClock, repeats: int = 1
) -> ListWorld:
    memory = Memory(clock)
    states, history = cast(Any, memory.job_states), cast(Any, memory.history)
    definitions = DefinitionCache(states)
    failures = DynamoFailures(dynamo, table, SLOTS, clock)
    feed = DynamoChangeFeed(dynamo, table, SLOTS, clock)
    job_list = JobListWriter(JobRows(dynamo, table, SLOTS, clock, new_id(clock)), definitions)
    run_list = RunListWriter(TenantRunList(dynamo, table, SLOTS), history, definitions)
    numbers = count(1)

    def change(state: JobState, rows: Sequence[RunRow]) -> None:
        old = {key[1]: stored.state for key, stored in memory.job_states.rows.items()}
        before = old.get(state.job_id)
        assert memory.job_states.swap([Swap(state, state.version - 1)]) == [True]
        memory.history.put_runs(rows)
        number = f"{next(numbers):06d}"
        record = Record(number, number, clock(), before, state)
        changes = [(record, compare_states(before, state))]
        for _ in range(repeats):
            failing_jobs = job_list.write_changes(changes, clock())
            FailureWriter(failures, history).write_changes(changes, failing_jobs, clock())
            run_rows = run_list.write_changes(changes, clock())
            ChangeFeedWriter(feed, definitions).write(changes, run_rows)

    queries = ChangeQueries(feed, states, history)
    return ListWorld(clock, feed, queries, failures, memory.job_states.put_definitions, change)


@contextmanager
def _moto(_folder: Path, clock: ManualClock) -> Iterator[ListWorld]:
    with moto(clock) as aws:
        dynamo = aws.ports.job_states._dynamo
        yield _over_dynamodb(dynamo, aws.settings.lists_table, clock)


@contextmanager
def _memory(_folder: Path, clock: ManualClock) -> Iterator[ListWorld]:
    yield _over_dynamodb(MemoryDynamoDB().dynamo(), "lists", clock)


@contextmanager
def _with_faults(_folder: Path, clock: ManualClock) -> Iterator[ListWorld]:
    database, numbers = MemoryDynamoDB(), count(1)

    def break_some(operation: str, effect: Effect) -> Any:
        number = next(numbers)
        is_read = operation in ("Query", "BatchGetItem")
        if number % FAULT_EVERY or is_read:
            return effect()
        if number % (2 * FAULT_EVERY):
            effect()
        raise no_answer()

    database.faults = break_some
    yield _over_dynamodb(database.dynamo(), "lists", clock, repeats=2)


LIST_WORLDS: Mapping[str, Callable[[Path, ManualClock], AbstractContextManager[ListWorld]]] = {
    "faults": _with_faults,
    "memory": _memory,
    "moto": _moto,
    "node": _node,
}
