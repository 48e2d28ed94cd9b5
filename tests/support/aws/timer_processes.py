"""Processes that put, read and delete timers in one table on moto."""

from datetime import UTC, datetime
from itertools import count

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.timers.rows import TimerRowCache
from punctual.aws.dynamodb.timers.timers import DynamoTimers
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.engine.ports.timers import Timer, Timers
from tests.support.aws.moto_adapter import Moto
from tests.support.builders import NOON

FOREVER = datetime.max.replace(tzinfo=UTC)
_marks = count(1)


def another(aws: Moto, known: TimerRowCache | None = None) -> DynamoTimers:
    """Return the timers port of another process. Its cache is empty, or is `known`."""
    patience = RetryPolicy(aws.slept.append, seed="other", tries=4)
    dynamo = DynamoClient(lambda: aws.clients.dynamodb, ThreadPool(1), patience)
    return DynamoTimers(
        dynamo, aws.settings.timers_table, lambda: f"{next(_marks):012x}", known or TimerRowCache()
    )


def due(timers: Timers, limit: int = 1_000) -> list[Timer]:
    """Return the first page of noon's minute, sorted."""
    return sorted(timers.due(NOON, 0, FOREVER, None, limit).timers)
