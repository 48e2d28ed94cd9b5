"""The processes of one installation over shared stores. Each has a clock, and each can crash.

Each call of a port takes time, and other processes continue meanwhile. So a process may find that a
value it read has changed. `turns.py` gives each process in the middle of a call a stack of its own.
The seed sets the duration of calls, and the order of processes that are ready together.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, NamedTuple

from punctual.domain.errors import Unavailable
from punctual.engine.dispatch.on_demand.wakeup_times import CORE_THROUGHPUT, Throughput
from punctual.engine.ports.partitions import PartitionLease
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from tests.support.simulation.invariants import StoryInvariants
from tests.support.simulation.memory import Memory
from tests.support.simulation.port_faults import Crash, Fault, Plan, port_with_faults, with_faults
from tests.support.simulation.turns import Give, Turns, Worker

START = datetime(2026, 3, 2, 11, 59, 40, tzinfo=UTC)
CALL_SECONDS = 0.003  # seconds of a port call if all take the same
RESTART = timedelta(seconds=2)
STEP_PAUSE = timedelta(milliseconds=50)  # between two steps of one process
MAX_EVENTS = 100_000
PACE = CORE_THROUGHPUT.scaled(512 / 1769)


class ClockStep(NamedTuple):
    """A step of a process's clock. From then on it is `skew` seconds ahead."""

    at: float  # seconds after the start
    process: str
    skew: float


@dataclass(frozen=True)
class Setup:
    """The settings of a world."""

    skews: dict[str, float] = field(default_factory=dict)  # seconds that a process's clock is ahead
    ahead: float = 60  # how long before its time the poller fires
    wake_ups_lost: bool = False
    stop_requests_lost: bool = True
    seed: int = 0
    tick_seconds: float = 60
    no_ticks: tuple[float, float] | None = None  # the planner's ticks are lost in this span
    twin_ticks: bool = False
    shards: int = 2
    pace: Throughput = PACE  # of pollers that are functions
    works: bool = False  # whether their CPU work takes time
    late: Sequence[float] = (0,)  # seconds of a wake-up and of a function's start, in turn
    repeats: float = 0  # probability of a redelivery of messages in flight
    slowest: float = CALL_SECONDS  # longest port call in seconds, log-uniform, at least 3 ms
    clock_steps: Sequence[ClockStep] = ()
    may_repair: bool = False  # whether the reconciler may find something to repair
    first_id: int = 0  # so that the jobs of several worlds have different ids


class Process:
    """A process with its own memory, which a crash clears."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.wake_at = world.now
        self.busy = False
        self.paused_until: datetime | None = None  # while it pauses in a call
        self.paused_worker: Worker | None = None
        self.begin()

    @property
    def ports(self) -> Any:
        return with_faults(self.world.memory.ports, self.world.plan, self.name)

    @property
    def queue(self) -> Any:
        """Return the queue as a consumer reaches it. Each call may fail."""
        return port_with_faults(self.world.memory.run_queue, self.world.plan, self.name, "queue")

    @property
    def skew(self) -> timedelta:
        setup, elapsed = self.world.setup, self.monotonic()
        skew = setup.skews.get(self.name, 0)
        for step in setup.clock_steps:
            if step.process == self.name and step.at <= elapsed:
                skew = step.skew
        return timedelta(seconds=skew)

    def clock(self) -> datetime:
        return self.world.now + self.skew

    def to_world_time(self, at: datetime) -> datetime:
        """Convert a time of this process's clock to the world's clock."""
        return at - self.skew

    def monotonic(self) -> float:
        return (self.world.now - START).total_seconds()

    def new_id(self) -> str:
        return self.world.new_id(self.name)

    def log(self, event: str, **fields: Any) -> None:
        self.world.logged.append((event, fields))

    def begin(self) -> None:
        """Create all objects anew, as after a start."""

    def step(self) -> None:
        raise NotImplementedError

    def next_at(self) -> datetime | None:
        """Return the time of the next step, by the world's clock."""
        raise NotImplementedError

    def run(self) -> None:
        self.busy = True
        try:
            self.step()
            self.wake_at = self.world.now + STEP_PAUSE
        except Unavailable:
            self.wake_at = self.world.now + timedelta(seconds=1)
        except Crash:
            self.world.crashes += 1
            self.wake_at = self.world.now + RESTART
            self.begin()
        finally:
            self.busy = False

    def ready_at(self) -> datetime | None:
        """Return the time at which the process continues or begins its next step."""
        if self.paused_until is not None:
            return max(self.paused_until, self.world.now)
        at = None if self.busy else self.next_at()
        return None if at is None else max(at, self.wake_at, self.world.now)


class World:
    open: ClassVar[list["World"]] = []  # worlds with a process that may pause in a call

    def __init__(self, setup: Setup, faults: Sequence[Fault] = ()) -> None:
        self.setup = setup
        self.now = START
        self.random = random.Random(setup.seed)
        self.invariants = StoryInvariants(lambda: self.now)
        self.memory = Memory(lambda: self.now, self.invariants)
        self.plan = Plan(tuple(faults), self._begin_call, self.sleep)
        self.processes: list[Process] = []
        self.new_leases: list[PartitionLease] = []
        self.answers: dict[str, Any] = {}
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.crashes = 0
        self.repaired_jobs = 0  # jobs that the reconciler repaired
        self._ids = setup.first_id
        self._turns = Turns()
        self._active: Process | None = None
        self._until = START
        self._done: Callable[[], bool] = lambda: False
        self._events = 0
        World.open.append(self)

    def new_id(self, name: str) -> str:
        self._ids += 1
        ms = int((self.now - START) / timedelta(milliseconds=1))
        return f"01900000-{ms >> 16 & 0xFFFF:04x}-7{ms & 0xFFF:03x}-8000-{self._ids:012x}"

    def take_new_timers(self) -> list[Timer]:
        timers, self.memory.wakeups.new_timers[:] = list(self.memory.wakeups.new_timers), []
        return [] if self.setup.wake_ups_lost else timers

    def take_stop_requests(self) -> list[tuple[JobKey, str]]:
        requests, self.memory.wakeups.stop_requests[:] = list(self.memory.wakeups.stop_requests), []
        return [] if self.setup.stop_requests_lost else requests

    def _begin_call(self) -> float:
        """Wait until a call takes effect, and return the time until its answer."""
        before, after = self._call_takes()
        self.sleep(before)
        return after

    def _call_takes(self) -> tuple[float, float]:
        slowest = self.setup.slowest
        if slowest <= CALL_SECONDS:
            return CALL_SECONDS, 0
        seconds = CALL_SECONDS * (slowest / CALL_SECONDS) ** self.random.random()
        before = self.random.choice((0, 1, self.random.random()))
        return seconds * before, seconds * (1 - before)

    def sleep(self, seconds: float) -> None:
        """Pause the process that has the turn, while others continue."""
        self._turns.check()
        process = self._active
        if process is None:
            self.now += timedelta(seconds=seconds)
            return
        process.paused_until = self.now + timedelta(seconds=seconds)
        following = self._choose()
        if following is not process:
            process.paused_worker = self._turns.current
            self._turns.pause(self._turn_of(following))
        self.now = max(self.now, process.paused_until)
        process.paused_until = process.paused_worker = None
        self._active = process

    def run(self, until: datetime, done: Callable[[], bool] = lambda: False) -> None:
        """Let the processes run until `until`, or until `done` is true."""
        self._until, self._done = until, done
        self._turns.play(self._drive)
        self._active = None
        if not done():
            self.now = max(self.now, until)

    def _drive(self, first: Process | None = None) -> Give:
        """Step processes between two steps, until the next one is paused in a call."""
        while True:
            if first is None and self._done():
                return self._turns.end
            following, first = first or self._choose(), None
            if following is None or following.paused_worker is not None:
                return self._turn_of(following)
            at = following.ready_at()
            assert at is not None
            self.now = max(self.now, at)
            self._active = following
            following.run()

    def _turn_of(self, process: Process | None) -> Give:
        if process is None:
            return self._turns.end
        if process.paused_worker is not None:
            return process.paused_worker.go_on
        return lambda: self._turns.begin(lambda: self._drive(process))

    def _choose(self) -> Process | None:
        """Return the next process, a random one of those that are ready together.

        None means that no process is ready before the end.
        """
        self._events += 1
        assert self._events < MAX_EVENTS, "rule 7: the world does not come to rest"
        first: datetime | None = None
        ready: list[Process] = []
        for process in self.processes:
            at = process.ready_at()
            if at is None:
                continue
            if first is None or at < first:
                first, ready = at, [process]
            elif at == first:
                ready.append(process)
        if first is None or first > self._until:
            return None
        return ready[0] if len(ready) == 1 else self.random.choice(ready)

    def close(self) -> None:
        """Abandon all processes that pause in a call."""
        if self in World.open:
            World.open.remove(self)
        for process in self.processes:
            if process.paused_worker is not None:
                self._turns.abandon(process.paused_worker)
                process.paused_worker = None
