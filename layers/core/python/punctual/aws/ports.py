"""The wiring of the AWS adapters, with their retry policy."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from punctual.aws.clients import CREW
from punctual.aws.clients import Clients as Clients
from punctual.aws.dynamodb.audit.audit import DynamoAudit
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.control.partitions import DynamoBuckets, DynamoReceipts
from punctual.aws.dynamodb.history.history import DynamoHistory
from punctual.aws.dynamodb.history.tenant_index import TenantRunIndex
from punctual.aws.dynamodb.jobs.states import DynamoJobStates
from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.event_bus import EventBusFeed
from punctual.aws.operator_settings import DispatchSwitch, SwitchedMessages
from punctual.aws.retries import RetryPolicy
from punctual.aws.s3 import S3Blobs
from punctual.aws.sqs.notifications import SqsNotifications
from punctual.aws.sqs.run_queue import SqsMessages
from punctual.aws.sqs.sender import Queue
from punctual.aws.sqs.wakeups import SqsWakeUps
from punctual.aws.thread_pool import ThreadPool
from punctual.engine.ports.clock import Clock
from punctual.settings import Settings


def real_clock() -> datetime:
    return datetime.now(UTC)


monotonic = time.monotonic
sleep = time.sleep
random_bytes = os.urandom


def random_mark() -> str:
    return os.urandom(6).hex()


def aws_dynamo(
    clients: Clients, crew: ThreadPool | None = None, patience: RetryPolicy | None = None
) -> DynamoClient:
    return DynamoClient(
        lambda: clients.dynamodb,
        crew or ThreadPool(CREW),
        patience or RetryPolicy(time.sleep, seed=os.urandom(4).hex()),
    )


@dataclass(frozen=True)
class AwsPorts:
    """The adapters of one deployment."""

    heads: DynamoJobStates
    timers: DynamoTimers
    messages: SwitchedMessages
    notices: SqsNotifications
    history: DynamoHistory
    blobs: S3Blobs
    buckets: DynamoBuckets
    wake: SqsWakeUps
    receipts: DynamoReceipts
    feed: EventBusFeed
    audit: DynamoAudit


def aws_ports(
    settings: Settings,
    clock: Clock = real_clock,
    clients: Clients | None = None,
    crew: ThreadPool | None = None,
    patience: RetryPolicy | None = None,
    gate: DispatchSwitch | None = None,
    new_mark: Callable[[], str] = random_mark,
) -> AwsPorts:
    clients = clients or Clients()
    crew = crew or ThreadPool(CREW)
    patience = patience or RetryPolicy(time.sleep, seed=os.urandom(4).hex())
    dynamo = DynamoClient(lambda: clients.dynamodb, crew, patience)
    gate = gate or DispatchSwitch(dynamo, settings.control_table, clock)
    queue = Queue(lambda: clients.sqs, patience)
    lists = TenantRunIndex(dynamo, settings.control_table)
    return AwsPorts(
        heads=DynamoJobStates(dynamo, settings.jobs_table, clock),
        timers=DynamoTimers(dynamo, settings.timers_table, new_mark),
        messages=SwitchedMessages(SqsMessages(queue, settings.queues), gate),
        notices=SqsNotifications(queue, settings.queues, gate),
        history=DynamoHistory(dynamo, settings.runs_table, lists),
        blobs=S3Blobs(lambda: clients.s3, settings.bucket, patience, crew),
        buckets=DynamoBuckets(dynamo, settings.control_table, clock),
        wake=SqsWakeUps(queue, settings.wake_queue, clock),
        receipts=DynamoReceipts(dynamo, settings.control_table),
        feed=EventBusFeed(lambda: clients.events, settings.event_bus, patience),
        audit=DynamoAudit(dynamo, settings.audit_table),
    )
