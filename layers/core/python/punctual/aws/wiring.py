"""The adapter put together: clients made when first used, with the patience that suits them."""

import os
import time
from datetime import UTC, datetime
from functools import cached_property
from threading import Lock
from typing import Any

from punctual.aws.blobs import S3Blobs
from punctual.aws.calls import Patience
from punctual.aws.control import DynamoBuckets, DynamoReceipts
from punctual.aws.crew import Crew
from punctual.aws.dynamo import Dynamo
from punctual.aws.feed import BusFeed
from punctual.aws.heads import DynamoHeads
from punctual.aws.history import DynamoHistory
from punctual.aws.queue import SqsMessages
from punctual.aws.run_lists import RunLists
from punctual.aws.sqs import Queue
from punctual.aws.timers import DynamoTimers
from punctual.aws.wake import SqsWake
from punctual.engine.ports import Clock, Ports
from punctual.settings import Settings

CREW = 16  # calls at the same time; as many connections are kept open


def real_clock() -> datetime:
    return datetime.now(UTC)


monotonic = time.monotonic
sleep = time.sleep


class Clients:
    """Made lazily: a function that never touches S3 does not pay for its client."""

    def __init__(self, session: Any = None) -> None:
        self._given = session
        self._making = Lock()  # a session is not safe to use from several threads, a client is

    @cached_property
    def dynamodb(self) -> Any:
        return self._client("dynamodb")

    @cached_property
    def sqs(self) -> Any:
        return self._client("sqs")

    @cached_property
    def s3(self) -> Any:
        return self._client("s3")

    @cached_property
    def events(self) -> Any:
        return self._client("events")

    @cached_property
    def ssm(self) -> Any:
        return self._client("ssm")

    @cached_property
    def awslambda(self) -> Any:
        return self._client("lambda")

    @cached_property
    def secretsmanager(self) -> Any:
        return self._client("secretsmanager")

    @cached_property
    def _session(self) -> Any:
        import boto3

        return self._given or boto3.Session()

    def _client(self, service: str) -> Any:
        from botocore.config import Config

        config = Config(
            connect_timeout=1,
            # S3 moves megabytes; the others answer in milliseconds or not at all.
            read_timeout=20 if service == "s3" else 3,
            retries={"mode": "standard", "max_attempts": 2},
            tcp_keepalive=True,
            max_pool_connections=CREW,
        )
        with self._making:
            return self._session.client(service, config=config)


def aws_ports(
    settings: Settings,
    clock: Clock = real_clock,
    clients: Clients | None = None,
    crew: Crew | None = None,
    patience: Patience | None = None,
) -> Ports:
    clients = clients or Clients()
    crew = crew or Crew(CREW)
    patience = patience or Patience(time.sleep, seed=os.urandom(4).hex())
    dynamo = Dynamo(lambda: clients.dynamodb, crew, patience)
    queue = Queue(lambda: clients.sqs, patience)
    lists = RunLists(dynamo, settings.control_table)
    return Ports(
        heads=DynamoHeads(dynamo, settings.jobs_table, clock),
        timers=DynamoTimers(dynamo, settings.timers_table),
        messages=SqsMessages(queue, settings.queues),
        history=DynamoHistory(dynamo, settings.runs_table, lists),
        blobs=S3Blobs(lambda: clients.s3, settings.bucket, patience),
        buckets=DynamoBuckets(dynamo, settings.control_table, clock),
        wake=SqsWake(queue, settings.wake_queue, clock),
        receipts=DynamoReceipts(dynamo, settings.control_table),
        feed=BusFeed(lambda: clients.events, settings.event_bus, patience),
    )
