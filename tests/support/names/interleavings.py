"""Clients of the engine that interleave at port calls in an order that the test chooses.

`World` lets calls take time and draws the order. Here a schedule names the order, so a test can try
all orders with a few changes of turn.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import combinations
from typing import Any

from punctual.domain.errors import PunctualError
from punctual.engine.commands.jobs import Jobs
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.reconciler import Reconciler
from tests.support.ports import Ports, a_change_applier, a_reconciler, job_commands, job_queries
from tests.support.simulation.memory import Memory
from tests.support.simulation.port_faults import Crash, Fault, Partition, Plan, with_faults
from tests.support.simulation.turns import Give, Turns, Worker

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
MAX_CALLS = 2_000  # port calls of one play

Choose = Callable[[int, int, Sequence[int]], int]
"""Return the client of the next call, by the number of the call, the last client and the ready."""


class Client:
    """A client with a process of its own. `call` is its request."""

    def __init__(self, play: "Play", name: str, call: Callable[["Client"], Any]) -> None:
        ports = with_faults(play.memory.ports, play.plan, name)
        applier = a_change_applier(ports, play.clock, play.monotonic)
        self.jobs: Jobs = job_commands(
            ports, applier, job_queries(ports, play.clock, _NoMonitor()), play.clock, play.new_id
        )
        self.reconciler: Reconciler = a_reconciler(
            ports, applier, Evaluator(applier, play.new_id), play.new_id
        )
        self.ports: Ports = ports
        self.call = call
        self.paused: Worker | None = None
        self.is_done = False
        self.answer: Any = None  # the answer, the error, or the crash

    def run(self) -> None:
        try:
            self.answer = self.call(self)
        except (PunctualError, Crash) as error:
            self.answer = error
        self.is_done = True


class Play:
    """One play of some clients over a memory store."""

    def __init__(self, choose: Choose = lambda _number, last, _ready: last) -> None:
        self.now = NOON
        self.memory = Memory(self.clock)
        self.plan = Plan(begin=self._before_call)
        self._choose = choose
        self._clients: list[Client] = []
        self._last = 0
        self._turns = Turns()
        self._ids = 0
        self.is_concurrent = False
        self.call_count = 0

    def clock(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - NOON).total_seconds()

    def new_id(self) -> str:
        self._ids += 1
        return f"01900000-0000-7000-8000-{self._ids:012x}"

    def alone(self, call: Callable[[Client], Any]) -> Any:
        """Return the answer of a client that runs without others and without faults."""
        self.plan.on = False
        client = Client(self, "alone", call)
        client.run()
        self.plan.on = True
        return client.answer

    def together(
        self,
        calls: Sequence[Callable[[Client], Any]],
        faults: Sequence[Fault] = (),
        partitions: Sequence[Partition] = (),
    ) -> list[Any]:
        """Return the answers of clients that run at the same time."""
        self.plan = Plan(tuple(faults), self._before_call, partitions=tuple(partitions))
        self._clients = [
            Client(self, f"client {number}", call) for number, call in enumerate(calls)
        ]
        self._last, self.call_count = 0, 0
        self.is_concurrent = True
        self._turns.play(lambda: self._run(self._clients[self._next()]))
        self.is_concurrent = False
        return [client.answer for client in self._clients]

    def _run(self, client: Client) -> Give:
        client.run()
        if all(other.is_done for other in self._clients):
            return self._turns.end
        return self._give_to(self._clients[self._next()])

    def _before_call(self) -> float:
        if self.is_concurrent:
            self.call_count += 1
            assert self.call_count < MAX_CALLS, "the clients do not come to rest"
            client = self._clients[self._last]
            following = self._clients[self._next()]
            if following is not client:
                client.paused = self._turns.current
                self._turns.pause(self._give_to(following))
                client.paused = None
        return 0

    def _next(self) -> int:
        ready = [number for number, client in enumerate(self._clients) if not client.is_done]
        chosen = self._choose(self.call_count, self._last, ready)
        self._last = chosen if chosen in ready else ready[0]
        return self._last

    def _give_to(self, client: Client) -> Give:
        if client.paused is not None:
            return client.paused.go_on
        return lambda: self._turns.begin(lambda: self._run(client))


def switching_at(calls: Sequence[int]) -> Choose:
    """Return a schedule that gives the turn to the next client before each of these calls."""

    def choose(number: int, last: int, ready: Sequence[int]) -> int:
        if number in calls:
            return next((client for client in ready if client > last), ready[0])
        return last

    return choose


def all_switches(call_count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield each choice of at most `most` of these calls."""
    for count in range(most + 1):
        yield from combinations(range(1, call_count + 1), count)


class _NoMonitor:
    def stats(self, tenant: str, now: datetime) -> Any:
        raise NotImplementedError

    def health(self, now: datetime) -> Any:
        raise NotImplementedError
