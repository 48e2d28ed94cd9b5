"""The outcomes of runs of one claim, in one row until each run has its history row.

A row for each outcome would cost a write unit each. A batch row has one or two kilobytes.
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import groupby
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, KeyRange, check_layout, split_by_size
from punctual.aws.dynamodb.keys import join_parts
from punctual.domain.run import Run
from punctual.engine.changes.run_results import UNREADABLE_RUN_DETAIL
from punctual.engine.ports.rows import AttemptRow, Detail, RunKey

MAX_OUTCOMES_ROW_BYTES = 262_144  # size of the details in one row, before compression
OUTCOMES_PAGE_SIZE = 20  # rows of one claim in a query page; a claim nearly always has one


class RunOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The outcome of one attempt. The token distinguishes claims with the same nonce."""

    job_id: str
    run_id: str
    token: int
    detail: Detail


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[RunOutcome, ...]).decode


class BatchOutcomes:
    """Rows in the table of runs, one for each batch of runs that ended."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def put(self, rows: Sequence[AttemptRow]) -> None:
        """Write one row for each tenant and claim; a very large batch takes several."""
        self._dynamo.put(
            self._table,
            [
                _to_row(partition, part)
                for partition, batch in groupby(sorted(rows, key=_batch_key_of), key=_batch_key_of)
                for part in split_by_size(
                    batch, lambda row: len(_encode(row.detail)), MAX_OUTCOMES_ROW_BYTES
                )
            ],
        )

    def find(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        """Return the outcome of the last attempt, or that of a damaged row if no other exists."""
        attempt_id = (key.job_id, key.run_id, run.token)
        damaged_detail = None
        for row in self._dynamo.query(
            self._table, KeyRange(batch_key(key.tenant, run)), OUTCOMES_PAGE_SIZE
        ):
            if keys.TTL in row and int(row[keys.TTL]["N"]) <= keys.to_ttl(now):
                continue
            outcomes = _parse_outcomes(check_layout(row, keys.BATCH_OUTCOMES_LAYOUT))
            if outcomes is None:
                damaged_detail = UNREADABLE_RUN_DETAIL
                continue
            for outcome in outcomes:
                if (outcome.job_id, outcome.run_id, outcome.token) == attempt_id:
                    return outcome.detail
        return damaged_detail


def batch_key(tenant: str, claimed: Run | AttemptRow) -> str:
    """Return the partition key of the runs that were claimed together with this one.

    A nonce consists of the id of its claim, a dot, and a number within the claim. The key has three
    parts, so it differs from every partition key of a job's runs.
    """
    return join_parts(tenant, "pack", claimed.nonce.partition(".")[0])


def _batch_key_of(row: AttemptRow) -> str:
    return batch_key(row.tenant, row)


def _to_row(partition: str, rows: Sequence[AttemptRow]) -> Item:
    """Return the row of these outcomes.

    The sort key is a hash of the names of the runs. So a batch that ends in parts, or is written
    again, overwrites no other outcome.
    """
    outcomes = [RunOutcome(row.job_id, row.run_id, row.token, row.detail) for row in rows]
    names = "\0".join(f"{row.job_id}\0{row.run_id}\0{row.token}" for row in rows)
    digest = blake2b(names.encode(), digest_size=8).hexdigest()
    item: Item = {
        **keys.RowKey(partition, digest).item(),
        keys.LAYOUT_ATTR: to_attribute(keys.BATCH_OUTCOMES_LAYOUT),
        keys.DATA_ATTR: to_attribute(zlib.compress(_encode(outcomes), 1)),
    }
    expiries = [row.expires_at for row in rows if row.expires_at is not None]
    if len(expiries) == len(rows):
        item[keys.TTL] = to_attribute(keys.to_ttl(max(expiries)))
    return item


def _parse_outcomes(row: Mapping[str, Any]) -> Sequence[RunOutcome] | None:
    """Return the outcomes of a row; None if it is damaged."""
    try:
        return _decode(zlib.decompress(row[keys.DATA_ATTR]["B"]))
    except (KeyError, zlib.error, msgspec.MsgspecError):
        return None
