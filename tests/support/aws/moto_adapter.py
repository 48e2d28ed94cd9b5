"""The AWS adapter on moto. Every call is counted and checked against AWS's limits.

moto accepts batches of any size and filters on key attributes, and repeats FIFO messages
(docs/decisions/0027-tests.md). So the limits are asserted here, on the adapter's requests.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from functools import cache
from itertools import count
from typing import Any
from unittest import mock

import boto3
from moto import mock_aws

from bench.cost.meter import short_table_name
from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.history.history import DynamoHistory
from punctual.aws.dynamodb.jobs.states import DynamoJobStates
from punctual.aws.dynamodb.lists.runs import RunEntry, TenantRunList
from punctual.aws.dynamodb.stream_records import Record
from punctual.aws.dynamodb.timers.rows import parse_row
from punctual.aws.ports import AwsPorts, Clients, build_aws_ports
from punctual.aws.retries import RetryPolicy
from punctual.aws.sqs.notifications import parse_notification
from punctual.aws.sqs.run_queue import parse_message
from punctual.aws.thread_pool import ThreadPool
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.job_states import Swap
from punctual.engine.ports.notifications import Notification
from punctual.engine.ports.rows import RunRow
from punctual.engine.ports.run_queue import Message
from punctual.engine.ports.timers import Timer
from punctual.settings import Settings
from tests.support.aws.job_lists import JobLists

REGION = "eu-central-1"
BUS, BUCKET = "punctual", "punctual-outputs"
LANES = ("quick-high", "quick-normal", "quick-low", "long")


@dataclass
class Moto:
    """The adapter with its clients, its calls and its sleeps."""

    ports: AwsPorts
    clients: Clients
    settings: Settings
    lists: TenantRunList
    calls: Counter[str]
    written: Counter[str]  # rows put, changed and deleted, by table
    patience: RetryPolicy
    slept: list[float] = field(default_factory=list)

    def spend(self, work: Callable[[], Any]) -> dict[str, int]:
        """Return the calls that `work` makes, by operation."""
        before = Counter(self.calls)
        work()
        return dict(self.calls - before)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table, by its short name or its name in the account."""
        name = getattr(self.settings, f"{table}_table", table)
        items = self.clients.dynamodb.scan(TableName=name)["Items"]
        return [dict(row) for row in items]

    def timers(self) -> list[Timer]:
        """Return all timers, including those that share a row."""
        return [
            timer for row in self.rows(keys.TIMERS_TABLE.name) for timer in parse_row(row).timers
        ]

    def delivered(self) -> list[Message]:
        """Receive and return all messages of the executor queues."""
        messages: list[Message] = []
        for url in self.settings.queues.values():
            while batch := self.messages(url):
                messages += [parse_message(message["Body"]) for message in batch]
        return messages

    def notifications(self) -> list[Notification]:
        """Receive and return all notices of the executor queues."""
        notifications: list[Notification] = []
        for url in self.settings.queues.values():
            while batch := self.messages(url):
                notifications += [
                    notification
                    for m in batch
                    if (notification := parse_notification(m["Body"])) is not None
                ]
        return notifications

    def messages(self, url: str) -> list[dict[str, Any]]:
        """Receive up to ten messages from a queue, and delete them."""
        received = self.clients.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
        )
        messages = [dict(message) for message in received.get("Messages", [])]
        for message in messages:
            handle = message["ReceiptHandle"]
            self.clients.sqs.delete_message(QueueUrl=url, ReceiptHandle=handle)
        return messages


class ListedHistory(DynamoHistory):
    """A history that appends to the list of runs after its rows, as the status function does.

    Each batch has a version of its own, later than those of job states.
    """

    def __init__(self, dynamo: DynamoClient, table: str, lists: TenantRunList) -> None:
        super().__init__(dynamo, table)
        self._appended = lists
        self._versions = count(1_000_000)

    def put_runs(self, rows: Sequence[RunRow]) -> None:
        super().put_runs(rows)
        version = next(self._versions)
        self._appended.append([RunEntry(row, version) for row in rows])


class ListedJobStates(DynamoJobStates):
    """Job states that write the rows of lists after their swaps, as the status function does."""

    def __init__(self, ports: AwsPorts, unwatched: AwsPorts, job_lists: JobLists) -> None:
        self.__dict__.update(vars(ports.job_states))
        self._unwatched = unwatched.job_states
        self._job_lists = job_lists

    def swap(self, swaps: Sequence[Swap]) -> Sequence[bool]:
        job_keys = list({swap.key for swap in swaps})
        before = self._unwatched.load(job_keys)
        won = super().swap(swaps)
        self._job_lists.write(
            [
                Record(
                    "0", "0", self._clock(), before[key].state if key in before else None, new.state
                )
                for key, new in self._unwatched.load(job_keys).items()
            ]
        )
        return won


@contextmanager
def moto(clock: Clock) -> Iterator[Moto]:
    with mock_aws():
        clients = Clients(_session())
        adapters = adapter(clients, _created(clients), clock)
        dynamo = DynamoClient(lambda: clients.dynamodb, ThreadPool(1), adapters.patience)
        history = ListedHistory(dynamo, adapters.settings.runs_table, adapters.lists)
        others, settings = Clients(_session()), adapters.settings
        unwatched = build_aws_ports(settings, clock, others, ThreadPool(1), adapters.patience)
        job_lists = JobLists(others.dynamodb, settings, clock)
        job_states = ListedJobStates(adapters.ports, unwatched, job_lists)
        ports = replace(adapters.ports, history=history, job_states=job_states)
        with mock.patch("moto.s3.models.utcnow", side_effect=lambda: clock().replace(tzinfo=None)):
            yield replace(adapters, ports=ports)


def adapter(clients: Clients, settings: Settings, clock: Clock) -> Moto:
    """Return the adapter over tables and queues that exist, and watch its calls."""
    slept: list[float] = []
    patience = RetryPolicy(slept.append, seed="test", tries=4)
    ports = build_aws_ports(settings, clock, clients, ThreadPool(1), patience)
    lists = ports.run_index
    calls: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for client in (clients.dynamodb, clients.sqs, clients.s3, clients.events):
        _watch(client, calls, written)
    _date(clients.dynamodb, clock)
    return Moto(ports, clients, settings, lists, calls, written, patience, slept)


def _date(client: Any, clock: Clock) -> None:
    """Set the test's time in the Date header, because moto uses the real time."""

    def name(http_response: Any, **_: Any) -> None:
        if hasattr(http_response, "headers"):  # an injected answer has no headers
            http_response.headers["Date"] = format_datetime(clock(), usegmt=True)

    client.meta.events.register_first("after-call.dynamodb", name)


@cache
def _session() -> Any:
    """Return one session for all tests, because it loads the service descriptions."""
    return boto3.Session(region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test")


def _created(clients: Clients) -> Settings:
    for table in keys.TABLES:
        clients.dynamodb.create_table(
            TableName=table.name, BillingMode="PAY_PER_REQUEST", **table.schema()
        )
    queues = {
        name: clients.sqs.create_queue(
            QueueName=f"{name}.fifo",
            Attributes={
                "FifoQueue": "true",
                "DeduplicationScope": "messageGroup",
                "FifoThroughputLimit": "perMessageGroupId",
            },
        )["QueueUrl"]
        for name in LANES
    }
    wake = clients.sqs.create_queue(QueueName="wake-ups")["QueueUrl"]
    operations = clients.sqs.create_queue(QueueName="operations")["QueueUrl"]
    clients.s3.create_bucket(
        Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    clients.events.create_event_bus(Name=BUS)
    names: dict[str, Any] = {f"{table.name}_table": table.name for table in keys.TABLES}
    return Settings(
        **names,
        stage="test",
        knobs="/punctual/test/",
        bucket=BUCKET,
        wake_queue=wake,
        operation_queue=operations,
        event_bus=BUS,
        queues=queues,
        places=dict.fromkeys(queues, 4),
        reach='[{"*":["*"]},{"*":["*"]}]',
    )


def _watch(client: Any, calls: Counter[str], written: Counter[str]) -> None:
    def count(model: Any, params: dict[str, Any], **_: Any) -> None:
        calls[model.name] += 1
        if model.name == "BatchWriteItem":
            for table, rows in params["RequestItems"].items():
                written[short_table_name(table)] += len(rows)
        elif model.name in ("PutItem", "UpdateItem"):
            written[short_table_name(params["TableName"])] += 1
        check_limits(model.name, params)

    client.meta.events.register("provide-client-params.*.*", count)


def check_limits(operation: str, params: dict[str, Any]) -> None:
    """Assert limits that AWS enforces and moto does not."""
    match operation:
        case "BatchWriteItem":
            ((_, requests),) = params["RequestItems"].items()
            places = [_written(request) for request in requests]
            assert 1 <= len(places) <= 25, "BatchWriteItem takes 25 rows"
            assert len(set(places)) == len(places), "BatchWriteItem takes a row once"
        case "BatchGetItem":
            ((_, asked),) = params["RequestItems"].items()
            places = [_place(key) for key in asked["Keys"]]
            assert 1 <= len(places) <= 100, "BatchGetItem takes 100 keys"
            assert len(set(places)) == len(places), "BatchGetItem takes a key once"
            assert "ConsistentRead" in asked, "whether it decides is said"
        case "Query" | "Scan":
            names = params.get("ExpressionAttributeNames", {})
            condition = params.get("FilterExpression", "")
            filtered = {name for mark, name in names.items() if mark in condition}
            assert not filtered & {keys.PK, keys.SK}, "a filter takes no key attribute"
            values = params.get("ExpressionAttributeValues", {})
            if {":low", ":high"} <= values.keys():
                assert values[":low"]["S"] <= values[":high"]["S"], (
                    "BETWEEN wants its bounds in order"
                )
        case "SendMessageBatch":
            ids = [entry["Id"] for entry in params["Entries"]]
            assert 1 <= len(ids) <= 10, "SendMessageBatch takes 10 messages"
            assert len(set(ids)) == len(ids), "ids differ within a batch"
            assert sum(len(entry["MessageBody"]) for entry in params["Entries"]) <= 1_048_576
            for entry in params["Entries"]:
                assert 0 <= entry.get("DelaySeconds", 0) <= 900, "SQS delays 15 minutes"
                fifo = "MessageGroupId" in entry
                assert not (fifo and "DelaySeconds" in entry), "FIFO delays no single message"
        case "PutEvents":
            assert 1 <= len(params["Entries"]) <= 10, "PutEvents takes 10 events"
        case "DeleteObjects":
            assert 1 <= len(params["Delete"]["Objects"]) <= 1_000, "S3 deletes 1,000 at a time"
        case "UpdateItem" | "PutItem":
            assert params["ConditionExpression"], "every state write is conditional"
            used = " ".join(
                str(params.get(f"{kind}Expression")) for kind in ("Update", "Condition")
            )
            for mark in (
                *params.get("ExpressionAttributeNames", {}),
                *params.get("ExpressionAttributeValues", {}),
            ):
                assert mark in used, f"{mark} is declared and not used"


def _written(request: dict[str, Any]) -> tuple[str, str]:
    if "PutRequest" in request:
        return _place(request["PutRequest"]["Item"])
    return _place(request["DeleteRequest"]["Key"])


def _place(row: dict[str, Any]) -> tuple[str, str]:
    return row[keys.PK]["S"], row[keys.SK]["S"]
