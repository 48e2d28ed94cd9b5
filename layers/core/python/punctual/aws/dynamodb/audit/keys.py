"""The keys of the audit: a tenant's rows, spread over some partitions, in the order of time."""

from datetime import datetime

from punctual.aws.dynamodb.keys import RowKey
from punctual.aws.dynamodb.sort_keys import LAST_CHAR, escape, parted
from punctual.domain.identifiers import sortable_id

PARTS = 4
_GROUP = 10  # characters that the ids of four seconds share


def part(tenant: str, number: int) -> str:
    """
    >>> part("acme", 2)
    'acme#2'
    """
    return f"{escape(tenant)}#{number}"


def group_of(at: datetime) -> str:
    """What was noted within the same four seconds lies together.

    >>> from punctual.domain.identifiers import EPOCH
    >>> group_of(EPOCH)
    '00000000-0'
    """
    return sortable_id(at, bytes(10))[:_GROUP]


def row(tenant: str, number: int, group: str, digest: str) -> RowKey:
    """
    >>> row("acme", 2, "01939f6a-7", "ab")
    RowKey(pk='acme#2', sk='01939f6a-7#ab')
    """
    return RowKey(part(tenant, number), f"{group}#{digest}")


def group_in(sk: str) -> str:
    """
    >>> group_in(row("acme", 2, "01939f6a-7", "ab").sk)
    '01939f6a-7'
    """
    return parted(sk)[0]


def through(group: str) -> str:
    """The upper end of a group's rows.

    >>> row("acme", 2, "a", "ff").sk < through("a")
    True
    """
    return f"{group}#{LAST_CHAR}"
