"""The adapter put together, with the patience that suits it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from punctual.aws import keys
from punctual.aws.audit import DynamoAudit
from punctual.aws.blobs import S3Blobs
from punctual.aws.calls import Patience
from punctual.aws.clients import CREW
from punctual.aws.clients import Clients as Clients
from punctual.aws.control import DynamoBuckets, DynamoReceipts
from punctual.aws.crew import Crew
from punctual.aws.dynamo import Dynamo
from punctual.aws.feed import BusFeed
from punctual.aws.heads import DynamoHeads
from punctual.aws.history import DynamoHistory
from punctual.aws.knobs import Gate, GatedMessages
from punctual.aws.notices import SqsNotices
from punctual.aws.queue import SqsMessages
from punctual.aws.run_lists import RunLists
from punctual.aws.sqs import Queue
from punctual.aws.timers import DynamoTimers
from punctual.aws.wake import SqsWake
from punctual.engine.ports import Clock, Ports
from punctual.settings import Settings


def real_clock() -> datetime:
    return datetime.now(UTC)


monotonic = time.monotonic
sleep = time.sleep
random_bytes = os.urandom


def random_mark() -> str:
    return os.urandom(6).hex()


def aws_dynamo(
    clients: Clients, crew: Crew | None = None, patience: Patience | None = None
) -> Dynamo:
    return Dynamo(
        lambda: clients.dynamodb,
        crew or Crew(CREW),
        patience or Patience(time.sleep, seed=os.urandom(4).hex()),
    )


@dataclass(frozen=True)
class AwsPorts(Ports):
    """With what these can do besides, for planner and poller."""

    buckets: DynamoBuckets
    heads: DynamoHeads
    blobs: S3Blobs
    timers: DynamoTimers
    wake: SqsWake
    audit: DynamoAudit


def aws_ports(
    settings: Settings,
    clock: Clock = real_clock,
    clients: Clients | None = None,
    crew: Crew | None = None,
    patience: Patience | None = None,
    gate: Gate | None = None,
    new_mark: Callable[[], str] = random_mark,
) -> AwsPorts:
    clients = clients or Clients()
    crew = crew or Crew(CREW)
    patience = patience or Patience(time.sleep, seed=os.urandom(4).hex())
    dynamo = Dynamo(lambda: clients.dynamodb, crew, patience)
    gate = gate or Gate(dynamo, settings.control_table, clock)
    queue = Queue(lambda: clients.sqs, patience)
    lists = RunLists(dynamo, settings.control_table)
    return AwsPorts(
        heads=DynamoHeads(dynamo, settings.jobs_table, clock),
        timers=DynamoTimers(
            dynamo,
            settings.timers_table,
            new_mark if settings.writes >= keys.SHARED_TIMERS else None,
        ),
        messages=GatedMessages(SqsMessages(queue, settings.queues), gate),
        notices=SqsNotices(queue, settings.queues, gate),
        history=DynamoHistory(
            dynamo, settings.runs_table, lists, settings.writes >= keys.SHARED_ENDS
        ),
        blobs=S3Blobs(lambda: clients.s3, settings.bucket, patience, crew),
        buckets=DynamoBuckets(dynamo, settings.control_table, clock),
        wake=SqsWake(queue, settings.wake_queue, clock),
        receipts=DynamoReceipts(dynamo, settings.control_table),
        feed=BusFeed(lambda: clients.events, settings.event_bus, patience),
        audit=DynamoAudit(dynamo, settings.audit_table),
    )
