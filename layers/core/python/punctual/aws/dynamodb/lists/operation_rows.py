"""Rows of operations, in the table of jobs, so that its stream carries their changes.

1. The operation: partition of the tenant, sort key of the operation. Each swap writes it.
2. Its request and its items, a thousand in a row: a partition of their own, written once. Their
   sort keys begin with the name of the item set. A repeated request writes a set of its own, so
   the set that the operation names never changes.
3. A short row in one partition for all tenants while the operation runs.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import Item, to_attribute
from punctual.aws.dynamodb.client import Condition, check_layout, key_of
from punctual.aws.dynamodb.keys import RowKey, join_parts, split_parts
from punctual.domain.operations.operation import Operation, OperationItem
from punctual.engine.ports.lists.operations import OperationKey, OperationRequest

OPERATION_ITEMS_PER_ROW = 1_000
RUNNING_OPERATIONS_PARTITION = "#operations#running"  # no tenant's key begins with the separator
_TENANT_PART, _OPERATION_PART = "operations", "operation"
OPERATIONS_KEY_PATTERN = f"*#{_TENANT_PART}"  # of the partitions that hold the operations
ITEM_SET_ATTR, MOVED_AT_ATTR = "items", "moved"

_encode_operation = msgspec.msgpack.Encoder().encode
_decode_operation = msgspec.msgpack.Decoder(Operation).decode
_encode_items = msgspec.msgpack.Encoder().encode
_decode_items = msgspec.msgpack.Decoder(list[OperationItem]).decode
# JSON, because a payload may hold numbers of any length.
_encode_request = msgspec.json.Encoder().encode
_decode_request = msgspec.json.Decoder(OperationRequest).decode


def operations_partition(tenant: str) -> str:
    """Return the partition key of a tenant's operations.

    >>> operations_partition("acme")
    'acme#operations'
    """
    return join_parts(tenant, _TENANT_PART)


def operation_key(key: OperationKey) -> RowKey:
    return RowKey(operations_partition(key.tenant), key.operation_id)


def running_key(key: OperationKey) -> RowKey:
    return RowKey(RUNNING_OPERATIONS_PARTITION, join_parts(*key))


def parse_running_key(row: Mapping[str, Any]) -> OperationKey:
    tenant, operation_id = split_parts(key_of(row).sk)
    return OperationKey(tenant, operation_id)


def running_bounds(tenant: str) -> tuple[str, str]:
    """Return the bounds of the sort keys of a tenant's running operations."""
    prefix = f"{join_parts(tenant)}#"
    return prefix, prefix + keys.LAST_CHAR


def request_key(key: OperationKey, item_set: str) -> RowKey:
    return RowKey(_content_partition(key), join_parts(item_set, "request"))


def items_key(key: OperationKey, item_set: str, number: int) -> RowKey:
    """Return the key of the row with the items from `number` thousand on.

    >>> items_key(OperationKey("acme", "o"), "x", 7)
    RowKey(pk='acme#operation#o', sk='x#items#000000000007')
    """
    sk = join_parts(item_set, "items", keys.number_key(number))
    return RowKey(_content_partition(key), sk)


def is_operation_key(key: RowKey) -> bool:
    """Return whether the row holds an operation.

    >>> is_operation_key(operation_key(OperationKey("acme", "01939f6a")))
    True
    >>> is_operation_key(keys.state_key("operations", "01939f6a"))
    False
    """
    parts = split_parts(key.pk)
    return len(parts) == 2 and parts[1] == _TENANT_PART


def to_row(operation: Operation, item_set: str, write_id: str, now: datetime) -> Item:
    key = OperationKey(operation.tenant, operation.operation_id)
    return {
        **operation_key(key).item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        **_changing_attributes(operation, write_id, now),
        ITEM_SET_ATTR: to_attribute(item_set),
        keys.TTL: to_attribute(keys.to_ttl(operation.expires_at)),
    }


def from_row(row: Mapping[str, Any]) -> Operation:
    """Return the operation of a row, which may be an image of the stream."""
    return _decode_operation(zlib.decompress(check_layout(row)[keys.DATA_ATTR]["B"]))


def create_condition() -> Condition:
    return Condition("attribute_not_exists(#pk)", names={"#pk": keys.PK})


def swap_condition(operation: Operation, write_id: str, now: datetime) -> Condition:
    """Return the update that replaces the operation if its revision is one lower."""
    attributes = _changing_attributes(operation, write_id, now)
    names = {f"#s{i}": name for i, name in enumerate(attributes)}
    assignments = ", ".join(f"{mark} = :s{i}" for i, mark in enumerate(names))
    values = {f":s{i}": value for i, value in enumerate(attributes.values())}
    return Condition(
        "#version = :expect AND #expires > :now",
        f"SET {assignments}",
        {**names, "#version": keys.VERSION_ATTR, "#expires": keys.TTL},
        {
            **values,
            ":expect": to_attribute(operation.revision - 1),
            ":now": to_attribute(int(now.timestamp())),
        },
    )


def has_write_id(row: Mapping[str, Any], write_id: str) -> bool:
    """Return whether the last write of the row has this write id."""
    return bool(row) and bool(row[keys.WRITE_IDS_ATTR]["S"] == write_id)


def is_expired(row: Mapping[str, Any], now: datetime) -> bool:
    return int(row[keys.TTL]["N"]) <= now.timestamp()


def moved_at(row: Mapping[str, Any]) -> datetime:
    return keys.parse_time_key(row[MOVED_AT_ATTR]["S"])


def to_running_row(operation: Operation, item_set: str, now: datetime) -> Item:
    key = OperationKey(operation.tenant, operation.operation_id)
    return {
        **running_key(key).item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        ITEM_SET_ATTR: to_attribute(item_set),
        MOVED_AT_ATTR: to_attribute(keys.time_key(now)),
        keys.TTL: to_attribute(keys.to_ttl(operation.expires_at)),
    }


def to_content_rows(
    operation: Operation,
    item_set: str,
    request: OperationRequest,
    items: Sequence[OperationItem],
) -> Iterator[Item]:
    """Yield the row of the request, and the rows of the items."""
    key = OperationKey(operation.tenant, operation.operation_id)
    yield _content_row(operation, request_key(key, item_set), _encode_request(request))
    for number, start in enumerate(range(0, len(items), OPERATION_ITEMS_PER_ROW)):
        data = _encode_items(items[start : start + OPERATION_ITEMS_PER_ROW])
        yield _content_row(operation, items_key(key, item_set, number), data)


def parse_request(row: Mapping[str, Any]) -> OperationRequest:
    return _decode_request(zlib.decompress(check_layout(row)[keys.DATA_ATTR]["B"]))


def parse_items(row: Mapping[str, Any]) -> list[OperationItem]:
    return _decode_items(zlib.decompress(check_layout(row)[keys.DATA_ATTR]["B"]))


def _content_partition(key: OperationKey) -> str:
    return join_parts(key.tenant, _OPERATION_PART, key.operation_id)


def _content_row(operation: Operation, key: RowKey, data: bytes) -> Item:
    return {
        **key.item(),
        **keys.ROW_LAYOUT_ATTRIBUTE,
        keys.DATA_ATTR: to_attribute(zlib.compress(data)),
        keys.TTL: to_attribute(keys.to_ttl(operation.expires_at)),
    }


def _changing_attributes(operation: Operation, write_id: str, now: datetime) -> Item:
    """Return the attributes of a write. Errors make a row long, so it is compressed."""
    return {
        keys.STATUS_ATTR: to_attribute(operation.status.value),
        keys.VERSION_ATTR: to_attribute(operation.revision),
        keys.WRITE_IDS_ATTR: to_attribute(write_id),
        MOVED_AT_ATTR: to_attribute(keys.time_key(now)),
        keys.DATA_ATTR: to_attribute(zlib.compress(_encode_operation(operation))),
    }
