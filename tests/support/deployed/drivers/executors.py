"""The executor functions of a deployment, called by a test with scripted tasks."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.domain.run import RunStatus
from punctual.engine.ports.lists.run_filters import RunFilters
from punctual.engine.ports.rows import JobKey
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import RunView
from punctual.lambdas.dead_letters.handler import DeadLetterHandler
from punctual.lambdas.executor.handler import ExecutorHandler
from punctual.lambdas.runtime import Runtime
from punctual.tasks.attempt_runner import AttemptRunner
from punctual.tasks.contract import Runner
from tests.support.builders import NOON, ManualClock
from tests.support.deployed.deployed import REGION
from tests.support.deployed.drivers.direct import Direct
from tests.support.deployed.sqs import Queue, record
from tests.support.deployed.world import World, a_world
from tests.support.scripts.manual_task_runner import ManualTaskRunner, ScriptedTask
from tests.support.simulation.port_faults import Plan, with_faults

Record = dict[str, Any]


class InvocationContext:
    """The context of an invocation, which ends after some seconds."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._until - self._clock.monotonic()) * 1000)


class _TestTaskRunner(ManualTaskRunner):
    """A task runner that makes the planned calls as the test, not as the function."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self._world = world

    def at(self, moment: datetime, action: Callable[[], object]) -> None:
        def planned() -> None:
            with self._world.meter.as_role("test"):
                action()

        super().at(moment, planned)


class Executors(Direct):
    """Invokes executors. Each runtime is an environment, and all tasks run `doing`."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.task = ScriptedTask(self.clock)
        self.script: Runner = self.task
        self.task_runner = _TestTaskRunner(world)
        self.hidden: list[tuple[float, int]] = []  # (seconds after noon, duration)
        events = self.aws.clients.sqs.meta.events
        events.register("provide-client-params.sqs.ChangeMessageVisibilityBatch", self._note)

    @property
    def elapsed_seconds(self) -> float:
        """Return the seconds after noon."""
        return (self.clock() - NOON).total_seconds()

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        self.hidden += [
            (self.elapsed_seconds, entry["VisibilityTimeout"]) for entry in params["Entries"]
        ]

    def faulty_runtime(self, plan: Plan) -> Runtime:
        """Return the runtime of an environment with planned faults."""
        runtime = self.new_runtime()
        runtime.__dict__["ports"] = with_faults(runtime.ports, plan, "executor")
        return runtime

    def submit(self, **document: Any) -> JobKey:
        return super().submit(**{"schedule_type": "IMMEDIATE", **document})

    def records(self) -> list[Record]:
        """Receive all visible messages, as the records that SQS hands to the function."""
        records = []
        for url in self.aws.settings.queues.values():
            queue = self.world.sqs.by_url[url]
            while messages := self.world.sqs.receive(queue, 10):
                records += [record(queue, message, REGION) for message in messages]
        return records

    def invoke(
        self,
        records: Sequence[Record],
        runtime: Runtime | None = None,
        lane: str = "quick",
        seconds_left: float = 330,
        role: str = "",
    ) -> list[str]:
        """Invoke the executor, and return the ids of messages that it reports as failed.

        It has the rights of the lane's function, or of `role`.
        """
        scripted = dict.fromkeys(("event", "http", "lambda"), self.task)
        tasks = AttemptRunner({**scripted, "script": self.script})
        with self.world.meter.as_role(role or self.world.name(f"executor-{lane}")):
            executing = ExecutorHandler(
                runtime or self.runtime, lane, lambda _: tasks, self.task_runner
            )
            answer = executing.handle(
                {"Records": list(records)}, InvocationContext(self.clock, seconds_left)
            )
        failed = [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        self.acknowledge([message for message in records if message["messageId"] not in failed])
        return failed

    def acknowledge(self, records: Sequence[Record]) -> None:
        """Delete messages that were not reported as failed, as Lambda does."""
        for message in records:
            url = self.world.sqs.by_arn[message["eventSourceARN"]].url
            self.aws.clients.sqs.delete_message(
                QueueUrl=url, ReceiptHandle=message["receiptHandle"]
            )

    def handle_dead_letters(self, seconds_left: float, *queues: Queue) -> None:
        """Invoke the function of the dead letters for some queues, with `seconds_left` seconds."""
        until = self.clock.monotonic() + seconds_left
        with self.world.meter.as_role(self.world.name("dead-letters")):
            handler = DeadLetterHandler(self.new_runtime(), tuple(queue.url for queue in queues))
            handler.handle(lambda: until - self.clock.monotonic())

    def run(self, key: JobKey) -> RunView:
        (listed,) = finish(self.search.runs(*key, RunFilters(), 10, None)).items
        return self.search.run(*key, listed.run.run_id)

    def set_layout(self, key: JobKey, layout: int = keys.ROW_LAYOUT + 1) -> None:
        """Set a newer format on the job state, or restore the current one."""
        self.set_attribute(key, keys.LAYOUT_ATTR, {"N": str(layout)})

    def make_unreadable(self, key: JobKey) -> None:
        """Make the job state unreadable, as a manual edit or a newer version can."""
        self.set_attribute(key, keys.STATUS_ATTR, {"S": "UNHEARD_OF"})

    def status(self, key: JobKey) -> RunStatus:
        return self.run(key).run.status

    def evaluate_due_timers(self) -> None:
        """Evaluate every due timer, as a poller does."""
        minutes = {timer.bucket for timer in self.aws.timers()}
        for minute in sorted(minutes):
            timers = self.runtime.ports.timers.due(minute, 0, self.clock(), None, 100).timers
            if timers:
                self.runtime.evaluator.evaluate_timers(timers)

    def output_of(self, key: JobKey) -> bytes:
        """Return the output of a job's run, from its object where the answer is a link."""
        run = self.run(key)
        output = self.search.output(*key, run.run.run_id)
        if output.link is None:
            return output.data
        assert run.detail.output_blob in output.link
        return self.runtime.ports.blobs.get(run.detail.output_blob) or b""


@contextmanager
def executors(stage: str = "dev") -> Iterator[Executors]:
    with a_world(stage) as world:
        yield Executors(world)
