"""Concurrent invocations that run one step at a time. A waiting one lets the others continue.

Each has its own thread, and only one thread runs at a time. So the order of events is the same on
any machine.
"""

import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from typing import Any

from bench.cost.meter import Meter
from tests.support.builders import ManualClock
from tests.support.deployed.faults import Killed
from tests.support.deployed.functions import SINK, Environment

Done = Callable[["Actor"], None]
TASK = "task"  # the thread name of an executor's tasks
LONGEST = 5  # seconds; a task that hangs for longer is abandoned


class Actor:
    """One invocation, from its event to its answer or its crash."""

    def __init__(self, environment: Environment, event: Any, now: datetime, done: Done) -> None:
        self.environment = environment
        self.event = event
        self.began = now
        self.called = 0.0  # seconds that its own calls took
        self.deadline = now + timedelta(seconds=environment.function.timeout)
        self.wake_at: datetime | None = now  # None while it runs and after its end
        self.over = False
        self.answer: Any = None
        self.error: BaseException | None = None
        self.done = done
        self.thread = threading.Thread(target=self._run, daemon=True, name=self.name)
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)
        self._clock: Callable[[], datetime] = lambda: now

    @property
    def name(self) -> str:
        return self.environment.function.name

    def _left(self) -> float:
        return (self.deadline - self._clock()).total_seconds()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.answer = self.environment.call(self.event, self._left)
        except BaseException as error:
            self.error = error
        self.over = True
        self._back.release()

    def go_on(self, clock: ManualClock) -> None:
        """Run the invocation until it waits or ends."""
        self._clock = clock
        self.wake_at = None
        if not self.thread.is_alive() and not self.over:
            self.thread.start()
        self._go.release()
        self._back.acquire()

    def wait(self, until: datetime) -> None:
        """Wait until a time, called by the invocation itself. It is killed at its deadline."""
        self.wake_at = min(until, self.deadline)
        self._back.release()
        self._go.acquire()
        if self._clock() >= self.deadline and until > self.deadline:
            raise Killed("Task timed out")


class Actors:
    def __init__(self, clock: ManualClock, meter: Meter) -> None:
        self._clock = clock
        self._meter = meter
        self._waiting: list[Actor] = []
        self._closing = False
        self._playing: Actor | None = None

    def begin(
        self, environment: Environment, event: Any, done: Done, first: timedelta = timedelta()
    ) -> Actor:
        """Start an invocation. `first` is the startup time of a new environment."""
        environment.busy = True
        actor = Actor(environment, event, self._clock() + first, done)
        if first:
            self._waiting.append(actor)
        else:
            self._step(actor)
        return actor

    def mine(self) -> Actor | None:
        """Return the invocation of this thread. Threads that a function starts have none."""
        mine = self._playing
        return mine if mine and mine.thread is threading.current_thread() else None

    def spend(self, actor: Actor, seconds: float) -> None:
        """Let a call take its time, while other invocations continue."""
        if seconds:
            actor.called += seconds
            self.pause(seconds)

    def next_at(self) -> datetime | None:
        return min((actor.wake_at for actor in self._waiting if actor.wake_at), default=None)

    def wake(self) -> int:
        """Run the invocations that are due, the earliest first."""
        now = self._clock()
        ripe = [actor for actor in self._waiting if actor.wake_at and actor.wake_at <= now]
        for actor in sorted(ripe, key=lambda actor: actor.wake_at or now):
            self._waiting.remove(actor)
            self._step(actor)
        return len(ripe)

    def pause(self, seconds: float) -> None:
        """Sleep on behalf of a function.

        A thread that a function started just advances the clock.
        """
        until = self._clock() + timedelta(seconds=seconds)
        mine = self.mine()
        if mine is None:
            self._clock.set(max(until, self._clock()))
        elif self._closing:
            raise Killed("the world is closed")
        else:
            mine.wait(until)
            if self._closing:
                raise Killed("the world is closed")

    def close(self) -> None:
        """Kill all waiting invocations, without a report."""
        self._closing = True
        for actor in self._waiting:
            actor.done = lambda _: None
            actor.go_on(self._clock)
            actor.thread.join()
        self._waiting.clear()

    def _step(self, actor: Actor) -> None:
        self._playing = actor
        environment = actor.environment
        with (
            self._meter.as_role(actor.name),
            environment.inside(),
            redirect_stdout(SINK),
            SINK.into(environment.log),
        ):
            actor.go_on(self._clock)
            if actor.over:
                _join_tasks()
        if not actor.over:
            self._waiting.append(actor)
            return
        actor.thread.join()
        environment.busy = False
        actor.done(actor)


def _join_tasks() -> None:
    """Join the threads that an invocation left, so their calls are counted as its own."""
    for thread in threading.enumerate():
        if thread.name == TASK:
            thread.join(LONGEST)
