"""The keys of the audit: the rows of a tenant in several partitions, sorted by time."""

from datetime import datetime

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, parted
from punctual.domain.identifiers import sortable_id

PARTS = 4
_GROUP = 10  # length of the prefix that all ids of the same four seconds share


def part(tenant: str, number: int) -> str:
    """Return the partition key of one part of a tenant's audit.

    >>> part("acme", 2)
    'acme#2'
    """
    return f"{escape(tenant)}#{number}"


def group_of(at: datetime) -> str:
    """Return the group of a time. Notes of the same four seconds share a group.

    >>> from punctual.domain.identifiers import EPOCH
    >>> group_of(EPOCH)
    '00000000-0'
    """
    return sortable_id(at, bytes(10))[:_GROUP]


def row(tenant: str, number: int, group: str, digest: str) -> RowKey:
    """Return the key of an audit row.

    >>> row("acme", 2, "01939f6a-7", "ab")
    RowKey(pk='acme#2', sk='01939f6a-7#ab')
    """
    return RowKey(part(tenant, number), f"{group}#{digest}")


def group_in(sk: str) -> str:
    """Return the group of an audit row.

    >>> group_in(row("acme", 2, "01939f6a-7", "ab").sk)
    '01939f6a-7'
    """
    return parted(sk)[0]


def through(group: str) -> str:
    """Return the upper bound of the sort keys of a group.

    >>> row("acme", 2, "a", "ff").sk < through("a")
    True
    """
    return f"{group}#{LAST_CHAR}"
