"""Definition rows by version. A large definition takes several rows."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, known
from punctual.aws.dynamodb.keys import FORMAT, LAYOUT, PARTS, ROW, RowKey, body
from punctual.domain.errors import Unavailable
from punctual.engine.ports.rows import DefinitionRow, Key

READABLE = 16_384  # bytes up to which a definition stays readable text in the console
MOST = 380_000  # bytes in a row; the limit of DynamoDB is 400 KiB with key and names

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DefinitionRow).decode


class DynamoDefinitions:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def put(self, bodies: Sequence[DefinitionRow]) -> None:
        self._dynamo.put(self._table, [row for new in bodies for row in _rows(new)])

    def get(self, wanted: Sequence[tuple[Key, str]]) -> Mapping[tuple[Key, str], DefinitionRow]:
        keys = {body(*key, ref): (key, ref) for key, ref in wanted}
        rows = self._dynamo.read(self._table, list(keys))
        more = [
            body(*keys[at][0], keys[at][1], part)
            for at, row in rows.items()
            for part in range(1, int(row[PARTS]["N"]) if PARTS in row else 1)
        ]
        if more:
            rows |= self._dynamo.read(self._table, more)
        return {asked: _body(asked, rows[at], rows) for at, asked in keys.items() if at in rows}


def _rows(new: DefinitionRow) -> Iterator[Item]:
    data = _encode(new)
    whole: str | bytes = data.decode() if len(data) <= READABLE else zlib.compress(data)
    parts = [whole[at : at + MOST] for at in range(0, len(whole), MOST)]
    for number, part in enumerate(parts):
        yield {
            **body(new.tenant, new.job_id, new.ref, number).item(),
            FORMAT: to_attribute(LAYOUT),
            ROW: to_attribute(part),
            **({PARTS: to_attribute(len(parts))} if len(parts) > 1 else {}),
        }


def _body(asked: tuple[Key, str], row: Item, rows: Mapping[RowKey, Item]) -> DefinitionRow:
    ((kind, data),) = known(row)[ROW].items()
    if kind == "S":
        return _decode(data)
    key, ref = asked
    pieces: list[Any] = [data]
    for part in range(1, int(row[PARTS]["N"]) if PARTS in row else 1):
        found = rows.get(body(*key, ref, part))
        if found is None:
            raise Unavailable("A part of a job's definition cannot be read from the store.")
        pieces.append(found[ROW]["B"])
    return _decode(zlib.decompress(b"".join(pieces)))
