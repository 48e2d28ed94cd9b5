"""Rows of the names of recurring jobs, in the table of lists.

The status function derives all other rows of that table from job states. These rows decide: a job
writes the row of its name before its job state. So their partitions do not depend on a setting.
"""

from collections.abc import Mapping, Sequence
from json import dumps, loads
from typing import Any

from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout, key_of
from punctual.aws.dynamodb.keys import PK, ROW_LAYOUT_ATTRIBUTE, RowKey, split_parts
from punctual.aws.dynamodb.lists.keys import ListKind, list_partition, list_slot_of
from punctual.engine.ports.lists.job_names import NameKey, NamePage, NameRow

NAME_SLOTS = 16  # partitions of a tenant's names; after a change of this number no name is found
JOB_ID_ATTR, MARK_ATTR = "job_id", "mark"
_IS_NAME_ROW = {
    "FilterExpression": "attribute_exists(#mark)",
    "ExpressionAttributeNames": {"#mark": MARK_ATTR},
}


class DynamoJobNames:
    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def find(self, keys: Sequence[NameKey]) -> Mapping[NameKey, NameRow]:
        items = self._dynamo.read(self._table, [name_key(*key) for key in keys])
        rows = [_parse_row(item) for item in items.values()]
        return {row.key: row for row in rows}

    def put(self, rows: Sequence[NameRow]) -> Sequence[NameRow | None]:
        return self._dynamo.pool.map(self._put, rows)

    def replace(self, replacements: Sequence[tuple[NameRow, NameRow]]) -> Sequence[bool]:
        return self._dynamo.pool.map(lambda pair: self._replace(*pair), replacements)

    def remove(self, rows: Sequence[NameRow]) -> None:
        self._dynamo.pool.map(
            lambda row: self._dynamo.delete_if(self._table, name_key(*row.key), _stands(row)), rows
        )

    def walk(self, cursor: str | None, limit: int) -> NamePage:
        """Return the rows of names in one page of the table. The cursor is the last key as JSON."""
        after = None if cursor is None else RowKey(*loads(cursor))
        items, last_key = self._dynamo.scan(self._table, after, limit, _IS_NAME_ROW)
        return NamePage(
            [_parse_row(item) for item in items], None if last_key is None else dumps(last_key)
        )

    def _put(self, row: NameRow) -> NameRow | None:
        condition = Condition("attribute_not_exists(#pk)", names={"#pk": PK})
        failure = self._dynamo.put_if(self._table, _to_item(row), condition)
        existing = None if failure is None else _parse_row(failure.item)
        return None if existing == row else existing  # an earlier try may have written it

    def _replace(self, old: NameRow, new: NameRow) -> bool:
        failure = self._dynamo.put_if(self._table, _to_item(new), _stands(old))
        return failure is None or (bool(failure.item) and _parse_row(failure.item) == new)


def name_key(tenant: str, name: str) -> RowKey:
    """Return the key of the row of a name.

    >>> name_key("acme", "report")
    RowKey(pk='acme#names#04', sk='report')
    """
    slot = list_slot_of(name, NAME_SLOTS)
    return RowKey(list_partition(tenant, ListKind.NAMES, slot), name)


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


def _parse_row(item: Mapping[str, Any]) -> NameRow:
    key = key_of(check_layout(item))
    return NameRow(split_parts(key.pk)[0], key.sk, item[JOB_ID_ATTR]["S"], item[MARK_ATTR]["S"])
