"""An executor function on moto, with real messages, real event shapes and a manual clock."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import Any, cast

from punctual.aws.dynamodb import keys
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.identifiers import sortable_id
from punctual.domain.run import RunStatus
from punctual.engine.commands.jobs import Submission
from punctual.engine.ports.rows import Key
from punctual.engine.queries.jobs import RunFilters
from punctual.engine.queries.slices import finish
from punctual.engine.queries.views import JobView, RunView
from punctual.lambdas.executor.handler import ExecutorHandler
from punctual.lambdas.runtime import Runtime
from punctual.lambdas.telemetry import Metric
from punctual.node.clock import ManualClock
from punctual.tasks.registry import Registry
from tests.support.aws.moto_adapter import Moto, moto
from tests.support.builders import NOON
from tests.support.ports import job_commands, job_queries
from tests.support.scripts.by_hand import ByHand, Doing
from tests.support.simulation.torn import Plan, torn

ACCOUNT = "arn:aws:sqs:eu-central-1:123456789012:"
Record = dict[str, Any]


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.problems: list[tuple[str, dict[str, Any]]] = []
        self.measured: list[tuple[Metric, float]] = []

    def __call__(self, event: str, /, **fields: Any) -> None:
        self.lines.append((event, fields))

    def error(self, event: str, /, **fields: Any) -> None:
        self.problems.append((event, fields))

    def metric(self, metric: Metric, value: float = 1) -> None:
        self.measured.append((metric, value))

    @contextmanager
    def invocation(self) -> Iterator[None]:
        yield

    def count(self, metric: Metric) -> int:
        return sum(1 for one, _ in self.measured if one is metric)


class Left:
    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self._clock = clock
        self._until = clock.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return int((self._until - self._clock.monotonic()) * 1000)


class ExecutorWorld:
    """Executors over one AWS account. Each `environment` is a process, and all run `doing`."""

    def __init__(self, aws: Moto, clock: ManualClock) -> None:
        self.aws = aws
        self.clock = clock
        self.tell = Told()
        self.doing = Doing(clock)
        self.hands = ByHand(clock)
        self.hidden: list[tuple[float, int]] = []  # (seconds after noon, duration)
        self._numbers = count(1)
        self.runtime = self.new_runtime()
        self.search = job_queries(self.runtime.ports, clock, cast(Any, None))
        self.jobs = job_commands(
            self.runtime.ports, self.runtime.changes, self.search, clock, self.runtime.new_id
        )
        events = aws.clients.sqs.meta.events
        events.register("provide-client-params.sqs.ChangeMessageVisibilityBatch", self._note)

    def _note(self, params: dict[str, Any], **_: Any) -> None:
        seconds = (self.clock() - NOON).total_seconds()
        self.hidden += [(seconds, one["VisibilityTimeout"]) for one in params["Entries"]]

    def new_runtime(self, plan: Plan | None = None) -> Runtime:
        def new_id() -> str:
            return sortable_id(self.clock(), (next(self._numbers) << 6).to_bytes(10, "big"))

        made = Runtime(
            self.aws.settings,
            self.tell,
            self.aws.clients,
            self.clock,
            self.clock.monotonic,
            new_id,
            crew=ThreadPool(1),
            patience=RetryPolicy(lambda _: None, seed="test", tries=2),
        )
        if plan is not None:
            made.__dict__["ports"] = torn(made.ports, plan, "executor")
        return made

    def submit(self, **document: Any) -> Key:
        document = {"name": "n", "schedule_type": "IMMEDIATE", **document}
        (view,) = self.jobs.submit("acme", "ada", [Submission(document)])
        assert isinstance(view, JobView)
        return Key(view.head.tenant, view.head.job_id)

    def records(self) -> list[Record]:
        """Return all queued messages as the records that SQS hands to the function."""
        found = []
        for url in self.aws.settings.queues.values():
            while True:
                received = self.aws.clients.sqs.receive_message(
                    QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
                ).get("Messages", [])
                if not received:
                    break
                found += [_record(one, ACCOUNT + url.rsplit("/", 1)[-1]) for one in received]
        return found

    def invoke(
        self,
        records: Sequence[Record],
        runtime: Runtime | None = None,
        lane: str = "quick",
        left: float = 330,
    ) -> list[str]:
        """Invoke the executor, and return the ids of messages that it reports as failed."""
        tasks = Registry(dict.fromkeys(("event", "http", "lambda"), self.doing))
        executing = ExecutorHandler(runtime or self.runtime, lane, lambda _: tasks, self.hands)
        answer = executing.handle({"Records": list(records)}, Left(self.clock, left))
        failed = [one["itemIdentifier"] for one in answer["batchItemFailures"]]
        self.acknowledge([one for one in records if one["messageId"] not in failed])
        return failed

    def acknowledge(self, records: Sequence[Record]) -> None:
        """Delete messages that were not reported as failed, as Lambda does."""
        urls = {url.rsplit("/", 1)[-1]: url for url in self.aws.settings.queues.values()}
        for one in records:
            url = urls[one["eventSourceARN"].rsplit(":", 1)[-1]]
            self.aws.clients.sqs.delete_message(QueueUrl=url, ReceiptHandle=one["receiptHandle"])

    def run(self, key: Key) -> RunView:
        (listed,) = finish(self.search.runs(*key, RunFilters(), 10, None)).items
        return self.search.run(*key, listed.run.run_id)

    def outdate(self, key: Key, layout: int = keys.ROW_LAYOUT + 1) -> None:
        """Set a newer format on the job state, or restore the current one."""
        self.aws.clients.dynamodb.update_item(
            TableName=self.aws.settings.jobs_table,
            Key=keys.state_key(*key).item(),
            UpdateExpression="SET #f = :f ADD #version :one",
            ConditionExpression="attribute_exists(#f)",
            ExpressionAttributeNames={"#f": keys.LAYOUT_ATTR, "#version": keys.VERSION_ATTR},
            ExpressionAttributeValues={":f": {"N": str(layout)}, ":one": {"N": "1"}},
        )

    def spoil(self, key: Key) -> None:
        """Make the job state unreadable, as a manual edit or a newer version can."""
        self.aws.clients.dynamodb.update_item(
            TableName=self.aws.settings.jobs_table,
            Key=keys.state_key(*key).item(),
            UpdateExpression="SET #state = :state ADD #version :one",
            ConditionExpression="attribute_exists(#state)",
            ExpressionAttributeNames={"#state": keys.STATUS_ATTR, "#version": keys.VERSION_ATTR},
            ExpressionAttributeValues={":state": {"S": "UNHEARD_OF"}, ":one": {"N": "1"}},
        )

    def status(self, key: Key) -> RunStatus:
        return self.run(key).run.status

    def look(self) -> None:
        """Evaluate every due timer, as a poller does."""
        minutes = {timer.bucket for timer in self.aws.timers()}
        for minute in sorted(minutes):
            timers = self.runtime.ports.timers.due(minute, 0, self.clock(), None, 100).timers
            if timers:
                self.runtime.evaluator.look(timers)


def _record(message: dict[str, Any], arn: str) -> Record:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": {
            "ApproximateReceiveCount": "1",
            "MessageGroupId": message["Attributes"]["MessageGroupId"],
            "MessageDeduplicationId": message["Attributes"]["MessageDeduplicationId"],
        },
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-central-1",
    }


@contextmanager
def executor_world(now: datetime = NOON) -> Iterator[ExecutorWorld]:
    clock = ManualClock(now)
    with moto(clock) as made:
        yield ExecutorWorld(made, clock)


def output_of(world: ExecutorWorld, key: Key) -> bytes:
    """Return the output of a job's run, from its object where the answer is a link."""
    run = world.run(key)
    found = world.search.output(*key, run.run.run_id)
    if found.link is None:
        return found.data
    assert run.detail.output_blob in found.link
    return world.runtime.ports.blobs.get(run.detail.output_blob) or b""
