"""Rows of running containers in the control table, one for each task that Punctual started.

A row is put before the task is started, so a crash in between leaves no task unseen. All rows are
in one partition: without containers a sweep reads nothing.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, from_item, to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, KeyRange, check_layout
from punctual.tasks.container.next_step import Container
from punctual.tasks.container.sizes import FargateSize

CONTAINERS_PARTITION = "#containers"
TENANT_FIELD, JOB_FIELD, RUN_FIELD, ATTEMPT_FIELD, CLAIM_FIELD = "tenant", "job", "run", "n", "tok"
CPU_FIELD, MEMORY_FIELD, TIMEOUT_FIELD = "cpu", "mem", "timeout"
REQUESTED_FIELD, ARN_FIELD, RUNNING_FIELD, STOP_FIELD = "at", "arn", "since", "stop"
NO_LOG_FIELD = "nolog"  # set if the job discards output and log
SCRIPT_FIELD = "script"  # set if the container runs a script
_CONTAINERS_PAGE_SIZE = 1_000
# A row that no sweep removes expires, long after the longest run.
_ROW_RETENTION = timedelta(days=3)


def container_key(start_id: str) -> keys.RowKey:
    """Return the key of a container's row.

    >>> container_key("0190a-2-17")
    RowKey(pk='#containers', sk='0190a-2-17')
    """
    return keys.RowKey(CONTAINERS_PARTITION, keys.escape(start_id))


class ContainerRows:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def put(self, container: Container) -> None:
        self._dynamo.put(self._table, [_to_row(container)])

    def load_all(self) -> list[Container]:
        rows = self._dynamo.query(
            self._table, KeyRange(CONTAINERS_PARTITION), _CONTAINERS_PAGE_SIZE
        )
        return [_from_row(check_layout(row)) for row in rows]

    def load(self, start_ids: list[str]) -> dict[str, Container]:
        """Return the containers that have a row, by their start id."""
        row_keys = {container_key(start_id): start_id for start_id in start_ids}
        rows = self._dynamo.read(self._table, list(row_keys))
        return {row_keys[key]: _from_row(check_layout(row)) for key, row in rows.items()}

    def set_arn(self, start_id: str, arn: str) -> None:
        self._set(start_id, ARN_FIELD, arn)

    def set_running(self, start_id: str, at: datetime) -> None:
        self._set(start_id, RUNNING_FIELD, keys.time_key(at))

    def set_stop_reason(self, start_id: str, reason: str) -> None:
        self._set(start_id, STOP_FIELD, reason)

    def delete(self, start_ids: list[str]) -> None:
        self._dynamo.delete(self._table, [container_key(start_id) for start_id in start_ids])

    def _set(self, start_id: str, field: str, value: str) -> None:
        """Set one field of a row that exists. A deleted row stays deleted."""
        condition = Condition(
            "attribute_exists(#pk)",
            "SET #field = :value",
            {"#pk": keys.PK, "#field": field},
            to_item({":value": value}),
        )
        self._dynamo.update_if(self._table, container_key(start_id), condition)


def _to_row(container: Container) -> Item:
    seconds = timedelta(seconds=container.timeout_seconds)
    values: dict[str, Any] = {
        keys.LAYOUT_ATTR: keys.ROW_LAYOUT,
        TENANT_FIELD: container.tenant,
        JOB_FIELD: container.job_id,
        RUN_FIELD: container.run_id,
        ATTEMPT_FIELD: container.attempt_number,
        CLAIM_FIELD: container.token,
        CPU_FIELD: container.size.cpu_units,
        MEMORY_FIELD: container.size.memory_mb,
        TIMEOUT_FIELD: container.timeout_seconds,
        REQUESTED_FIELD: keys.time_key(container.requested_at),
        keys.TTL: keys.to_ttl(container.requested_at + seconds + _ROW_RETENTION),
    }
    if not container.keeps_log:
        values[NO_LOG_FIELD] = True
    if container.is_script:
        values[SCRIPT_FIELD] = True
    if container.arn:
        values[ARN_FIELD] = container.arn
    if container.running_at is not None:
        values[RUNNING_FIELD] = keys.time_key(container.running_at)
    if container.stop_reason:
        values[STOP_FIELD] = container.stop_reason
    return {**container_key(container.start_id).item(), **to_item(values)}


def _from_row(row: Mapping[str, Any]) -> Container:
    values = from_item(row)
    return Container(
        start_id=keys.unescape(values[keys.SK]),
        tenant=values[TENANT_FIELD],
        job_id=values[JOB_FIELD],
        run_id=values[RUN_FIELD],
        attempt_number=values[ATTEMPT_FIELD],
        token=values[CLAIM_FIELD],
        size=FargateSize.from_cpu_units(values[CPU_FIELD], values[MEMORY_FIELD]),
        timeout_seconds=values[TIMEOUT_FIELD],
        requested_at=keys.parse_time_key(values[REQUESTED_FIELD]),
        keeps_log=NO_LOG_FIELD not in values,
        arn=values.get(ARN_FIELD, ""),
        running_at=keys.parse_optional_time_key(values.get(RUNNING_FIELD)),
        stop_reason=values.get(STOP_FIELD, ""),
        is_script=SCRIPT_FIELD in values,
    )
