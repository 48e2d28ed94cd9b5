"""Processes that put, read and delete timers in one table on moto."""

from datetime import UTC, datetime
from itertools import count

from punctual.aws.calls import Patience
from punctual.aws.crew import Crew
from punctual.aws.dynamo import Dynamo
from punctual.aws.timers import DynamoTimers
from punctual.aws.timers_known import KnownTimers
from punctual.engine.ports import Timer, Timers
from tests.builders import NOON
from tests.integration.moto_adapter import Moto

FOREVER = datetime.max.replace(tzinfo=UTC)
_marks = count(1)


def another(aws: Moto, known: KnownTimers | None = None) -> DynamoTimers:
    """Another process, which has read and put nothing yet, or what `known` says."""
    patience = Patience(aws.slept.append, seed="other", tries=4)
    dynamo = Dynamo(lambda: aws.clients.dynamodb, Crew(1), patience)
    return DynamoTimers(
        dynamo, aws.settings.timers_table, lambda: f"{next(_marks):012x}", known or KnownTimers()
    )


def due(timers: Timers, limit: int = 1_000) -> list[Timer]:
    """The first page of noon's minute, sorted."""
    return sorted(timers.due(NOON, 0, FOREVER, None, limit).timers)
