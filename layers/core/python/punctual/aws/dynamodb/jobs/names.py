"""Rows of the names of recurring jobs, in the table of job states.

A job writes the row of its name before its job state. The daily walk reads both in one scan. The
stream of the table has these rows too, but its filter drops them before they start a function.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout, key_of
from punctual.aws.dynamodb.keys import (
    PK,
    ROW_LAYOUT_ATTRIBUTE,
    name_key,
    split_parts,
)
from punctual.engine.ports.lists.job_names import NameKey, NameRow

JOB_ID_ATTR, MARK_ATTR = "job_id", "name_mark"


class DynamoJobNames:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def find(self, keys: Sequence[NameKey]) -> Mapping[NameKey, NameRow]:
        items = self._dynamo.read(self._table, [name_key(*key) for key in keys])
        rows = [parse_name_row(item) for item in items.values()]
        return {row.key: row for row in rows}

    def put(self, rows: Sequence[NameRow]) -> Sequence[NameRow | None]:
        return self._dynamo.pool.map(self._put, rows)

    def replace(self, replacements: Sequence[tuple[NameRow, NameRow]]) -> Sequence[bool]:
        return self._dynamo.pool.map(lambda pair: self._replace(*pair), replacements)

    def remove(self, rows: Sequence[NameRow]) -> None:
        self._dynamo.pool.map(
            lambda row: self._dynamo.delete_if(self._table, name_key(*row.key), _stands(row)), rows
        )

    def _put(self, row: NameRow) -> NameRow | None:
        condition = Condition("attribute_not_exists(#pk)", names={"#pk": PK})
        failure = self._dynamo.put_if(self._table, _to_item(row), condition)
        existing = None if failure is None else parse_name_row(failure.item)
        return None if existing == row else existing  # an earlier try may have written it

    def _replace(self, old: NameRow, new: NameRow) -> bool:
        failure = self._dynamo.put_if(self._table, _to_item(new), _stands(old))
        return failure is None or (bool(failure.item) and parse_name_row(failure.item) == new)


def parse_name_row(item: Mapping[str, Any]) -> NameRow:
    key = key_of(check_layout(item))
    return NameRow(split_parts(key.pk)[0], key.sk, item[JOB_ID_ATTR]["S"], item[MARK_ATTR]["S"])


def _stands(row: NameRow) -> Condition:
    return Condition(
        "#mark = :mark", names={"#mark": MARK_ATTR}, values={":mark": to_attribute(row.mark)}
    )


def _to_item(row: NameRow) -> Item:
    return {
        **name_key(*row.key).item(),
        **ROW_LAYOUT_ATTRIBUTE,
        JOB_ID_ATTR: to_attribute(row.job_id),
        MARK_ATTR: to_attribute(row.mark),
    }
