"""Deletion of the other rows of a job: definitions, and markers of run payloads."""

from collections.abc import Sequence
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, key_of
from punctual.engine.ports.rows import JobKey, RunKey

JOB_DATA_PAGE_SIZE = 100


class JobDataRows(NamedTuple):
    """Rows to delete. `payload_ids` names definitions and runs that may have a payload in S3."""

    rows: Sequence[keys.RowKey]
    payload_ids: Sequence[str]


class JobData:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def mark_payloads(self, runs: Sequence[RunKey]) -> None:
        """Put a marker row for each run with its own payload.

        The job state forgets ended runs, so the markers find their payloads later.
        """
        self._dynamo.put(
            self._table,
            [{**keys.payload_marker_key(*run).item(), **keys.ROW_LAYOUT_ATTRIBUTE} for run in runs],
        )

    def find(self, key: JobKey) -> JobDataRows:
        rows = list(
            self._dynamo.query(
                self._table, KeyRange(*keys.definitions_bounds(*key)), JOB_DATA_PAGE_SIZE
            )
        )
        refs = [keys.parse_ref(row[keys.SK]["S"]) for row in rows if _may_have_payload(row)]
        payload_ids = [keys.payload_id_of(ref) for ref in dict.fromkeys(refs)]
        return JobDataRows([key_of(row) for row in rows], payload_ids)

    def delete(self, data: JobDataRows) -> None:
        self._dynamo.delete(self._table, data.rows)


def _may_have_payload(row: Item) -> bool:
    """Return whether the job may have a payload in S3.

    A readable definition without `payload_blob` has none. A compressed one is not unpacked.
    """
    text = row.get(keys.DATA_ATTR, {}).get("S")
    return text is None or '"payload_blob"' in text
