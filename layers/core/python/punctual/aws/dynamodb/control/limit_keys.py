"""The keys of a tenant's limits, and of the rows that instances lease from."""

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import joined

LIMITS = "limits"
# Pattern of the partition keys of all quota rows. No escaped tenant contains "#".
QUOTA_ROWS = "*#share#*"


def limits(tenant: str) -> RowKey:
    """Return the key of the limits that an operator wrote for this tenant.

    >>> limits("acme")
    RowKey(pk='acme#limits', sk='-')
    """
    return RowKey(joined(tenant, "limits"), "-")


def quota_row(tenant: str, what: str) -> RowKey:
    """Return the key of a tenant's quota row.

    >>> quota_row("acme", "calls").pk
    'acme#share#calls'
    """
    return RowKey(joined(tenant, "share", what), "-")
