"""Planner, poller and reconciler as deployed, on moto, with manual queues and time."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from punctual.aws.retries import RetryPolicy
from punctual.aws.sqs.run_queue import parse_message
from punctual.aws.sqs.wakeups import parse_wake_up
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.domain.job_state import JobState
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.execution.executor import Finished
from punctual.engine.ports.partitions import TimerPartition
from punctual.engine.ports.rows import Detail, Key
from punctual.engine.ports.run_queue import Message
from punctual.engine.queries.views import JobView
from punctual.lambdas.planner.handler import PlannerHandler, build_handler
from punctual.lambdas.poller.handler import PollerHandler
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric
from punctual.node.clock import ManualClock
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON
from tests.support.deployed.sqs import Letter, Queue, Sqs, record
from tests.support.ports import job_commands, job_queries

MINUTE = timedelta(minutes=1)
READS = ("BatchGetItem", "GetItem", "Query", "Scan")
WRITES = ("BatchWriteItem", "DeleteItem", "PutItem", "UpdateItem", "TransactWriteItems")
TIMEOUT = 180.0  # seconds of a poller's timeout


@dataclass
class Told:
    """Log events, errors and metrics of the functions, by name."""

    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    metrics: Counter[Metric] = field(default_factory=Counter)
    latest: dict[Metric, float] = field(default_factory=dict)

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))

    def error(self, event: str, /, **fields: Any) -> None:
        self.events.append((event, fields))
        self.problems.append(event)

    def metric(self, metric: Metric, value: float = 1) -> None:
        self.metrics[metric] += int(value)
        self.latest[metric] = value

    @contextmanager
    def invocation(self) -> Iterator[None]:
        yield


class _Silent:
    def stats(self, tenant: str, now: datetime) -> Any:
        raise NotImplementedError

    def health(self, now: datetime) -> Any:
        raise NotImplementedError


class Functions:
    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        self.aws = aws
        self.clock = clock
        self.told = Told()
        self.sqs = Sqs(clock, [_queue(url) for url in self._urls()])
        self.sqs.answer(aws.clients.sqs)
        self.slept = timedelta()  # the billed sleep of functions
        self.meanwhile: list[tuple[datetime, Callable[[], Any]]] = []
        self.invocations = 0
        self.timeout = TIMEOUT
        self.sent: list[tuple[datetime, Message]] = []
        self.queued: list[Message] = []
        self._numbers = count(1)
        self.turn(shards="1", pace="30", dispatch="on")
        self.restart()

    def restart(self) -> None:
        """Start new environments of all functions, with empty caches."""
        self.planner = self.new_planner()
        self.polling = PollerHandler(self.runtime())
        runtime = self._executor = self.runtime()
        search = job_queries(runtime.ports, self.clock, _Silent())
        self.jobs = job_commands(runtime.ports, runtime.changes, search, self.clock, self.new_id)

    def _urls(self) -> list[str]:
        return [self.aws.settings.wake_queue, *self.aws.settings.queues.values()]

    def turn(self, **knobs: str) -> None:
        for name, value in knobs.items():
            self.aws.clients.ssm.put_parameter(
                Name=self.aws.settings.knobs + name, Value=value, Type="String", Overwrite=True
            )

    def new_id(self) -> str:
        return sortable_id(self.clock(), (next(self._numbers) << 6).to_bytes(10, "big"))

    def runtime(self) -> Runtime:
        """Return the runtime of a new environment."""
        return Runtime(
            self.aws.settings,
            self.told,
            clients=self.aws.clients,
            clock=self.clock,
            steady=self.clock.monotonic,
            make_id=self.new_id,
            pause=self._pause,
            crew=ThreadPool(1),
            patience=RetryPolicy(lambda _: None, seed="test", tries=2),
        )

    def new_planner(self) -> PlannerHandler:
        return build_handler(self.runtime())

    def _pause(self, seconds: float) -> None:
        """Advance the clock as a function's sleep does, and run the planned events until then."""
        end = self.clock.now + timedelta(seconds=seconds)
        self.slept += timedelta(seconds=seconds)
        while self.meanwhile and min(at for at, _ in self.meanwhile) <= end:
            first = min(self.meanwhile, key=lambda one: one[0])
            self.meanwhile.remove(first)
            self.clock.set(max(first[0], self.clock.now))
            first[1]()
        self.clock.set(max(end, self.clock.now))

    def submit(self, **document: Any) -> Key:
        (view,) = self.jobs.submit("acme", "ada", [Submission({"name": "n", **document})])
        assert isinstance(view, JobView), view
        return Key("acme", view.head.job_id)

    def head(self, key: Key) -> JobState:
        return self.aws.ports.job_states.load([key])[key].head

    @property
    def wake(self) -> Queue:
        return self.sqs.by_url[self.aws.settings.wake_queue]

    def called(self) -> list[tuple[datetime, list[TimerPartition]]]:
        """Return the waiting wake-ups with their times."""
        return sorted((one.visible_at, parse_wake_up(one.body)) for one in self.wake.letters)

    def event(self, letters: Sequence[Letter]) -> dict[str, Any]:
        return {"Records": [record(self.wake, one, "eu-central-1") for one in letters]}

    def deliver(self, polling: PollerHandler | None = None) -> Mapping[str, Any] | None:
        """Deliver one batch of wake-ups to a poller, as the event source mapping does."""
        letters = self.sqs.receive(self.wake, 10)
        if not letters:
            return None
        self.invocations += 1
        answer = (polling or self.polling).handle(self.event(letters), self.timeout)
        again = {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        self.sqs.delete(self.wake, [one for one in letters if one.id not in again])
        self.collect()
        return answer

    def collect(self) -> None:
        """Move messages from the executor queues to `sent` and `queued`."""
        for url in self.aws.settings.queues.values():
            queue = self.sqs.by_url[url]
            self.sent += [(one.sent_at, parse_message(one.body)) for one in queue.letters]
            self.queued += [parse_message(one.body) for one in queue.letters]
            queue.letters.clear()

    def execute(self) -> None:
        """Claim due runs and finish them at once."""
        due = [one for one in self.queued if one.due_at <= self.clock.now]
        self.queued = [one for one in self.queued if one not in due]
        executor = self._executor.executor
        for one in executor.claim(due).granted if due else ():
            executor.finish(
                [
                    Finished(
                        one.key, one.run.run_id, one.run.token, RunStatus.SUCCESS, False, Detail()
                    )
                ]
            )

    def run(self, until: datetime, ticks: bool = True, at_second: int = 30) -> None:
        """Run until a time.

        The planner ticks at `at_second` of each minute, and wake-ups arrive at their times.
        """
        tick_at = _next_tick(self.clock.now, at_second)
        while True:
            moments = [one.visible_at for one in self.wake.letters]
            moments += [one.due_at for one in self.queued]
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
        return [((one.due_at - NOON).total_seconds(), one.job_id) for _, one in self.sent]

    def spend(self, work: Callable[[], Any]) -> dict[str, int]:
        return self.aws.spend(work)


def _next_tick(now: datetime, second: int) -> datetime:
    at = now.replace(second=second, microsecond=0)
    return at if at > now else at + MINUTE


def _queue(url: str) -> Queue:
    name = url.rsplit("/", 1)[-1]
    hidden = timedelta(seconds=30 if name.endswith(".fifo") else TIMEOUT)
    return Queue(name, url, f"arn:aws:sqs:eu-central-1:1:{name}", hidden, timedelta(days=4))


@contextmanager
def functions(now: datetime = NOON) -> Iterator[Functions]:
    clock = ManualClock(now)
    with moto(clock) as made:
        yield Functions(made, clock)
