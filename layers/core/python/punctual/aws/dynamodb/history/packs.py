"""What the ends of runs leave that were claimed together, in one row until their own rows stand.

A row of its own for each would cost a write unit each; together they are a kilobyte or two.
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
from punctual.aws.dynamodb.history import pack_keys
from punctual.domain.run import Run
from punctual.engine.execution.output_packs import SPOILT, Packed, claim_of, found
from punctual.engine.ports.rows import AttemptRow, Detail, RunKey

MOST = 262_144  # bytes packed into one row, before they are made smaller
PAGE = 20  # rows of one claim read at a time; nearly always there is one

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Packed, ...]).decode
_Claim = tuple[str, str]


class Packs:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def put(self, rows: Sequence[AttemptRow]) -> None:
        self._dynamo.put(
            self._table,
            [
                _pack(*claim, part)
                for claim, some in groupby(sorted(rows, key=_claim), key=_claim)
                for part in fitting(some, lambda row: len(_encode(row.detail)), MOST)
            ],
        )

    def find(self, key: RunKey, run: Run, now: datetime) -> Detail | None:
        """A row that is no good keeps nobody from finding what stands in another."""
        where = Range(pack_keys.pack(key.tenant, claim_of(run.nonce)))
        spoilt = None
        for row in self._dynamo.query(self._table, where, PAGE):
            if keys.TTL in row and int(row[keys.TTL]["N"]) <= keys.expiry(now):
                continue
            packed = _unpack(known(row, keys.SHARED_ENDS))
            if packed is None:
                spoilt = SPOILT
                continue
            detail = found(packed, key, run)
            if detail is not None:
                return detail
        return spoilt


def _claim(row: AttemptRow) -> _Claim:
    return row.tenant, claim_of(row.nonce)


def _pack(tenant: str, claim: str, rows: Sequence[AttemptRow]) -> Item:
    """Filed by whose it is: a batch that ends in parts, or is written anew, takes away nothing."""
    packed = [Packed(row.job_id, row.run_id, row.token, row.detail) for row in rows]
    names = "\0".join(f"{one.job_id}\0{one.run_id}\0{one.token}" for one in packed)
    digest = blake2b(names.encode(), digest_size=8).hexdigest()
    item: Item = {
        **keys.RowKey(pack_keys.pack(tenant, claim), digest).item(),
        keys.FORMAT: to_attribute(keys.SHARED_ENDS),
        keys.ROW: to_attribute(zlib.compress(_encode(packed), 1)),
    }
    ends = [row.expires_at for row in rows if row.expires_at is not None]
    if len(ends) == len(rows):
        item[keys.TTL] = to_attribute(keys.expiry(max(ends)))
    return item


def _unpack(row: Mapping[str, Any]) -> Sequence[Packed] | None:
    """None where nobody can read it."""
    try:
        return _decode(zlib.decompress(row[keys.ROW]["B"]))
    except (KeyError, zlib.error, msgspec.MsgspecError):
        return None
