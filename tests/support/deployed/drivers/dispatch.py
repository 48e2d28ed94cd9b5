"""The planner, the pollers and the reconciler of a deployment, called by a test."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from punctual.aws.sqs.run_queue import parse_message
from punctual.aws.sqs.wakeups import parse_wake_up
from punctual.domain.job_state import JobState
from punctual.domain.run import RunStatus
from punctual.engine.execution.executor import FinishedAttempt
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import Detail, JobKey
from punctual.engine.ports.run_queue import Message
from punctual.lambdas.planner.handler import PlannerHandler, build_handler
from punctual.lambdas.poller.handler import PollerHandler
from punctual.lambdas.reconciler.handler import continue_walk
from punctual.lambdas.runtime import Runtime
from tests.support.builders import NOON
from tests.support.deployed.deployed import REGION
from tests.support.deployed.drivers.direct import Direct
from tests.support.deployed.sqs import Queue, QueuedMessage, record
from tests.support.deployed.world import MINUTE, World, a_world


class Planner:
    """An environment of the planner, with the rights of its function."""

    def __init__(self, world: World, handler: PlannerHandler) -> None:
        self._world = world
        self._handler = handler

    def tick(self) -> None:
        with self._world.meter.as_role(self._world.name("planner")):
            self._handler.tick()


class Dispatch(Direct):
    """Ticks the planner and delivers wake-ups. Runs end as soon as they are sent and due."""

    def __init__(self, world: World) -> None:
        self.slept = timedelta()  # the billed sleep of functions
        self.planned_actions: list[tuple[datetime, Callable[[], Any]]] = []
        self.invocations = 0
        self.timeout = float(world.deployed.functions[world.name("poller")].timeout)
        self.sent: list[tuple[datetime, Message]] = []
        self.queued: list[Message] = []
        super().__init__(world)
        self.put_settings(shards="1", pace="30", dispatch="on")

    def restart(self) -> None:
        """Start new environments of all functions, with empty caches."""
        super().restart()
        self.planner = self.new_planner()
        self.poller_handler = PollerHandler(self.new_runtime())

    def put_settings(self, **settings: str) -> None:
        for name, value in settings.items():
            self.world.put_knob(name, value)

    def new_runtime(self, pause: Callable[[float], None] | None = None) -> Runtime:
        return super().new_runtime(pause or self._pause)

    def new_planner(self) -> Planner:
        return Planner(self.world, build_handler(self.new_runtime()))

    def _pause(self, seconds: float) -> None:
        """Advance the clock as a function's sleep does, and run the planned events until then."""
        end = self.clock.now + timedelta(seconds=seconds)
        self.slept += timedelta(seconds=seconds)
        while self.planned_actions and min(at for at, _ in self.planned_actions) <= end:
            first = min(self.planned_actions, key=lambda planned: planned[0])
            self.planned_actions.remove(first)
            self.clock.set(max(first[0], self.clock.now))
            with self.world.meter.as_role("test"):
                first[1]()
        self.clock.set(max(end, self.clock.now))

    def walk(self, seconds: float) -> None:
        """Invoke the reconciler with so much time."""
        with self.world.meter.as_role(self.world.name("reconciler")):
            continue_walk(self.new_runtime(), seconds)

    def job_state(self, key: JobKey) -> JobState:
        return self.aws.ports.job_states.load([key])[key].state

    @property
    def wake_queue(self) -> Queue:
        return self.world.queue("wake")

    def wake_ups(self) -> list[tuple[datetime, list[TimerPartition]]]:
        """Return the waiting wake-ups with their times."""
        return sorted(
            (message.visible_at, parse_wake_up(message.body))
            for message in self.wake_queue.messages
        )

    def event(self, messages: Sequence[QueuedMessage]) -> dict[str, Any]:
        return {"Records": [record(self.wake_queue, message, REGION) for message in messages]}

    def deliver(self, handler: PollerHandler | None = None) -> Mapping[str, Any] | None:
        """Deliver one batch of wake-ups to a poller, as the event source mapping does."""
        messages = self.world.sqs.receive(self.wake_queue, 10)
        if not messages:
            return None
        self.invocations += 1
        with self.world.meter.as_role(self.world.name("poller")):
            answer = (handler or self.poller_handler).handle(self.event(messages), self.timeout)
        again = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        self.world.sqs.delete(
            self.wake_queue, [message for message in messages if message.id not in again]
        )
        self.collect()
        return answer

    def collect(self) -> None:
        """Move messages from the executor queues to `sent` and `queued`."""
        for url in self.aws.settings.queues.values():
            queue = self.world.sqs.by_url[url]
            self.sent += [
                (message.sent_at, parse_message(message.body)) for message in queue.messages
            ]
            self.queued += [parse_message(message.body) for message in queue.messages]
            queue.messages.clear()

    def execute(self) -> None:
        """Claim due runs and finish them at once."""
        due = [message for message in self.queued if message.due_at <= self.clock.now]
        self.queued = [message for message in self.queued if message not in due]
        executor = self.runtime.executor
        with self.world.meter.as_role(self.world.name("executor-quick")):
            for claim in executor.claim(due).claimed if due else ():
                ended = RunStatus.SUCCESS
                executor.finish(
                    [
                        FinishedAttempt(
                            claim.key, claim.run.run_id, claim.run.token, ended, False, Detail()
                        )
                    ]
                )

    def run(self, until: datetime, ticks: bool = True, at_second: int = 30) -> None:
        """Run until a time.

        The planner ticks at `at_second` of each minute, and wake-ups arrive at their times.
        """
        tick_at = _next_tick(self.clock.now, at_second)
        while True:
            moments = [message.visible_at for message in self.wake_queue.messages]
            moments += [message.due_at for message in self.queued]
            if ticks:
                moments.append(tick_at)
            soonest = min(moments, default=until)
            if soonest >= until:
                self.clock.set(max(until, self.clock.now))
                return
            self.clock.set(max(soonest, self.clock.now))
            if ticks and tick_at <= self.clock.now:
                self.planner.tick()
                tick_at = _next_tick(self.clock.now, at_second)
            while self.deliver() is not None:
                pass
            self.execute()

    def runs_sent(self) -> list[tuple[float, str]]:
        """Return the due time in seconds after noon and the job of each message."""
        return [
            ((message.due_at - NOON).total_seconds(), message.job_id) for _, message in self.sent
        ]

    def spend(self, work: Callable[[], Any]) -> dict[str, int]:
        return self.aws.spend(work)


def _next_tick(now: datetime, second: int) -> datetime:
    at = now.replace(second=second, microsecond=0)
    return at if at > now else at + MINUTE


@contextmanager
def dispatch() -> Iterator[Dispatch]:
    with a_world() as world:
        yield Dispatch(world)
