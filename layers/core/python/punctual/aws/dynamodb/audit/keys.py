"""The keys of the audit: the rows of a tenant in several partitions, sorted by time."""

from datetime import datetime

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, split_parts
from punctual.domain.identifiers import sortable_id

AUDIT_PARTITIONS = 4
_GROUP_CHARACTERS = 10  # length of the prefix that all ids of the same four seconds share


def audit_partition(tenant: str, number: int) -> str:
    """Return the partition key of one part of a tenant's audit.

    >>> audit_partition("acme", 2)
    'acme#2'
    """
    return f"{escape(tenant)}#{number}"


def group_of(at: datetime) -> str:
    """Return the group of a time. Notes of the same four seconds share a group.

    >>> from punctual.domain.identifiers import EPOCH
    >>> group_of(EPOCH)
    '00000000-0'
    """
    return sortable_id(at, bytes(10))[:_GROUP_CHARACTERS]


def audit_row_key(tenant: str, number: int, group: str, digest: str) -> RowKey:
    """Return the key of an audit row.

    >>> audit_row_key("acme", 2, "01939f6a-7", "ab")
    RowKey(pk='acme#2', sk='01939f6a-7#ab')
    """
    return RowKey(audit_partition(tenant, number), f"{group}#{digest}")


def parse_group(sk: str) -> str:
    """Return the group of an audit row.

    >>> parse_group(audit_row_key("acme", 2, "01939f6a-7", "ab").sk)
    '01939f6a-7'
    """
    return split_parts(sk)[0]


def group_upper_bound(group: str) -> str:
    """Return the upper bound of the sort keys of a group.

    >>> audit_row_key("acme", 2, "a", "ff").sk < group_upper_bound("a")
    True
    """
    return f"{group}#{LAST_CHAR}"
