"""Planner and pollers as functions. Messages start them, and they can crash anywhere."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from punctual.aws.operator_settings import OperatorSettings
from punctual.aws.sqs.wakeups import SqsWakeUps, parse_wake_up
from punctual.engine.clock import Clocks
from punctual.engine.dispatch.evaluation_retries import EvaluationRetries
from punctual.engine.dispatch.evaluator import Evaluator
from punctual.engine.dispatch.on_demand.held_messages import HeldMessages
from punctual.engine.dispatch.on_demand.planner import PeekingPlanner
from punctual.engine.dispatch.on_demand.poller import OnDemandPoller
from punctual.engine.dispatch.on_demand.wakeup_times import Throughput
from punctual.engine.ports.partitions import Partitions
from punctual.engine.ports.rows import JobKey
from punctual.engine.ports.timers import Timer
from punctual.lambdas.planner.handler import PlannerHandler
from punctual.lambdas.poller.handler import PollerSession, PollerWakeUps
from punctual.lambdas.telemetry import Metric
from tests.support.ports import Ports, a_change_applier
from tests.support.simulation.port_faults import Call, Fault
from tests.support.simulation.processes import PlannerProcess, PollerProcess
from tests.support.simulation.scenario import Scenario
from tests.support.simulation.world import Process, World

VISIBILITY = timedelta(seconds=90)
TIMEOUT = timedelta(seconds=60)
BATCH = 10
PART_SIZE = 50


@dataclass
class WakeMessage:
    body: str
    visible_at: datetime


@dataclass
class WakeUpQueue:
    """A standard queue behind `SqsWakeUps`, with delays, visibility and redelivery."""

    world: World
    messages: list[WakeMessage] = field(default_factory=list)
    sent: int = 0
    lost: bool = False

    def send(self, _url: str, entries: Sequence[Mapping[str, Any]]) -> list[bool]:
        now = self.world.now
        for entry in entries:
            late = self.world.setup.late[self.sent % len(self.world.setup.late)]
            at = now + timedelta(seconds=entry["DelaySeconds"] + late)
            self.sent += 1
            if not self.lost:
                self.messages.append(WakeMessage(entry["MessageBody"], at))
        return [True] * len(entries)

    def receive(self) -> list[WakeMessage]:
        now = self.world.now
        due_messages = [item for item in self.messages if item.visible_at <= now][:BATCH]
        for message in due_messages:
            message.visible_at = now + VISIBILITY
        return due_messages

    def next_at(self) -> datetime | None:
        return min((message.visible_at for message in self.messages), default=None)


class _Sent:
    """The queue as one process reaches it. Each call may fail."""

    def __init__(self, process: Process, queue: WakeUpQueue) -> None:
        self._process = process
        self._queue = queue

    def send(self, url: str, entries: Sequence[Mapping[str, Any]]) -> list[bool]:
        if not entries:
            return []
        call = Call(self._process.name, "wakes", "send_wakes", len(entries))
        plan = self._process.world.plan
        answer: list[bool] = plan.run(
            call, lambda entries: self._queue.send(url, entries), (entries,)
        )
        return answer


class _Silent:
    def __init__(self, process: Process) -> None:
        self._log = process.log

    def __call__(self, event: str, /, **fields: Any) -> None:
        self._log(event, **fields)

    error = __call__

    def metric(self, metric: Metric, value: float = 1) -> None:
        pass

    def invocation(self) -> Any:
        return nullcontext()


class _Switch:
    def __init__(self, buckets: Partitions) -> None:
        self._buckets = buckets

    def shards(self) -> int:
        return self._buckets.shard_count()

    def is_on(self) -> bool:
        return True

    def set(self, is_on: bool) -> None:
        assert is_on


class QueuedWakeUps:
    """The wake-up port of the other processes. It keeps no memory of sent wake-ups."""

    def __init__(self, world: World, queue: WakeUpQueue) -> None:
        self._world = world
        self._queue: Any = queue

    def notify_new_timers(self, timers: Sequence[Timer]) -> None:
        if not self._world.setup.wake_ups_lost:
            SqsWakeUps(self._queue, "", lambda: self._world.now).notify_new_timers(timers)

    def request_stop(self, key: JobKey, run_ids: Sequence[str]) -> None:
        pass


class PlannerFunction(Process):
    def __init__(self, world: World, queue: WakeUpQueue, name: str = "planner") -> None:
        self._queue = queue
        self._next_at = world.now
        super().__init__(world, name)

    def begin(self) -> None:
        ports, sent = self.ports, _Sent(self, self._queue)
        self._planning = PlannerHandler(
            planner=PeekingPlanner(ports.timers, ports.partitions, ports.partitions),
            partitions=ports.partitions,
            wake_ups=SqsWakeUps(sent, "", self.clock),  # type: ignore[arg-type]
            read_settings=lambda: OperatorSettings(shards=self.world.setup.shards),
            dispatch_switch=_Switch(ports.partitions),
            send_stalled_operations=lambda: None,
            clocks=Clocks(self.clock, self.monotonic),
            log=_Silent(self),
        )

    def step(self) -> None:
        setup = self.world.setup
        self._next_at = self.world.now + timedelta(seconds=setup.tick_seconds)
        silent = setup.no_ticks
        if silent is None or not silent[0] <= self.monotonic() < silent[1]:
            self._planning.tick()

    def next_at(self) -> datetime | None:
        return self._next_at


class PollerFunction(Process):
    """One function environment. It acknowledges a batch of wake-ups only after its work."""

    def __init__(self, world: World, queue: WakeUpQueue, name: str) -> None:
        self._queue = queue
        self._invocations = 0
        super().__init__(world, name)

    def begin(self) -> None:
        self._failing = EvaluationRetries()
        wake = SqsWakeUps(_Sent(self, self._queue), "", self.clock)  # type: ignore[arg-type]
        self._wake = wake.for_poller()

    def step(self) -> None:
        messages = self._queue.receive()
        if not messages:
            return
        partitions = [partition for item in messages for partition in parse_wake_up(item.body)]
        until = self.clock() + TIMEOUT
        self._session().run(partitions, until)
        for message in messages:
            if message in self._queue.messages:  # another environment may have it, or it is deleted
                self._queue.messages.remove(message)

    def _session(self) -> PollerSession:
        self._invocations += 1
        ports, pace = self.ports, self.world.setup.pace
        if self.world.setup.works:
            ports = replace(ports, **_at_work(ports, pace, self._pause))
        held, wake = HeldMessages(ports.run_queue, self.clock, pace), PollerWakeUps(self._wake)
        applier = a_change_applier(
            replace(ports, run_queue=held, wakeups=wake), self.clock, self.monotonic, self.log
        )
        evaluator = Evaluator(applier, self.new_id)
        on_demand_poller = OnDemandPoller(
            timers=ports.timers,
            partitions=ports.partitions,
            partition_leases=ports.partitions,
            evaluator=evaluator,
            held_messages=held,
            retries=self._failing,
            throughput=pace,
        )
        wake.poller = on_demand_poller
        owner = f"{self.name}/{self._invocations}"
        return PollerSession(
            poller=on_demand_poller,
            timers=ports.timers,
            partitions=ports.partitions,
            wake_ups=self._wake,
            owner=owner,
            clock=self.clock,
            pause=self._pause,
            is_dispatch_on=lambda: True,
            log=_Silent(self),
        )

    def _pause(self, seconds: float) -> None:
        self.world.sleep(seconds)

    def next_at(self) -> datetime | None:
        return self._queue.next_at()


class _Slow:
    """A port with a slow method `name`. It takes CPU time for each item, in small parts."""

    def __init__(self, port: Any, name: str, rate: float, pause: Callable[[float], None]) -> None:
        self._port, self._name, self._rate, self._pause = port, name, rate, pause

    def __getattr__(self, name: str) -> Any:
        return self._in_parts if name == self._name else getattr(self._port, name)

    def _in_parts(self, items: Sequence[Any]) -> list[bool]:
        answers: list[bool] = []
        for start in range(0, len(items), PART_SIZE):
            part = items[start : start + PART_SIZE]
            self._pause(len(part) / self._rate)
            answers += getattr(self._port, self._name)(part)
        return answers


def _at_work(ports: Ports, pace: Throughput, pause: Callable[[float], None]) -> dict[str, _Slow]:
    return {
        "job_states": _Slow(ports.job_states, "swap", pace.fired_per_second, pause),
        "run_queue": _Slow(ports.run_queue, "send", pace.sent_per_second, pause),
    }


class OnFunctions(Scenario):
    """The same story with functions for planner and pollers."""

    def world(self, faults: Sequence[Fault] = (), **setup: Any) -> World:
        world = super().world(faults, **setup)
        queue = WakeUpQueue(world)
        memory = world.memory
        memory.ports = replace(memory.ports, wakeups=QueuedWakeUps(world, queue))
        others = [
            item for item in world.processes if not isinstance(item, PlannerProcess | PollerProcess)
        ]
        planners = ["planner", "planner2"] if world.setup.twin_ticks else ["planner"]
        for process in others:
            process.begin()  # with the ports of this world
        world.processes[:] = [
            *(PlannerFunction(world, queue, name) for name in planners),
            *(PollerFunction(world, queue, name) for name in ("poller", "poller2")),
            *others,
        ]
        return world
