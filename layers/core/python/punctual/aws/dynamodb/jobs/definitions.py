"""Definition rows by version. A large definition takes several rows."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import DynamoClient, check_layout
from punctual.aws.dynamodb.keys import (
    DATA_ATTR,
    PART_COUNT_ATTR,
    ROW_LAYOUT_ATTRIBUTE,
    RowKey,
    definition_key,
)
from punctual.domain.errors import Unavailable
from punctual.engine.ports.rows import DefinitionRow, JobKey

# Bytes up to which a definition stays readable text in the console.
MAX_READABLE_DEFINITION_BYTES = 16_384
# Bytes in a row; the limit of DynamoDB is 400 KiB with key and names.
MAX_DEFINITION_PART_BYTES = 380_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DefinitionRow).decode


class DynamoDefinitions:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def put(self, definitions: Sequence[DefinitionRow]) -> None:
        self._dynamo.put(
            self._table, [row for definition in definitions for row in _to_rows(definition)]
        )

    def get(
        self, definition_ids: Sequence[tuple[JobKey, str]]
    ) -> Mapping[tuple[JobKey, str], DefinitionRow]:
        ids_by_row_key = {definition_key(*key, ref): (key, ref) for key, ref in definition_ids}
        rows = self._dynamo.read(self._table, list(ids_by_row_key))
        more_keys = [
            definition_key(*ids_by_row_key[row_key][0], ids_by_row_key[row_key][1], part)
            for row_key, row in rows.items()
            for part in range(1, int(row[PART_COUNT_ATTR]["N"]) if PART_COUNT_ATTR in row else 1)
        ]
        if more_keys:
            rows |= self._dynamo.read(self._table, more_keys)
        return {
            definition_id: _parse_definition(definition_id, rows[row_key], rows)
            for row_key, definition_id in ids_by_row_key.items()
            if row_key in rows
        }


def _to_rows(definition: DefinitionRow) -> Iterator[Item]:
    data = _encode(definition)
    text: str | bytes = (
        data.decode() if len(data) <= MAX_READABLE_DEFINITION_BYTES else zlib.compress(data)
    )
    parts = [
        text[start : start + MAX_DEFINITION_PART_BYTES]
        for start in range(0, len(text), MAX_DEFINITION_PART_BYTES)
    ]
    for number, part in enumerate(parts):
        yield {
            **definition_key(definition.tenant, definition.job_id, definition.ref, number).item(),
            **ROW_LAYOUT_ATTRIBUTE,
            DATA_ATTR: to_attribute(part),
            **({PART_COUNT_ATTR: to_attribute(len(parts))} if len(parts) > 1 else {}),
        }


def _parse_definition(
    definition_id: tuple[JobKey, str], row: Item, rows: Mapping[RowKey, Item]
) -> DefinitionRow:
    ((kind, data),) = check_layout(row)[DATA_ATTR].items()
    if kind == "S":
        return _decode(data)
    key, ref = definition_id
    pieces: list[Any] = [data]
    for part in range(1, int(row[PART_COUNT_ATTR]["N"]) if PART_COUNT_ATTR in row else 1):
        part_row = rows.get(definition_key(*key, ref, part))
        if part_row is None:
            raise Unavailable("A part of a job's definition cannot be read from the store.")
        pieces.append(part_row[DATA_ATTR]["B"])
    return _decode(zlib.decompress(b"".join(pieces)))
