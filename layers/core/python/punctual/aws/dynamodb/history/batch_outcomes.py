"""The outcomes of runs that were claimed together, in one row until each has its history row.

A row for each outcome would cost a write unit each; together they are a kilobyte or two.
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
from punctual.aws.dynamodb.client import DynamoClient, Range, fitting, known
from punctual.aws.dynamodb.sort_keys import joined
from punctual.domain.run import Run
from punctual.engine.changes.run_results import UNREADABLE
from punctual.engine.ports.rows import AttemptRow, Detail, RunKey

MAX_ROW_BYTES = 262_144  # of details in one row, before compression
PAGE_ROWS = 20  # rows of one claim that a query reads at a time; nearly always there is one


class RunOutcome(msgspec.Struct, frozen=True, array_like=True):
    """What one attempt left. The token tells apart claims that have the same nonce."""

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
                _item(partition, part)
                for partition, batch in groupby(sorted(rows, key=_partition), key=_partition)
                for part in fitting(batch, lambda row: len(_encode(row.detail)), MAX_ROW_BYTES)
            ],
        )

    def find(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        """Return what the run's last attempt left; `UNREADABLE` if only damaged rows are there."""
        wanted = (key.job_id, key.run_id, run.token)
        damaged = None
        for row in self._dynamo.query(self._table, Range(batch_key(key.tenant, run)), PAGE_ROWS):
            if keys.TTL in row and int(row[keys.TTL]["N"]) <= keys.expiry(now):
                continue
            outcomes = _outcomes(known(row, keys.SHARED_ENDS))
            if outcomes is None:
                damaged = UNREADABLE
                continue
            for outcome in outcomes:
                if (outcome.job_id, outcome.run_id, outcome.token) == wanted:
                    return outcome.detail
        return damaged


def batch_key(tenant: str, claimed: Run | AttemptRow) -> str:
    """Return the partition key of the runs that were claimed together with this one.

    A nonce is the mark of its claim, a dot, and a number within the claim. No partition key of a
    job's runs has three parts.
    """
    return joined(tenant, "pack", claimed.nonce.partition(".")[0])


def _partition(row: AttemptRow) -> str:
    return batch_key(row.tenant, row)


def _item(partition: str, rows: Sequence[AttemptRow]) -> Item:
    """Return the row of these outcomes.

    The sort key is a hash of their names: a batch that ends in parts, or is written again, deletes
    no outcome.
    """
    outcomes = [RunOutcome(row.job_id, row.run_id, row.token, row.detail) for row in rows]
    names = "\0".join(f"{row.job_id}\0{row.run_id}\0{row.token}" for row in rows)
    digest = blake2b(names.encode(), digest_size=8).hexdigest()
    item: Item = {
        **keys.RowKey(partition, digest).item(),
        keys.FORMAT: to_attribute(keys.SHARED_ENDS),
        keys.ROW: to_attribute(zlib.compress(_encode(outcomes), 1)),
    }
    expiries = [row.expires_at for row in rows if row.expires_at is not None]
    if len(expiries) == len(rows):
        item[keys.TTL] = to_attribute(keys.expiry(max(expiries)))
    return item


def _outcomes(row: Mapping[str, Any]) -> Sequence[RunOutcome] | None:
    """Return the outcomes of a row; None if it is damaged."""
    try:
        return _decode(zlib.decompress(row[keys.ROW]["B"]))
    except (KeyError, zlib.error, msgspec.MsgspecError):
        return None
