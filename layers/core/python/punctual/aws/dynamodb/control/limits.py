"""Limits in the control table: limits set by operators, and quota rows of instances."""

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from punctual.aws.dynamodb import keys
from punctual.aws.dynamodb.attributes import to_item
from punctual.aws.dynamodb.client import Condition, DynamoClient, check_layout
from punctual.aws.dynamodb.keys import join_parts
from punctual.domain.errors import LaterVersion
from punctual.domain.tenants.limits import InvalidLimits
from punctual.engine.ports.clock import Clock
from punctual.engine.ports.tenants.quota_rows import QuotaRow

LIMITS_ATTR = "limits"
# Pattern of the partition keys of all quota rows. No escaped tenant contains "#".
QUOTA_ROW_KEY_PATTERN = "*#share#*"
IDLE_ROW_RETENTION = timedelta(days=2)  # longer than a container holds its place


def limits_key(tenant: str) -> keys.RowKey:
    """Return the key of the limits that an operator wrote for this tenant.

    >>> limits_key("acme")
    RowKey(pk='acme#limits', sk='-')
    """
    return keys.RowKey(join_parts(tenant, "limits"), "-")


def quota_row_key(tenant: str, quota_name: str) -> keys.RowKey:
    """Return the key of a tenant's quota row.

    >>> quota_row_key("acme", "calls").pk
    'acme#share#calls'
    """
    return keys.RowKey(join_parts(tenant, "share", quota_name), "-")


class DynamoLimits:
    """The limits of one tenant, which `infra.operations.limits` writes."""

    def __init__(self, dynamo: DynamoClient, table: str) -> None:
        self._dynamo = dynamo
        self._table = table

    def __call__(self, tenant: str) -> Mapping[str, Any] | None:
        key = limits_key(tenant)
        row = self._dynamo.read(self._table, [key]).get(key)
        if row is None:
            return None
        try:
            values = json.loads(check_layout(row)[LIMITS_ATTR]["S"])
        except (KeyError, ValueError) as error:
            raise InvalidLimits("the row is not one that infra.operations.limits wrote") from error
        if not isinstance(values, dict):
            raise InvalidLimits("the row is not one that infra.operations.limits wrote")
        return values


def limits_row(tenant: str, limits: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the row that the operator's tool puts."""
    values = {LIMITS_ATTR: json.dumps(dict(limits)), keys.LAYOUT_ATTR: keys.ROW_LAYOUT}
    return {**limits_key(tenant).item(), **to_item(values)}


class DynamoQuotaRows:
    """One row for each tenant and limit, with compare and swap on its version."""

    def __init__(self, dynamo: DynamoClient, table: str, clock: Clock) -> None:
        self._dynamo = dynamo
        self._table = table
        self._clock = clock

    def read(self, tenant: str, quota_name: str) -> QuotaRow | None:
        key = quota_row_key(tenant, quota_name)
        item = self._dynamo.read(self._table, [key]).get(key)
        return None if item is None else _parse_row(item)

    def swap(
        self, tenant: str, quota_name: str, expected_version: int, text: str
    ) -> QuotaRow | None:
        """Return None if the row was written, else the present row.

        After a lost answer, the write has won if the present row equals the written one.
        """
        values = {
            keys.DATA_ATTR: text,
            keys.VERSION_ATTR: expected_version + 1,
            keys.LAYOUT_ATTR: keys.ROW_LAYOUT,
            keys.TTL: keys.to_ttl(self._clock() + IDLE_ROW_RETENTION),
        }
        condition = "#v = :v" if expected_version else "attribute_not_exists(#v)"
        failure = self._dynamo.put_if(
            self._table,
            {**quota_row_key(tenant, quota_name).item(), **to_item(values)},
            Condition(
                condition,
                names={"#v": keys.VERSION_ATTR},
                values=to_item({":v": expected_version} if expected_version else {}),
            ),
        )
        if failure is None:
            return None
        if not failure.item:  # the row expired since it was read
            return QuotaRow("", 0)
        present = _parse_row(failure.item)
        is_written = failure.ambiguous and present == QuotaRow(text, expected_version + 1)
        return None if is_written else present


def _parse_row(item: Mapping[str, Any]) -> QuotaRow:
    try:
        item = check_layout(item)
    except LaterVersion:  # start with an empty row, because leases last only seconds
        return QuotaRow("", int(item[keys.VERSION_ATTR]["N"]))
    return QuotaRow(item.get(keys.DATA_ATTR, {}).get("S", ""), int(item[keys.VERSION_ATTR]["N"]))
