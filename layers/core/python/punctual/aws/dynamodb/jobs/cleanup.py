"""Deletion of the rows beside a job state: definitions, and markers of run payloads."""

from collections.abc import Sequence
from typing import NamedTuple

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, Range, key_of
from punctual.aws.dynamodb.control import counter_keys
from punctual.engine.ports.rows import Key, RunKey

PAGE = 100


class Left(NamedTuple):
    """Rows to delete. `given_by` names definitions and runs that may have a payload in S3."""

    rows: Sequence[keys.RowKey]
    given_by: Sequence[str]


class JobData:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def mark_payloads(self, runs: Sequence[RunKey]) -> None:
        """Put a marker row for each run with its own payload.

        The job state forgets ended runs, so the markers find their payloads later.
        """
        layout = {keys.FORMAT: to_attribute(keys.LAYOUT)}
        self._dynamo.put(
            self._table, [{**counter_keys.own_payload(*run).item(), **layout} for run in runs]
        )

    def of(self, key: Key) -> Left:
        rows = list(self._dynamo.query(self._table, Range(*counter_keys.bodies(*key)), PAGE))
        refs = [counter_keys.ref_of(row[keys.SK]["S"]) for row in rows if _may_name_a_blob(row)]
        given_by = [counter_keys.payload_of(ref) for ref in dict.fromkeys(refs)]
        return Left([key_of(row) for row in rows], given_by)

    def forget(self, left: Left) -> None:
        self._dynamo.delete(self._table, left.rows)


def _may_name_a_blob(row: Item) -> bool:
    """Return whether the job may have a payload in S3.

    A readable definition without `payload_blob` has none. A compressed one is not unpacked.
    """
    text = row.get(keys.ROW, {}).get("S")
    return text is None or '"payload_blob"' in text
