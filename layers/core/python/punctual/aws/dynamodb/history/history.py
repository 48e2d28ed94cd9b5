"""History in DynamoDB: a row for each ended run, and for each attempt before the last."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from punctual.aws.dynamodb import keys as at
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, Range, known
from punctual.aws.dynamodb.history.batch_outcomes import BatchOutcomes
from punctual.aws.dynamodb.history.tenant_index import TenantRunIndex
from punctual.aws.dynamodb.sort_keys import LAST_CHAR
from punctual.domain.run import Run
from punctual.engine.ports.rows import AttemptRow, Detail, Key, RunKey, RunRow

ATTEMPTS = 200

_encode = msgspec.json.Encoder().encode
_to_run = msgspec.json.Decoder(RunRow).decode
_to_attempt = msgspec.json.Decoder(AttemptRow).decode


class DynamoHistory:
    """The history table. `put` leaves the list over all jobs to the status function."""

    def __init__(self, dynamo: DynamoClient, table: str, lists: TenantRunIndex) -> None:
        self._dynamo = dynamo
        self._table = table
        self._lists = lists
        self._outcomes = BatchOutcomes(dynamo, table)

    def put(self, rows: Sequence[RunRow]) -> None:
        self._dynamo.put(
            self._table,
            [
                _row(at.run(row.tenant, row.job_id, row.run.run_id), row, row.expires_at)
                for row in rows
            ],
        )

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        self._dynamo.put(
            self._table,
            [
                _row(
                    at.attempt(row.tenant, row.job_id, row.run_id, row.number, row.token, row.lost),
                    row,
                    row.expires_at,
                )
                for row in rows
            ],
        )

    def put_ends(self, rows: Sequence[AttemptRow]) -> None:
        self._outcomes.put(rows)

    def end(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        return self._outcomes.find(key, run, now)

    def present(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        """Return the keys that have a row. An expired row counts because it was written."""
        wanted = {at.run(*key): key for key in keys}
        found = self._dynamo.read(self._table, list(wanted))
        return frozenset(wanted[place] for place in found)

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        wanted = {at.run(*key): key for key in keys}
        found = self._dynamo.read(self._table, list(wanted))
        rows = {wanted[place]: _run(row) for place, row in found.items()}
        return {key: row for key, row in rows.items() if row.expires_at > now}

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        first = at.attempts(key.run_id)
        where = Range(at.job_runs(key.tenant, key.job_id), first, first + LAST_CHAR)
        found = self._dynamo.query(self._table, where, ATTEMPTS)
        rows = (_to_attempt(known(row)[at.ROW]["S"]) for row in found)
        return [row for row in rows if row.expires_at is None or row.expires_at > now]

    def page(
        self, key: Key, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        low, high = at.runs_between(before, after)
        if low > high:  # DynamoDB rejects a range with low > high
            return []
        where = Range(at.job_runs(*key), low, high, newest_first=True)
        found = self._dynamo.query(self._table, where, limit + 1)
        rows = (_run(row) for row in found)
        behind = (row for row in rows if row.run.run_id != before and row.expires_at > now)
        return list(islice(behind, limit))

    def page_all(
        self, tenant: str, before: tuple[str, str] | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        return self._lists.page(tenant, before, limit, now)


def _run(row: Item) -> RunRow:
    return _to_run(known(row)[at.ROW]["S"])


def _row(key: at.RowKey, row: RunRow | AttemptRow, expires_at: datetime | None) -> Item:
    item: Item = {
        **key.item(),
        at.FORMAT: to_attribute(at.LAYOUT),
        at.ROW: to_attribute(_encode(row).decode()),
    }
    if expires_at is not None:
        item[at.TTL] = to_attribute(at.expiry(expires_at))
    return item
