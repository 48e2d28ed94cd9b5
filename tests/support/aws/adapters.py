"""The adapters under the contract suite, each with its ports, its clock and its deliveries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path

from punctual.aws.dynamodb.stream_records import parse_record
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from punctual.lambdas.status.changes import compare_states
from punctual.lambdas.status.run_list import build_run_list_writer
from punctual.node.limits import Admission
from punctual.node.run_queue import RunQueue
from punctual.node.script_memory import UNLIMITED_MEMORY_MB, ScriptMemory
from punctual.node.sqlite.state_rows import SLOT_NUMBERS
from punctual.node.sqlite.store import Store
from tests.support.aws.moto_adapter import moto
from tests.support.aws.stream_records import Stream
from tests.support.builders import ManualClock
from tests.support.ports import Ports, store_ports
from tests.support.simulation.memory import Memory
from tests.support.simulation.port_faults import Repeating, with_faults


def _at_once() -> None:
    """Do nothing, because this adapter reads its own writes."""


@dataclass(frozen=True)
class World:
    """One adapter. `settle` waits for lists that the adapter updates after a write."""

    ports: Ports
    clock: ManualClock
    delivered: Callable[[datetime], Sequence[Message]]
    notifications: Callable[[datetime], Sequence[Notification]]
    settle: Callable[[], None] = _at_once
    merges_runs: bool = True  # the list of all runs comes from job states and history


@dataclass
class SilentWake:
    """Records its calls, as the node's own implementation does."""

    nudged: list[Timer] = field(default_factory=list)
    killed: list[tuple[JobKey, tuple[str, ...]]] = field(default_factory=list)

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        self.nudged.extend(timers)

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        self.killed.append((key, tuple(run_ids)))


Factory = Callable[[Path, ManualClock], AbstractContextManager[World]]


def run_queue(store: Store) -> RunQueue:
    """Return the queue of a node without limits."""
    admission = Admission(None, datetime.now, store.starts)
    return RunQueue(
        store.transaction(), store.job_states, admission, ScriptMemory(UNLIMITED_MEMORY_MB)
    )


@contextmanager
def embedded(folder: Path, clock: ManualClock) -> Iterator[World]:
    store = Store.open(folder / "data", clock)
    queue = run_queue(store)

    def delivered(now: datetime) -> Sequence[Message]:
        return [run for slot in SLOT_NUMBERS for run in queue.find_due(slot, now, 1_000)]

    def notifications(now: datetime) -> Sequence[Notification]:
        return [message.notification for message in store.notifications.due(now, 1_000, ())]

    try:
        yield World(store_ports(store, queue, SilentWake()), clock, delivered, notifications)
    finally:
        store.close()


@contextmanager
def aws(_folder: Path, clock: ManualClock) -> Iterator[World]:
    with moto(clock) as aws:
        ports = Ports(**{port.name: getattr(aws.ports, port.name) for port in fields(Ports)})
        stream, writer = Stream(aws), build_run_list_writer(aws.ports)

        def settle() -> None:
            """Write the list of runs from the stream, as the status function does."""
            records = [parse_record(record) for record in stream.catch()]
            changes = [(r, compare_states(r.old, r.new)) for r in records if r is not None]
            writer.write_changes(changes, clock())

        yield World(
            ports,
            clock,
            lambda _now: aws.delivered(),
            lambda _now: aws.notifications(),
            settle,
            merges_runs=False,
        )


@contextmanager
def memory(_folder: Path, clock: ManualClock) -> Iterator[World]:
    """Yield the plain twin that simulations run on. It must not be kinder than the adapters."""
    memory = Memory(clock)
    yield World(
        memory.ports, clock, lambda _now: _received(memory), lambda _now: _notifications(memory)
    )


@contextmanager
def repeating(_folder: Path, clock: ManualClock) -> Iterator[World]:
    """Yield a twin that repeats calls as an adapter's own retries do.

    The result must not change.
    """
    memory = Memory(clock)
    ports = with_faults(memory.ports, Repeating(), "client")
    yield World(ports, clock, lambda _now: _received(memory), lambda _now: _notifications(memory))


def _received(memory: Memory) -> Sequence[Message]:
    deliveries = memory.run_queue.receive(1_000)
    for delivery in deliveries:
        memory.run_queue.acknowledge(delivery)
    return [delivery.message for delivery in deliveries]


def _notifications(memory: Memory) -> Sequence[Notification]:
    return list(memory.notifications.rows.values())


ADAPTERS: Mapping[str, Factory] = {
    "aws": aws,
    "embedded": embedded,
    "memory": memory,
    "repeating": repeating,
}
