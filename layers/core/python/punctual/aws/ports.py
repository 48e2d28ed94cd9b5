"""The wiring of the AWS adapters, with their retry policy."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from punctual.aws.clients import MAX_AWS_CONNECTIONS
from punctual.aws.clients import Clients as Clients
from punctual.aws.dynamodb.audit import DynamoAudit
from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.control.artifacts import DynamoArtifacts
from punctual.aws.dynamodb.control.partitions import DynamoPartitions, DynamoReceipts
from punctual.aws.dynamodb.history.history import DynamoHistory
from punctual.aws.dynamodb.jobs.names import DynamoJobNames
from punctual.aws.dynamodb.jobs.states import DynamoJobStates
from punctual.aws.dynamodb.lists.failures import DynamoFailures
from punctual.aws.dynamodb.lists.job_index import DynamoJobIndex
from punctual.aws.dynamodb.lists.job_row_reader import JobRowReader
from punctual.aws.dynamodb.lists.operations import DynamoOperations
from punctual.aws.dynamodb.lists.runs import TenantRunList
from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.event_bus import EventBusFeed
from punctual.aws.operator_settings import DispatchSwitch, SwitchedMessages
from punctual.aws.retries import RetryPolicy
from punctual.aws.s3 import S3Blobs
from punctual.aws.sqs.notifications import SqsNotifications
from punctual.aws.sqs.operation_queue import OperationQueue
from punctual.aws.sqs.run_queue import SqsRunQueue
from punctual.aws.sqs.sender import SqsBatchSender
from punctual.aws.sqs.wakeups import SqsWakeUps
from punctual.aws.thread_pool import ThreadPool
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.lists.job_index import JobIndex
from punctual.engine.queries.named_job_index import NamedJobIndex
from punctual.settings import Settings


def real_clock() -> datetime:
    return datetime.now(UTC)


monotonic = time.monotonic
sleep = time.sleep
random_bytes = os.urandom


def random_write_id() -> str:
    return os.urandom(6).hex()


def build_dynamo_client(
    clients: Clients, pool: ThreadPool | None = None, retry_policy: RetryPolicy | None = None
) -> DynamoClient:
    return DynamoClient(
        lambda: clients.dynamodb,
        pool or ThreadPool(MAX_AWS_CONNECTIONS),
        retry_policy or RetryPolicy(time.sleep, seed=os.urandom(4).hex()),
    )


@dataclass(frozen=True)
class AwsPorts:
    """The adapters of one deployment."""

    job_states: DynamoJobStates
    job_index: JobIndex
    listed_jobs: JobRowReader
    timers: DynamoTimers
    run_queue: SwitchedMessages
    notifications: SqsNotifications
    history: DynamoHistory
    run_index: TenantRunList
    blobs: S3Blobs
    partitions: DynamoPartitions
    wakeups: SqsWakeUps
    operation_queue: OperationQueue
    receipts: DynamoReceipts
    feed: EventBusFeed
    audit_log: DynamoAudit
    artifacts: DynamoArtifacts
    job_names: DynamoJobNames
    failures: DynamoFailures
    operations: DynamoOperations


def build_aws_ports(
    settings: Settings,
    clock: Clock = real_clock,
    clients: Clients | None = None,
    pool: ThreadPool | None = None,
    retry_policy: RetryPolicy | None = None,
    dispatch_switch: DispatchSwitch | None = None,
    new_write_id: Callable[[], str] = random_write_id,
) -> AwsPorts:
    clients = clients or Clients()
    pool = pool or ThreadPool(MAX_AWS_CONNECTIONS)
    retry_policy = retry_policy or RetryPolicy(time.sleep, seed=os.urandom(4).hex())
    dynamo = DynamoClient(lambda: clients.dynamodb, pool, retry_policy)
    dispatch_switch = dispatch_switch or DispatchSwitch(dynamo, settings.control_table, clock)
    sender = SqsBatchSender(lambda: clients.sqs, retry_policy)
    listed_jobs = JobRowReader(dynamo, settings.lists_table, settings.list_slots, clock)
    job_states = DynamoJobStates(dynamo, settings.jobs_table, clock, listed_jobs)
    job_names = DynamoJobNames(dynamo, settings.jobs_table)
    return AwsPorts(
        job_states=job_states,
        listed_jobs=listed_jobs,
        job_index=NamedJobIndex(DynamoJobIndex(listed_jobs), job_names),
        timers=DynamoTimers(dynamo, settings.timers_table, new_write_id),
        run_queue=SwitchedMessages(SqsRunQueue(sender, settings.queues), dispatch_switch),
        notifications=SqsNotifications(sender, settings.queues, dispatch_switch),
        history=DynamoHistory(dynamo, settings.runs_table),
        run_index=TenantRunList(dynamo, settings.lists_table, settings.list_slots),
        blobs=S3Blobs(lambda: clients.s3, settings.bucket, retry_policy, pool),
        partitions=DynamoPartitions(dynamo, settings.control_table, clock),
        wakeups=SqsWakeUps(sender, settings.wake_queue, clock),
        operation_queue=OperationQueue(sender, settings.operation_queue),
        receipts=DynamoReceipts(dynamo, settings.control_table),
        feed=EventBusFeed(lambda: clients.events, settings.event_bus, retry_policy),
        audit_log=DynamoAudit(dynamo, settings.audit_table),
        artifacts=DynamoArtifacts(dynamo, settings.control_table, clock),
        job_names=job_names,
        failures=DynamoFailures(dynamo, settings.lists_table, settings.list_slots, clock),
        operations=DynamoOperations(dynamo, settings.jobs_table, clock, new_write_id),
    )
