"""The keys of a tenant's limits, and of the rows that instances lease from."""

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import join_parts

LIMITS_ATTR = "limits"
# Pattern of the partition keys of all quota rows. No escaped tenant contains "#".
QUOTA_ROW_KEY_PATTERN = "*#share#*"


def limits_key(tenant: str) -> RowKey:
    """Return the key of the limits that an operator wrote for this tenant.

    >>> limits_key("acme")
    RowKey(pk='acme#limits', sk='-')
    """
    return RowKey(join_parts(tenant, "limits"), "-")


def quota_row_key(tenant: str, quota_name: str) -> RowKey:
    """Return the key of a tenant's quota row.

    >>> quota_row_key("acme", "calls").pk
    'acme#share#calls'
    """
    return RowKey(join_parts(tenant, "share", quota_name), "-")
