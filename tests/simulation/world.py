"""The processes of one installation over shared stores, each with its clock, each mortal."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from punctual.domain.errors import Unavailable
from punctual.engine.pace import A_CORE, Pace
from punctual.engine.ports import BucketLease, Key, Timer
from tests.simulation.laws import Laws
from tests.simulation.memory import Memory
from tests.simulation.torn import Crash, Fault, Plan, torn

START = datetime(2026, 3, 2, 11, 59, 40, tzinfo=UTC)
CALL = timedelta(milliseconds=3)  # what each port call takes
RESTART = timedelta(seconds=2)
BREATH = timedelta(milliseconds=50)  # between two steps of one process
STEPS = 20_000
PACE = A_CORE.on(512 / 1769)


@dataclass(frozen=True)
class Setup:
    """How a world is arranged."""

    skews: dict[str, float] = field(default_factory=dict)  # seconds a process's clock is ahead
    ahead: float = 60  # how long before its time the poller fires
    nudges_lost: bool = False
    kills_lost: bool = True
    seed: int = 0
    tick_seconds: float = 60
    no_ticks: tuple[float, float] | None = None  # the planner's ticks are lost from, to
    twin_ticks: bool = False
    lag: float = 10  # seconds that a glance may be behind
    shards: int = 2
    pace: Pace = PACE  # of pollers that are functions
    works: bool = False  # whether what they do takes them so long
    late: Sequence[float] = (0,)  # seconds until a wake-up and a function is there, by turns
    repeats: float = 0  # how often the queue delivers once more what is being worked on


class Process:
    """Something with a memory of its own, which a crash takes away."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.skew = timedelta(seconds=world.setup.skews.get(name, 0))
        self.wake_at = world.now
        self.busy = False
        self.ids = 0
        self.begin()

    @property
    def ports(self) -> Any:
        return torn(self.world.memory.ports, self.world.plan, self.name)

    def clock(self) -> datetime:
        return self.world.now + self.skew

    def true(self, at: datetime) -> datetime:
        """A moment of this process's clock, by the world's."""
        return at - self.skew

    def monotonic(self) -> float:
        return (self.world.now - START).total_seconds()

    def new_id(self) -> str:
        return self.world.new_id(self.name)

    def log(self, event: str, **fields: Any) -> None:
        self.world.logged.append((event, fields))

    def begin(self) -> None:
        """Make everything anew, as after a start."""

    def step(self) -> None:
        raise NotImplementedError

    def next_at(self) -> datetime | None:
        """When, by the world's clock, there is something to do."""
        raise NotImplementedError

    def run(self) -> None:
        self.busy = True
        try:
            self.step()
            self.wake_at = self.world.now + BREATH
        except Unavailable:
            self.wake_at = self.world.now + timedelta(seconds=1)
        except Crash:
            self.world.crashes += 1
            self.wake_at = self.world.now + RESTART
            self.begin()
        finally:
            self.busy = False


class World:
    def __init__(self, setup: Setup, faults: Sequence[Fault] = ()) -> None:
        self.setup = setup
        self.now = START
        self.random = random.Random(setup.seed)
        self.laws = Laws()
        self.memory = Memory(lambda: self.now, self.laws.watch_head, self.laws.watch_row)
        for rows in (self.memory.heads, self.memory.history):
            rows.past.lag = timedelta(seconds=setup.lag)
        self.plan = Plan(tuple(faults), self.stall, self.tick)
        self.processes: list[Process] = []
        self.handed: list[BucketLease] = []
        self.answers: dict[str, Any] = {}
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.crashes = 0
        self._ids = 0

    def tick(self) -> None:
        self.now += CALL

    def new_id(self, name: str) -> str:
        self._ids += 1
        ms = int((self.now - START) / timedelta(milliseconds=1))
        return f"01900000-{ms >> 16 & 0xFFFF:04x}-7{ms & 0xFFF:03x}-8000-{self._ids:012x}"

    def take_nudges(self) -> list[Timer]:
        found, self.memory.wake.nudges[:] = list(self.memory.wake.nudges), []
        return [] if self.setup.nudges_lost else found

    def take_kills(self) -> list[tuple[Key, str]]:
        found, self.memory.wake.kills[:] = list(self.memory.wake.kills), []
        return [] if self.setup.kills_lost else found

    def stall(self, process: str, seconds: float) -> None:
        """`process` stands still within a call while the others go on."""
        self.run(self.now + timedelta(seconds=seconds))

    def run(self, until: datetime, done: Callable[[], bool] = lambda: False) -> None:
        for _ in range(STEPS):
            if done():
                return
            soonest = self._soonest()
            if soonest is None or soonest[0] > until:
                self.now = max(self.now, until)
                return
            at, process = soonest
            self.now = max(self.now, at)
            process.run()
        raise AssertionError("rule 7: the world does not come to rest")

    def _soonest(self) -> tuple[datetime, Process] | None:
        """The next to step; those that are ready at the same time in any order."""
        ready: list[tuple[datetime, Process]] = []
        for process in self.processes:
            at = None if process.busy else process.next_at()
            if at is not None:
                ready.append((max(at, process.wake_at, self.now), process))
        if not ready:
            return None
        first = min(at for at, _ in ready)
        return self.random.choice([entry for entry in ready if entry[0] == first])
