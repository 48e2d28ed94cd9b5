"""The keys of the audit: the rows of a tenant in several partitions, sorted by time."""

from datetime import datetime

from punctual.aws.dynamodb.keys import RowKey, id_group
from punctual.aws.dynamodb.sort_keys import escape
from punctual.domain.identifiers import sortable_id

AUDIT_PARTITIONS = 4


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
    return id_group(sortable_id(at, bytes(10)))


def audit_row_key(tenant: str, number: int, group: str, digest: str) -> RowKey:
    """Return the key of an audit row.

    >>> audit_row_key("acme", 2, "01939f6a-7", "ab")
    RowKey(pk='acme#2', sk='01939f6a-7#ab')
    """
    return RowKey(audit_partition(tenant, number), f"{group}#{digest}")
