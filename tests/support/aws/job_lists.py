"""The rows of the lists of jobs, for tests that do not run the status function."""

from typing import Any

from punctual.aws.dynamodb.client import DynamoClient
from punctual.aws.dynamodb.jobs.state_rows import from_row
from punctual.aws.dynamodb.keys import SK, STATE_SORT_KEY
from punctual.aws.dynamodb.lists.job_rows import JobRows
from punctual.aws.dynamodb.stream_records import Record
from punctual.aws.ports import build_aws_ports
from punctual.aws.retries import RetryPolicy
from punctual.aws.thread_pool import ThreadPool
from punctual.domain.job_state import JobState
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.rows import JobKey
from punctual.identity import new_id
from punctual.lambdas.status.changes import compare_states
from punctual.lambdas.status.definitions import DefinitionCache
from punctual.lambdas.status.job_list import JobListWriter
from punctual.settings import Settings


class OneClient:
    """Clients of which only DynamoDB is used."""

    def __init__(self, dynamodb: Any) -> None:
        self.dynamodb = dynamodb


class JobLists:
    """Brings the lists of jobs up to date, through a client that no test watches."""

    def __init__(self, dynamodb: Any, settings: Settings, clock: Clock) -> None:
        self._dynamodb, self._settings, self._clock = dynamodb, settings, clock
        pool, retry_policy = ThreadPool(1), RetryPolicy(lambda _: None, seed="lists", tries=2)
        clients: Any = OneClient(dynamodb)
        ports = build_aws_ports(settings, clock, clients, pool, retry_policy)
        dynamo = DynamoClient(lambda: dynamodb, pool, retry_policy)
        self._writer = JobListWriter(
            JobRows(dynamo, settings.lists_table, settings.list_slots, clock, new_id(clock)),
            DefinitionCache(ports.job_states),
        )
        self._seen: dict[JobKey, JobState] = {}

    def follow(self) -> None:
        """Write the rows of all jobs that changed since the last call."""
        states = self._readable_states()
        changed = [
            Record("0", "0", self._clock(), self._seen.get(key), state)
            for key, state in states.items()
            if self._seen.get(key) != state
        ]
        self.write(changed)
        self._seen = states

    def write(self, records: list[Record]) -> None:
        changes = [(record, compare_states(record.old, record.new)) for record in records]
        self._writer.write_changes(changes, self._clock())

    def _readable_states(self) -> dict[JobKey, JobState]:
        states = {}
        pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._settings.jobs_table)
        for row in (row for page in pages for row in page["Items"]):
            if row[SK]["S"] != STATE_SORT_KEY:
                continue
            try:
                state = from_row(row).state
            except Exception:
                continue  # the test broke this row
            states[JobKey(state.tenant, state.job_id)] = state
        return states
