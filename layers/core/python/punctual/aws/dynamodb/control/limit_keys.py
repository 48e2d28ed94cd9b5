"""The keys of what a tenant may use, and of what is left of it."""

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import joined

LIMITS = "limits"
SHARES = "*#share#*"  # the partition keys of all shares; a tenant's own name holds no such sign


def limits(tenant: str) -> RowKey:
    """What an operator wrote for this tenant.

    >>> limits("acme")
    RowKey(pk='acme#limits', sk='-')
    """
    return RowKey(joined(tenant, "limits"), "-")


def share(tenant: str, what: str) -> RowKey:
    """
    >>> share("acme", "calls").pk
    'acme#share#calls'
    """
    return RowKey(joined(tenant, "share", what), "-")
