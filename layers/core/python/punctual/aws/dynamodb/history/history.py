"""History in DynamoDB: a row for each ended run, and for each attempt before the last."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice

import msgspec

from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, check_layout
from punctual.aws.dynamodb.history.batch_outcomes import BatchOutcomes
from punctual.aws.dynamodb.keys import (
    DATA_ATTR,
    LAST_CHAR,
    ROW_LAYOUT_ATTRIBUTE,
    TTL,
    RowKey,
    attempt_key,
    attempts_prefix,
    history_bounds,
    history_key,
    history_partition,
    to_ttl,
)
from punctual.domain.run import Run
from punctual.engine.ports.history import RecentRun, recent_run_of
from punctual.engine.ports.rows import AttemptRow, Detail, JobKey, RunKey, RunRow

ATTEMPT_PAGE_SIZE = 200

_encode = msgspec.json.Encoder().encode
_to_run = msgspec.json.Decoder(RunRow).decode
_to_attempt = msgspec.json.Decoder(AttemptRow).decode


class DynamoHistory:
    """The history table. The status function writes the list of runs over all jobs."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table
        self._outcomes = BatchOutcomes(dynamo, table)

    def put_runs(self, rows: Sequence[RunRow]) -> None:
        self._dynamo.put(
            self._table,
            [
                _to_row(history_key(row.tenant, row.job_id, row.run.run_id), row, row.expires_at)
                for row in rows
            ],
        )

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        self._dynamo.put(
            self._table,
            [
                _to_row(
                    attempt_key(
                        row.tenant, row.job_id, row.run_id, row.number, row.token, row.lost
                    ),
                    row,
                    row.expires_at,
                )
                for row in rows
            ],
        )

    def put_results(self, rows: Sequence[AttemptRow]) -> None:
        self._outcomes.put(rows)

    def find_result(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        return self._outcomes.find(key, run, now)

    def recorded_keys(self, keys: Sequence[RunKey]) -> frozenset[RunKey]:
        """Return the keys that have a row. An expired row counts because it was written."""
        keys_by_row_key = {history_key(*key): key for key in keys}
        existing = self._dynamo.read(self._table, list(keys_by_row_key))
        return frozenset(keys_by_row_key[row_key] for row_key in existing)

    def get(self, keys: Sequence[RunKey], now: datetime) -> Mapping[RunKey, RunRow]:
        keys_by_row_key = {history_key(*key): key for key in keys}
        items = self._dynamo.read(self._table, list(keys_by_row_key))
        rows = {keys_by_row_key[row_key]: _parse_run(row) for row_key, row in items.items()}
        return {key: row for key, row in rows.items() if row.expires_at > now}

    def attempts(self, key: RunKey, now: datetime) -> Sequence[AttemptRow]:
        prefix = attempts_prefix(key.run_id)
        key_range = KeyRange(history_partition(key.tenant, key.job_id), prefix, prefix + LAST_CHAR)
        items = self._dynamo.query(self._table, key_range, ATTEMPT_PAGE_SIZE)
        rows = (_to_attempt(check_layout(row)[DATA_ATTR]["S"]) for row in items)
        return [row for row in rows if row.expires_at is None or row.expires_at > now]

    def page(
        self, key: JobKey, before: str | None, after: str | None, limit: int, now: datetime
    ) -> Sequence[RunRow]:
        low, high = history_bounds(before, after)
        if low > high:  # DynamoDB rejects a range with low > high
            return []
        key_range = KeyRange(history_partition(*key), low, high, newest_first=True)
        items = self._dynamo.query(self._table, key_range, limit + 1)
        rows = (_parse_run(row) for row in items)
        valid_rows = (row for row in rows if row.run.run_id != before and row.expires_at > now)
        return list(islice(valid_rows, limit))

    def recent_runs(
        self, keys: Sequence[JobKey], limit: int, now: datetime
    ) -> Mapping[JobKey, Sequence[RecentRun]]:
        pages = self._dynamo.pool.map(lambda key: self.page(key, None, None, limit, now), keys)
        return {
            key: [recent_run_of(row.run) for row in rows]
            for key, rows in zip(keys, pages, strict=True)
        }


def _parse_run(row: Item) -> RunRow:
    return _to_run(check_layout(row)[DATA_ATTR]["S"])


def _to_row(key: RowKey, row: RunRow | AttemptRow, expires_at: datetime | None) -> Item:
    item: Item = {
        **key.item(),
        **ROW_LAYOUT_ATTRIBUTE,
        DATA_ATTR: to_attribute(_encode(row).decode()),
    }
    if expires_at is not None:
        item[TTL] = to_attribute(to_ttl(expires_at))
    return item
